"""Calls that wait for clusters, side by side: one that doesn't answer delays none of the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
T = TypeVar("T")
THREADS_MAX = 8


def side_by_side(items: Sequence[Item], call: Callable[[Item], T]) -> list[T | Exception]:
    """Return for each item what `call` returned, or the exception that it raised, in their order.

    ^C ends the wait at once; what is still asked then ends with the process.
    """
    found: list[T | Exception | None] = [None] * len(items)
    left: SimpleQueue[int] = SimpleQueue()
    for number in range(len(items)):
        left.put(number)

    def work() -> None:
        while True:
            try:
                number = left.get_nowait()
            except Empty:
                return
            try:
                found[number] = call(items[number])
            except Exception as error:  # noqa: BLE001 - goes to whoever has asked
                found[number] = error

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(THREADS_MAX, len(items)) - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    return found  # type: ignore[return-value]

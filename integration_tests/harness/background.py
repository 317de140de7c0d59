"""Something that goes on in a thread beside a test or a benchmark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(work: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Do `work` again and again, with a pause before each, for as long as the block runs. Raises what ended it."""
    over = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            while not over.wait(pause_s):
                work()
        except BaseException as error:  # noqa: BLE001 - handed to the thread of the caller, below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]

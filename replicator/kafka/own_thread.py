"""Calls of librdkafka that may never return, made in a thread of their own. Used by `producer`."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class OwnThread:
    """Makes one call at a time, for one caller. The thread begins with the first call.

    Whoever has met a TimeoutError gives up what was called, and this: the thread still is in that call. It ends with
    it, or with the process, which doesn't wait for it.
    """

    def __init__(self, name: str) -> None:
        """`name`: the thread's."""
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._begun = False
        self._last: Future[Any] | None = None

    @property
    def in_call(self) -> bool:
        """Whether the last call has not returned yet."""
        return self._last is not None and not self._last.done()

    def call(self, function: Callable[[], T], timeout_s: float) -> T:
        """Make a call: return what `function` returns, or raise what it raises; TimeoutError when it has done neither
        by then."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=_run, args=(self._calls,), name=self._name, daemon=True).start()
        self._last = answer = Future[T]()
        self._calls.put((answer, function))
        return answer.result(timeout_s)

    def close(self) -> None:
        """Let the thread end after the call that it is in."""
        self._calls.put(None)


def _run(calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while (call := calls.get()) is not None:
        answer, function = call
        try:
            answer.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised to whoever waits for the answer
            answer.set_exception(error)
        del call, answer, function  # what was called can go while the thread waits

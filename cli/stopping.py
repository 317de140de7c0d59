"""Signals of a command that copies: the first asks for a clean stop, a second one exits at once.

While there is nothing to stop yet, a signal raises KeyboardInterrupt. From then on a thread hears it (`flow.signals`),
and another one calls `stop`, which may take its time: a second signal is heard meanwhile.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType, TracebackType
from typing import Any

from replicator.flow.daemon import SAME_SIGNAL_S
from replicator.flow.early_signals import stop_asked
from replicator.flow.signals import heard

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """`with Stopping(leave) as stopping: …; with stopping.asks(job.stop): job.run()`. In the main thread only."""

    def __init__(self, leave: Callable[[], object] = lambda: None) -> None:
        """`leave` is called before the process ends at once; it must not wait for anything."""
        self._leave = leave
        self._before: dict[signal.Signals, Any] = {}
        self._asks = False
        self._hearing = ExitStack()
        self._asked_s: float | None = None
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def __enter__(self) -> Stopping:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self._hearing.enter_context(heard(self._heard))
        self._install()
        if stop_asked():  # while the process started
            self.__exit__(None, None, None)
            raise KeyboardInterrupt
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._hearing.close()

    @contextmanager
    def asks(self, stop: Callable[[], object]) -> Iterator[None]:
        """Have the first signal call `stop`, while the block runs and afterwards, in another thread."""
        self._install()  # again: creating a SparkContext in between replaces the SIGINT handler
        asker = threading.Thread(target=self._wait, args=(stop,), name="stopping", daemon=True)
        asker.start()
        self._asks = True
        try:
            yield
        finally:
            self._requests.put(False)
            asker.join()

    def _install(self) -> None:
        for number, before in self._before.items():
            if before is not signal.SIG_IGN:  # nohup
                signal.signal(number, self._signalled)

    def _wait(self, stop: Callable[[], object]) -> None:
        while self._requests.get():
            stop()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if not self._asks:
            raise KeyboardInterrupt

    def _heard(self, number: int) -> None:
        if not self._asks:
            return
        now = time.monotonic()
        if self._asked_s is None:
            self._asked_s = now
            self._requests.put(True)
        elif now - self._asked_s >= SAME_SIGNAL_S:
            self._leave()
            os._exit(128 + number)

"""Runs a broker in a thread of the test's process, with an event loop of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Mapping
from typing import Any

from embedded_broker.testing.broker_run import BrokerRun
from embedded_broker.testing.runner import READY_S_MAX, STOP_S_MAX, BrokerDied, Launch, OnHit


class ThreadRunner:
    """A Runner in a thread of this process."""

    def __init__(self, on_hit: OnHit) -> None:
        self._on_hit = on_hit
        self._thread: threading.Thread
        self._loop: asyncio.AbstractEventLoop
        self._broker_run: BrokerRun
        self._end: asyncio.Future[str]
        self._failure: BaseException | None = None

    def start(self, launch: Launch, faults: Mapping[int, Mapping[str, Any]]) -> None:
        """See `Runner`."""
        ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=self._run, args=(launch, faults, ready), name=f"kafka-broker-{launch.port}", daemon=True
        )
        self._thread.start()
        try:
            ready.result(READY_S_MAX)
        except ValueError:
            raise
        except Exception as error:
            raise BrokerDied(f"the broker cannot start: {error!r}") from error

    def _run(
        self, launch: Launch, faults: Mapping[int, Mapping[str, Any]], ready: concurrent.futures.Future[None]
    ) -> None:
        try:
            asyncio.run(self._serve(launch, faults, ready))
        except BaseException as error:  # noqa: BLE001 - whoever started or stops the broker is told
            self._failure = error
            if not ready.done():
                ready.set_exception(error)

    async def _serve(
        self, launch: Launch, faults: Mapping[int, Mapping[str, Any]], ready: concurrent.futures.Future[None]
    ) -> None:
        with launch.log.open("a") as log:
            self._loop = asyncio.get_running_loop()
            self._end = self._loop.create_future()
            self._broker_run = run = BrokerRun(launch, self._on_hit, log)
            await run.start(faults)
            ready.set_result(None)
            ends: list[asyncio.Future[Any]] = [self._end, run.failed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if run.failed.done():
                self._failure = run.failed.result()
            if self._failure is None and self._end.result() == "stop":
                await run.stop()
            else:
                await run.kill()

    def _in_the_loop(self, work: Callable[[], None]) -> None:
        """Run `work` in the broker's thread. Raises what it raises, and BrokerDied."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            try:
                work()
                done.set_result(None)
            except ValueError as error:
                done.set_exception(error)

        if not self.alive():
            raise BrokerDied(f"the broker does not run: {self._failure!r}")
        try:
            self._loop.call_soon_threadsafe(run)
        except RuntimeError as error:  # the loop is closed: it has died in this very moment
            raise BrokerDied(f"the broker does not run: {self._failure!r}") from error
        done.result(STOP_S_MAX)

    def add_fault(self, number: int, spec: Mapping[str, Any]) -> None:
        """See `Runner`."""
        self._in_the_loop(lambda: self._broker_run.add_fault(number, spec))

    def release_fault(self, number: int) -> None:
        """See `Runner`."""
        self._in_the_loop(lambda: self._broker_run.faults.release(number))

    def remove_faults(self, numbers: list[int] | None) -> None:
        """See `Runner`."""
        self._in_the_loop(lambda: self._broker_run.faults.remove(numbers))

    def alive(self) -> bool:
        """See `Runner`."""
        return self._thread.is_alive() and self._failure is None

    def stop(self) -> None:
        """See `Runner`."""
        self._finish("stop")
        if self._failure is not None:
            raise BrokerDied(f"the broker had failed: {self._failure!r}") from self._failure

    def kill(self) -> None:
        """See `Runner`."""
        self._finish("kill")

    def _finish(self, how: str) -> None:
        if self.alive():
            self._in_the_loop(lambda: self._end.set_result(how))
        self._thread.join(STOP_S_MAX)
        if self._thread.is_alive():
            raise BrokerDied(f"the broker's thread did not end within {STOP_S_MAX} s")

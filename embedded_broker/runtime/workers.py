"""A pool of threads for blocking calls, and for large computations: used by storage, produce and net.

Invariant: the event loop is woken once per batch of calls, by the one that ends last: each wake-up costs a system call
and an iteration of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class NoThread(RuntimeError):
    """The system has no thread for the calls: none has begun."""


class Workers(Protocol):
    """Runs blocking calls: threads, or their replacement in a simulation."""

    def all(self, work: Sequence[Callable[[], T]]) -> asyncio.Future[list[T | BaseException]]:
        """Run all of `work`; returns what each has returned, or the exception that it has raised."""

    def stop(self) -> None:
        """Wait for the calls in progress, and begin no more."""


class Threads:
    """A pool of daemon threads, which are started when there is work for them."""

    def __init__(self, count: int, name: str) -> None:
        """At most `count` threads."""
        self._count, self._name = count, name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._stopped = False

    def all(self, work: Sequence[Callable[[], T]]) -> asyncio.Future[list[T | BaseException]]:
        """See Workers. Called on the event loop. Raises NoThread when there is no thread, and none can be had."""
        if self._stopped:
            raise RuntimeError(f"{self._name}: stopped already")
        together = _Together(work)
        while len(self._threads) < min(self._count, len(work)):
            # Daemons: a process that ends without having stopped its broker doesn't wait for them.
            thread = Thread(target=self._work, name=f"{self._name} {len(self._threads)}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system has no more
                if not self._threads:
                    raise NoThread(str(error)) from error
                break
            self._threads.append(thread)
        for number in range(len(work)):
            self._jobs.put(together.job(number))
        return together.ended

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # it holds a log, and may be the last for long

    def stop(self) -> None:
        """See Workers."""
        self._stopped = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()


class OneByOne:
    """One thread for large calls: none is handed over before the last one has ended, also if nobody waits for it any
    more. So calls whose callers are gone cost nothing, and `stop` waits for one call at most."""

    def __init__(self, workers: Callable[[int, str], Workers], name: str) -> None:
        """`workers`: makes a pool of threads, given their number and a name."""
        self._thread = workers(1, name)
        self._free = asyncio.Lock()

    async def run(self, call: Callable[[], T]) -> T:
        """Return what `call` returns, or raise what it raises."""
        await self._free.acquire()
        try:
            ended = self._thread.all([call])
        except BaseException:
            self._free.release()
            raise
        ended.add_done_callback(lambda _: self._free.release())
        # Taken out of the list, and not kept here: an error's traceback leads to both, and such a cycle would hold what
        # the call has worked on, which is large, until a full collection of garbage.
        done = (await asyncio.shield(ended)).pop()
        try:
            if isinstance(done, BaseException):
                raise done
            return done
        finally:
            del done

    def stop(self) -> None:
        """End the thread."""
        self._thread.stop()


class _Together(Generic[T]):
    """One batch of calls. `ended` belongs to the event loop; the rest is changed under the lock."""

    def __init__(self, work: Sequence[Callable[[], T]]) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[list[T | BaseException]] = self._loop.create_future()
        self._work = work
        self._results: list[Any] = [None] * len(work)
        self._lock, self._left = Lock(), len(work)
        if not work:
            self._settle()

    def job(self, number: int) -> Callable[[], None]:
        """Return what a thread does for one of them."""

        def run() -> None:
            try:
                self._results[number] = self._work[number]()
            except BaseException as error:  # noqa: BLE001 - goes to whoever waits
                self._results[number] = error
            with self._lock:
                self._left -= 1
                is_last = self._left == 0
            if is_last:
                try:
                    self._loop.call_soon_threadsafe(self._settle)
                except RuntimeError:
                    if not self._loop.is_closed():  # then nobody waits any more
                        raise

        return run

    def _settle(self) -> None:
        if not self.ended.done():  # else nobody waits any more
            self.ended.set_result(self._results)

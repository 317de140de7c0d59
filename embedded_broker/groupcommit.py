"""Group commit: one round of fsyncs at a time; whoever waits meanwhile joins the next round.

Invariants
- A high watermark never passes what has been fsynced (fsync `always`).
- After a failed fsync nothing is known about the pages that were dirty: the broker must die, never try again.
- A checkpoint speaks only of what was fsynced. With fsync `never` one that is due (`Checkpoints`) brings an fsync of
  its partition with it, in the background; nobody waits for it, and nothing else is promised by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from embedded_broker.checkpoints import Checkpoints
from embedded_broker.config import Fsync
from embedded_broker.partition import Partition
from embedded_broker.room import suppress_full

THREADS = 4
GATHER_BYTES_MIN, GATHER_S, GATHERING_S = 256 * 1024, 0.004, 0.02
"""A round of that many bytes for several who waited shows producers that are ahead of the disk: whichever begins in the
next `GATHERING_S` waits a little and takes more at once. An fsync costs several times what another batch in it does."""


class GroupCommit:
    """Makes partitions durable and moves their high watermarks."""

    def __init__(self, fsync: Fsync, interval_ms: int, on_failure: Callable[[OSError], None]) -> None:
        """`on_failure` is called once, when an fsync has failed; everybody who waits gets the OSError."""
        self._fsync, self._interval_s, self._on_failure = fsync, interval_ms / 1000, on_failure
        self._dirty: dict[Partition, None] = {}  # a set in the order of arrival: a schedule can be repeated
        self._next: asyncio.Future[None] | None = None
        self._waiting = 0  # for the next round
        self._gathers_until_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(THREADS, "fsync")
        self._round = asyncio.Lock()
        self._checkpoints = Checkpoints()
        self.rounds = 0

    async def durable(self, *partitions: Partition) -> None:
        """Return when all that is appended to `partitions` so far is durable and below their high watermarks.

        Raises OSError when an fsync failed.
        """
        dirty = [partition for partition in partitions if partition.high_watermark < partition.log_end]
        if not dirty:
            return
        if self._fsync is not Fsync.ALWAYS:
            for partition in dirty:
                partition.advance(partition.log_end)
        if self._fsync is Fsync.NEVER:
            self._note(dirty)
            return
        self._dirty.update(dict.fromkeys(dirty))
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        waiting = self._next
        self._waiting += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="group-commit")
        if self._fsync is Fsync.ALWAYS:
            await asyncio.shield(waiting)

    def _note(self, partitions: list[Partition]) -> None:
        """They have grown, and no round will see it."""
        for partition in partitions:
            self._checkpoints.note(partition)
        if self._task is None and self._checkpoints.is_due:
            self._task = asyncio.create_task(self._catch_up(), name="checkpoints")

    async def _catch_up(self) -> None:
        try:
            while self._checkpoints.is_due:
                async with self._round:
                    await self._write_checkpoint()
        finally:
            self._task = None

    async def _run(self) -> None:
        """Rounds, until nothing is dirty."""
        try:
            while self._next is not None:
                if self._fsync is Fsync.INTERVAL:
                    await asyncio.sleep(self._interval_s)
                elif asyncio.get_running_loop().time() < self._gathers_until_s:
                    await asyncio.sleep(GATHER_S)
                await self._one_round()
        finally:
            self._task = None

    async def _one_round(self) -> None:
        waiting, self._next = self._next, None
        partitions, self._dirty = list(self._dirty), {}
        several, self._waiting = self._waiting > 1, 0
        assert waiting is not None
        async with self._round:
            loop = asyncio.get_running_loop()
            live = [partition for partition in partitions if not partition.closed]
            size_bytes = sum(partition.log.unflushed_bytes for partition in live)
            flushes = [loop.run_in_executor(self._threads, partition.log.flush) for partition in live]
            ends = await asyncio.gather(*flushes, return_exceptions=True)
            if several and size_bytes >= GATHER_BYTES_MIN:
                self._gathers_until_s = loop.time() + GATHERING_S
            self.rounds += 1
            failures = [end for end in ends if isinstance(end, BaseException)]
            if failures:
                self._fail(waiting, failures[0])
                return
            for partition, end in zip(live, ends, strict=True):
                assert isinstance(end, int)
                partition.advance(end)
                self._checkpoints.note(partition)
            waiting.set_result(None)
            await self._write_checkpoint()

    async def _write_checkpoint(self) -> None:
        """If one is due. Nobody waits for it but the next round, and nobody may remove files meanwhile."""
        partition = self._checkpoints.due()
        if partition is None:
            return
        work = asyncio.get_running_loop().run_in_executor
        try:
            with suppress_full():
                await work(self._threads, partition.log.write_checkpoint, partition.capture())
        except OSError as error:
            self._on_failure(error)

    def _fail(self, waiting: asyncio.Future[None], failure: BaseException) -> None:
        if not isinstance(failure, OSError):
            raise failure
        waiting.set_exception(failure)
        waiting.exception()  # nobody may be waiting for it
        self._on_failure(failure)

    def exclusive(self) -> asyncio.Lock:
        """Hold this to close or remove files: no fsync is under way meanwhile."""
        return self._round

    async def stop(self) -> None:
        """Let the rounds end; then no more threads."""
        if self._task is not None:
            await asyncio.wait([self._task])
        self.abandon()

    def abandon(self) -> None:
        """No more threads; who still waits is forgotten."""
        self._threads.shutdown()

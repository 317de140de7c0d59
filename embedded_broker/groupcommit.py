"""Group commit: one round of fsyncs at a time; whoever waits meanwhile joins the next round.

Invariants
- A high watermark never passes what has been fsynced (fsync `always`).
- After a failed fsync nothing is known about the pages that were dirty: the broker must die, never try again.
- A checkpoint speaks only of what was fsynced: one that is due (`Checkpoints`) brings an fsync of its partition with
  it. That goes on beside the rounds (one with the same partition waits for that fsync); only who removes files, and a
  stop, wait for all of it. With fsync `never` nothing else is promised by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from embedded_broker.checkpoints import Checkpoints
from embedded_broker.config import Fsync
from embedded_broker.partition import Partition
from embedded_broker.room import suppress_full
from embedded_broker.workers import Threads, Workers

THREADS = 4
GATHER_BYTES_MIN, GATHER_S, GATHERING_S = 256 * 1024, 0.001, 0.02
"""A round of that many bytes for several who waited shows producers that are ahead of the disk: whichever begins in the
next `GATHERING_S` waits a little and takes more at once. An fsync costs several times what another batch in it does;
but a producer that has five requests under way slows down when they take between 6 and 10 ms, or more."""


class Both:
    """Two locks, taken in this order. No generator: what a kill leaves of one would run when it is collected."""

    def __init__(self, first: asyncio.Lock, second: asyncio.Lock) -> None:
        self._first, self._second = first, second

    async def __aenter__(self) -> None:
        await self._first.acquire()
        try:
            await self._second.acquire()
        except BaseException:
            self._first.release()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._second.release()
        self._first.release()


class GroupCommit:
    """Makes partitions durable and moves their high watermarks."""

    def __init__(
        self,
        fsync: Fsync,
        interval_ms: int,
        on_failure: Callable[[BaseException], None],
        scan_bytes_max: int,
        workers: Callable[[int, str], Workers] = Threads,
    ) -> None:
        """`on_failure` is told when an fsync, or a checkpoint, has failed; who waits for a round gets the error, too.

        Checkpoints are written when a start would have more than `scan_bytes_max` to go through. `workers` makes those
        who wait for the disk, of a number and with a name.
        """
        self._fsync, self._interval_s, self._on_failure = fsync, interval_ms / 1000, on_failure
        self._dirty: dict[Partition, None] = {}  # a set in the order of arrival: a schedule can be repeated
        self._next: asyncio.Future[None] | None = None
        self._waiting = 0  # for the next round
        self._gathers_until_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._flushers, self._writer = workers(THREADS, "fsync"), workers(1, "checkpoint")
        self._round, self._writing = asyncio.Lock(), asyncio.Lock()  # held through a round; through a checkpoint
        self._checkpoints = Checkpoints(scan_bytes_max)
        self._checkpoint_task: asyncio.Task[None] | None = None
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
        """They have grown."""
        for partition in partitions:
            self._checkpoints.note(partition)
        if self._checkpoint_task is None and self._checkpoints.is_due:
            self._checkpoint_task = asyncio.create_task(self._catch_up(), name="checkpoints")

    async def _catch_up(self) -> None:
        """Write checkpoints, until none is due."""
        try:
            while self._checkpoints.is_due:
                async with self._writing:
                    await self._write_checkpoint()
        finally:
            self._checkpoint_task = None

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
            try:
                ends = await self._flushers.all([partition.log.flush for partition in live])
            except RuntimeError as error:
                self._fail(waiting, error)
                return
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
            waiting.set_result(None)
            self._note(live)

    async def _write_checkpoint(self) -> None:
        """If one is due. Nobody may remove files meanwhile."""
        partition = self._checkpoints.due()
        if partition is None:
            return
        try:
            log, captured = partition.log, partition.capture()
            written = (await self._writer.all([lambda: log.store_checkpoint(captured)]))[0]
            with suppress_full():
                if isinstance(written, BaseException):
                    raise written
                log.checkpoint_stored(captured, written)
                self._checkpoints.note(partition)  # a round that ended meanwhile has noted it as it was before
        except Exception as error:  # noqa: BLE001 - whatever it is, the broker can't go on without knowing
            self._on_failure(error)

    def _fail(self, waiting: asyncio.Future[None], failure: BaseException) -> None:
        waiting.set_exception(failure)
        waiting.exception()  # nobody may be waiting for it
        self._on_failure(failure)

    def exclusive(self) -> Both:
        """Hold this to close or remove files: no fsync and no checkpoint is under way meanwhile."""
        return Both(self._writing, self._round)

    async def stop(self) -> None:
        """Let rounds and checkpoints end; then no more of them."""
        while under_way := [task for task in (self._task, self._checkpoint_task) if task is not None]:
            await asyncio.wait(under_way)
        self.abandon()

    def abandon(self) -> None:
        """No more threads; who still waits is forgotten."""
        self._flushers.stop()
        self._writer.stop()

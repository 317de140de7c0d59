"""Schedules fsyncs: one round over dirty partitions at a time, which every request that waits for the disk shares.

`Broker` creates one `FlushScheduler`. Request handlers and coordinators await `durable`; code that closes or removes
files holds `exclusive`.

Invariants
- A high watermark never passes what has been fsynced (fsync `always`).
- A request with more than `PART` dirty partitions has `PART` of them in a round, and none in the next round if others
  wait; the next such request has none before the last of these are taken. So others wait for one short round that isn't
  theirs, however many partitions a request writes to.
- After a failed fsync nothing is known about the pages that were dirty: the broker must stop, and never retries. If it
  was not the disk that failed, its partition stops, and only those that wait for it get the error; but one of the
  broker's own logs must not be behind the memory, so the broker stops (`OwnLogFailed`).
- What could not be flushed for want of a thread or an open file is flushed by a later round, for which no other round
  waits; nor does `stop`.
- A checkpoint covers only what was fsynced: one that is due (`Checkpoints`) fsyncs its partition first. It is written
  concurrently with the rounds (a round with the same partition waits for that fsync); only the removal of files, and
  `stop`, wait for it. With fsync `never` these are the only fsyncs.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from embedded_broker.config.settings import Fsync
from embedded_broker.config.thresholds import DEFAULTS, Thresholds
from embedded_broker.runtime.workers import NoThread, Threads, Workers
from embedded_broker.storage.checkpoints import Checkpoints
from embedded_broker.storage.disk_space import suppress_disk_full
from embedded_broker.storage.failures import is_disk_failure
from embedded_broker.storage.log.open_files import is_out_of_files
from embedded_broker.storage.partition import Partition

THREADS = 4
PART = THREADS
RETRY_S = 1.0
"""After which what had no thread, or no open file, is tried again."""
LINGER_S, LINGER_WINDOW_S = 0.001, 0.02
"""A round of at least `Thresholds.linger_bytes_min` for several waiting requests shows that producers are faster than
the disk: rounds that begin within the next LINGER_WINDOW_S linger for LINGER_S, and so take more batches at once. An
fsync costs several times as much as one more batch in it; but a producer with five requests in flight slows down when
these take 6 to 10 ms or more."""


Failures = Mapping[Partition, BaseException]
"""What a round could not flush, and why."""


class OwnLogFailed(OSError):
    """A flush of an internal partition, or of the metadata, has failed, and not because of the disk. What it holds may
    be on disk or not, and the memory doesn't follow: only a start finds out."""

    def __init__(self, partition: Partition, cause: BaseException) -> None:
        super().__init__(errno.EIO, f"{partition.topic}-{partition.index}: the flush failed: {cause!r}")


class BothLocks:
    """Two locks as one context manager, acquired in this order.

    Not a generator function: after a simulated kill its `finally` would still run when the generator is collected.
    """

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


class _LargeRequest:
    """One with so many dirty partitions that they are flushed in several rounds."""

    __slots__ = ("_failures", "_left", "done")

    def __init__(self, dirty: Sequence[Partition]) -> None:
        self._left = deque((partition, partition.log_end) for partition in dirty)
        self._failures = dict[Partition, BaseException]()
        self.done: asyncio.Future[Failures] = asyncio.get_running_loop().create_future()

    def part(self, count: int) -> list[Partition]:
        """Take so many that the next round is to flush; what others have flushed meanwhile is left out."""
        taken = list[Partition]()
        while self._left and len(taken) < count:
            partition, end = self._left.popleft()
            if not partition.closed and partition.high_watermark < end:
                taken.append(partition)
        return taken

    @property
    def is_taken(self) -> bool:
        """Whether the last part was taken."""
        return not self._left

    def follow(self, a_round: asyncio.Future[Failures], is_last: bool) -> None:
        """Note how the round with a part, perhaps the last one, has ended. A failure doesn't keep the other parts from
        being flushed."""
        failure = asyncio.CancelledError() if a_round.cancelled() else a_round.exception()
        if self.done.done():
            return
        if failure is not None:
            self.done.set_exception(failure)
            self.done.exception()  # nobody may be waiting for it
            return
        self._failures.update(a_round.result())
        if is_last:
            self.done.set_result(self._failures)


class FlushScheduler:
    """Makes partitions durable and moves their high watermarks."""

    def __init__(
        self,
        fsync: Fsync,
        interval_ms: int,
        on_failure: Callable[[BaseException], None],
        scan_bytes_max: int,
        workers: Callable[[int, str], Workers] = Threads,
        thresholds: Thresholds = DEFAULTS,
    ) -> None:
        """
        Args:
            fsync: when data is forced to disk.
            interval_ms: between two rounds with fsync `interval`.
            on_failure: called when an fsync, or a checkpoint, has failed. Requests that wait for the partition get
                the error, too; if it is the disk's, all that wait for the round.
            scan_bytes_max: checkpoints are written when a start would have to scan more than that.
            workers: makes a pool of threads for blocking calls, given their number and a name.
            thresholds: of lingering and of checkpoints.
        """
        self._linger_bytes_min = thresholds.linger_bytes_min
        self._fsync, self._interval_s, self._on_failure = fsync, interval_ms / 1000, on_failure
        self._dirty: dict[Partition, None] = {}  # an ordered set, so that simulated runs are deterministic
        self._next: asyncio.Future[Failures] | None = None
        self._large, self._had_part = deque[_LargeRequest](), False
        self._waiting = 0  # requests that wait for the next round
        self._lingers_until_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._unflushed: dict[Partition, None] = {}  # had no thread or no file, and is tried again
        self._timer: asyncio.TimerHandle | None = None
        self._again, self._ends = asyncio.Event(), False  # set when `_unflushed` is tried again; by `end_retries`
        self._flushers, self._writer = workers(THREADS, "fsync"), workers(1, "checkpoint")
        self._round, self._writing = asyncio.Lock(), asyncio.Lock()  # held through a round; through a checkpoint
        self._checkpoints = Checkpoints(scan_bytes_max, thresholds.checkpoint_worth)
        self._checkpoint_task: asyncio.Task[None] | None = None
        self.rounds = 0

    async def durable(self, *partitions: Partition) -> None:
        """Return when all that is appended to `partitions` so far is durable and below their high watermarks.

        Raises OSError when an fsync failed, or whatever else kept one of them from being flushed. They will be durable
        later after NoThread, and if no file could be opened (`is_out_of_files`).
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
        waiting = self._begin()
        if len(dirty) <= PART or self._fsync is not Fsync.ALWAYS:
            self._dirty.update(dict.fromkeys(dirty))
        else:
            self._large.append(large := _LargeRequest(dirty))
            waiting = large.done
        self._waiting += 1
        if self._fsync is Fsync.ALWAYS:
            failures = await asyncio.shield(waiting)
            for partition in dirty:
                if partition in failures:
                    raise failures[partition]

    async def until_durable(self, partition: Partition) -> None:
        """Wait as `durable` does, but wait on while the system has no thread or no file: for those whose memory must
        follow what they have appended. Raises OSError; of the broker's own logs nothing else, and it stops then. After
        `end_retries` it raises what `durable` does for want of a thread or a file, too."""
        while True:
            try:
                return await self.durable(partition)
            except Exception as error:
                if is_passing(error) and not self._ends:
                    if self._timer is not None:  # else it has been begun again just now
                        await self._again.wait()
                    continue
                if is_passing(error) or not partition.internal or is_disk_failure(error):
                    raise
                failure = OwnLogFailed(partition, error)
                self._on_failure(failure)
                raise failure from error

    def _begin(self) -> asyncio.Future[Failures]:
        """Let there be a next round, and return it."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="flush-scheduler")
        return self._next

    def _note(self, partitions: list[Partition]) -> None:
        """Note that the partitions have grown: start writing checkpoints if any is due. Not of those that are
        stopped.
        """
        for partition in partitions:
            if partition.stopped is None:
                self._checkpoints.note(partition)
        if self._checkpoint_task is None and self._checkpoints.is_due:
            self._checkpoint_task = asyncio.create_task(self._catch_up(), name="checkpoints")

    async def _catch_up(self) -> None:
        """Write checkpoints until none is due."""
        try:
            while self._checkpoints.is_due:
                async with self._writing:
                    await self._write_checkpoint()
        except Exception as error:  # noqa: BLE001 - whatever it is, the broker decides whether it can go on
            self._on_failure(error)
        finally:
            self._checkpoint_task = None

    async def _run(self) -> None:
        """Make rounds until nothing is dirty."""
        try:
            while self._next is not None:
                if self._fsync is Fsync.INTERVAL:
                    await asyncio.sleep(self._interval_s)
                elif asyncio.get_running_loop().time() < self._lingers_until_s:
                    await asyncio.sleep(LINGER_S)
                await self._one_round()
        except Exception as error:  # noqa: BLE001 - the next request begins another round
            self._on_failure(error)
        finally:
            self._task = None

    async def _one_round(self) -> None:
        waiting, self._next = self._next, None
        assert waiting is not None
        try:
            await self._flush(waiting)
        except BaseException as error:
            if not waiting.done():
                waiting.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
                waiting.exception()
            raise

    def _take_part(self, waiting: asyncio.Future[Failures]) -> None:
        """Add the next part of the large requests to the dirty partitions, unless the last round had one and others
        wait. With its last part a request is done, or has failed, as the round that `waiting` stands for is."""
        self._had_part = bool(self._large) and not (self._had_part and self._dirty)
        room = PART if self._had_part else 0
        while self._large and room:
            large = self._large[0]
            taken = large.part(room)
            room -= len(taken)
            self._dirty.update(dict.fromkeys(taken))
            waiting.add_done_callback(partial(large.follow, is_last=large.is_taken))
            if large.is_taken:
                self._large.popleft()
        if self._large:
            self._next = asyncio.get_running_loop().create_future()
            self._waiting += 1

    async def _flush(self, waiting: asyncio.Future[Failures]) -> None:
        several, self._waiting = self._waiting > 1, 0
        self._take_part(waiting)
        partitions, self._dirty = list(self._dirty), {}
        async with self._round:
            loop = asyncio.get_running_loop()
            live = [partition for partition in partitions if not partition.closed]
            size_bytes = sum(partition.log.unflushed_bytes for partition in live) if several else 0
            try:
                ends = await self._flushers.all([partition.log.flush for partition in live])
            except NoThread as error:
                _fail(waiting, error)
                self._set_aside(live, error)
                return
            if several and size_bytes >= self._linger_bytes_min:
                self._lingers_until_s = loop.time() + LINGER_WINDOW_S
            self.rounds += 1
            failures = {
                partition: _failure_of(partition, end)
                for partition, end in zip(live, ends, strict=True)
                if isinstance(end, BaseException)
            }
            if of_the_disk := [failure for failure in failures.values() if is_disk_failure(failure)]:
                _fail(waiting, of_the_disk[0])
                self._on_failure(of_the_disk[0])
                return
            waiting.set_result(failures)  # who waits for it goes on when all of this is done
            for partition, end in zip(live, ends, strict=True):
                self._take_in(partition, end, failures)
            self._note(live)

    def _take_in(self, partition: Partition, end: int | BaseException, failures: Failures) -> None:
        """Note how a partition has come out of a round."""
        if isinstance(end, BaseException) and is_passing(end):
            return self._set_aside([partition], end)
        self._unflushed.pop(partition, None)
        if isinstance(end, int):
            partition.advance(end)
        else:  # it isn't known how far it is durable
            partition.stop(end)
            self._on_failure(failures[partition])

    def _set_aside(self, partitions: list[Partition], shortage: BaseException) -> None:
        """Let these be flushed again after a while. A shortage is reported once, until all has been flushed."""
        if not self._unflushed:
            self._on_failure(shortage)
        self._unflushed.update(dict.fromkeys(partitions))
        if self._timer is None and not self._ends:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        """Let the next round have what was set aside, and wake those who wait for that in time to be part of it."""
        self._timer = None
        self._unflushed = {partition: None for partition in self._unflushed if not partition.closed}
        again, self._again = self._again, asyncio.Event()
        again.set()
        if self._unflushed:
            self._dirty = {**self._unflushed, **self._dirty}
            self._begin()

    async def _write_checkpoint(self) -> None:
        """Write one partition's checkpoint if it is due. Hold `_writing`: no files may be removed meanwhile."""
        partition = self._checkpoints.due()
        if partition is not None:
            await self._store(partition)

    async def checkpoint(self, partition: Partition) -> None:
        """Write a partition's checkpoint, whatever it saves: what has been forgotten stays so. Raises OSError."""
        async with self._writing:
            if not partition.closed and partition.stopped is None:
                await self._store(partition)

    async def _store(self, partition: Partition) -> None:
        log, captured = partition.log, partition.capture()
        written = (await self._writer.all([lambda: log.store_checkpoint(captured)]))[0]
        with suppress_disk_full():
            if isinstance(written, BaseException):
                raise written
            log.checkpoint_stored(captured, written)
            self._checkpoints.note(partition)  # a round that ended meanwhile has noted it as it was before

    def exclusive(self) -> BothLocks:
        """Hold this to close or remove files: no fsync and no checkpoint is in progress meanwhile."""
        return BothLocks(self._writing, self._round)

    def end_retries(self) -> None:
        """Try once more what had no thread or no file, and then no more: those who wait for that get the error."""
        self._ends = True
        if self._timer is not None:
            self._timer.cancel()
            self._try_again()

    async def stop(self) -> None:
        """Wait for rounds and checkpoints in progress, then end the threads. Closing a log flushes it once more."""
        self.end_retries()
        while under_way := [task for task in (self._task, self._checkpoint_task) if task is not None]:
            await asyncio.wait(under_way)
        self.abandon()

    def abandon(self) -> None:
        """End the threads without waiting for rounds; requests that still wait get no result."""
        if self._timer is not None:
            self._timer.cancel()
        self._flushers.stop()
        self._writer.stop()


def is_passing(error: BaseException) -> bool:
    """Return whether nothing has failed but the system's threads or files, which it may have later."""
    return isinstance(error, NoThread) or (isinstance(error, OSError) and is_out_of_files(error))


def _fail(waiting: asyncio.Future[Failures], failure: BaseException) -> None:
    waiting.set_exception(failure)
    waiting.exception()  # nobody may be waiting for it


def _failure_of(partition: Partition, failure: BaseException) -> BaseException:
    if partition.internal and not is_passing(failure) and not is_disk_failure(failure):
        return OwnLogFailed(partition, failure)
    return failure

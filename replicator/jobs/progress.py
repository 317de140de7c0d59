"""How far the partitions of a job are, read from the target while its tasks run. Used by `jobs.range_job`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from replicator.jobs.engine import Observer, PartitionProgress
from replicator.jobs.partition_state import PartitionOffsets
from replicator.jobs.ranges import Plan
from replicator.model.errors import Retriable, Unreachable
from replicator.model.partition import Partition

POSITIONS_READ_S = 1.0  # between two reads of the positions while tasks run: there is no event for them
OffsetsByPartition = Mapping[Partition, PartitionOffsets]
ProgressByPartition = Mapping[Partition, PartitionProgress]


class ProgressReader:
    """Reads in a thread of its own, so that no free slot waits for an answer. A context manager, used by one thread."""

    def __init__(self, read: Callable[[], ProgressByPartition]) -> None:
        """`read` asks the target; it may raise Unreachable and Retriable."""
        self._read, self._read_s = read, time.monotonic()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="positions")
        self._reading: Future[ProgressByPartition] | None = None

    def __enter__(self) -> ProgressReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=False)  # what it asks for is of no use any more

    def tell(self, observer: Observer) -> None:
        """Tell what was read, and begin to read again when it is time. Does not wait. Raises only what is a bug or
        stands in the way of the job too."""
        if self._reading is None:
            if time.monotonic() >= self._read_s + POSITIONS_READ_S:
                self._reading = self._pool.submit(self._read)
            return
        if not self._reading.done():
            return
        reading, self._reading, self._read_s = self._reading, None, time.monotonic()
        try:
            observer.moved(reading.result())
        except (Unreachable, Retriable) as error:
            observer.positions_unknown(str(error))


def progress_of(plan: Plan, before: OffsetsByPartition, now: OffsetsByPartition) -> ProgressByPartition:
    """Return how far the plan's partitions are, by what was read `before` it was made and `now`."""
    found: dict[Partition, PartitionProgress] = {}
    for at, (start, end) in plan.bounds.items():
        if at in now and at in before:
            position = now[at].position
            records = max(0, now[at].records - before[at].records)
            found[at] = PartitionProgress(start, max(start, end), start if position is None else position, records)
    return found

"""Jobs in the test's own process: an engine of threads, and an observer that remembers."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from integration_tests.harness.copying import Copying
from replicator import config
from replicator.failpoints import Failpoint, nothing
from replicator.jobs.backfill import Backfill, BackfillRequest
from replicator.jobs.engine import Cancelled, PartitionProgress
from replicator.jobs.range_copy import RangeDone, RangeTask, copy_range
from replicator.jobs.ranges import Range
from replicator.model.partition import Partition


class Threads:
    """Runs tasks as Spark would, in threads. After `cancel` a round is given up, and its tasks run on by themselves."""

    slots = 2

    def __init__(self, failpoint: Failpoint = nothing) -> None:
        self._failpoint, self._cancelled = failpoint, threading.Event()
        self._pool = ThreadPoolExecutor(self.slots)
        self.rounds: list[list[RangeTask]] = []

    def run(self, tasks: Sequence[RangeTask]) -> list[RangeDone]:
        """See the protocol."""
        self.rounds.append(list(tasks))
        futures = [self._pool.submit(copy_range, task, self._failpoint) for task in tasks]
        over = threading.Semaphore(0)
        for future in futures:
            future.add_done_callback(lambda _: over.release())
        for _ in futures:
            while not over.acquire(timeout=0.1):
                if self._cancelled.is_set():
                    raise Cancelled
        return [future.result() for future in futures]

    def cancel(self) -> None:
        """See the protocol."""
        self._cancelled.set()

    def close(self) -> None:
        """Wait for tasks that were given up, too."""
        self._pool.shutdown()


class Remembering:
    """An observer that remembers what it was told."""

    def __init__(self) -> None:
        self.ranges: list[Range] = []
        self.progress: dict[Partition, PartitionProgress] = {}
        self.done: list[RangeDone] = []

    def planned(
        self, generation: int, ranges: Sequence[Range], progress: Mapping[Partition, PartitionProgress]
    ) -> None:
        """See the protocol."""
        self.ranges = list(ranges)

    def round_began(self, number: int, tasks: int) -> None:
        """See the protocol."""

    def moved(self, progress: Mapping[Partition, PartitionProgress]) -> None:
        """See the protocol."""
        self.progress = dict(progress)

    def positions_unknown(self, reason: str) -> None:
        """See the protocol."""

    def round_ended(self, number: int, ranges: Sequence[Range], done: Sequence[RangeDone]) -> None:
        """See the protocol."""
        self.done += done


def backfill(copying: Copying, **request: object) -> tuple[Backfill, Remembering]:
    """A backfill of the flow of `copying`; keywords as of `BackfillRequest`."""
    loaded = config.load(copying.file.path)
    seen = Remembering()
    flow = loaded.flows[copying.file.flow]
    return Backfill(flow, loaded, BackfillRequest(**request), seen, structlog.get_logger()), seen  # type: ignore[arg-type]

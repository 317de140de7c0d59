"""Jobs in the test's own process: an engine of threads, and an observer that remembers."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

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
    """Runs tasks as Spark would, in threads. After `cancel` or `give_up` their futures end, and they run on."""

    slots = 2

    def __init__(self, failpoint: Failpoint = nothing) -> None:
        self._failpoint, self._cancelled = failpoint, False
        self._pool = ThreadPoolExecutor(self.slots)
        self._open: set[Future[RangeDone]] = set()
        self._lock = threading.Lock()
        self.tasks: list[RangeTask] = []

    def submit(self, task: RangeTask) -> Future[RangeDone]:
        """See the protocol."""
        answer: Future[RangeDone] = Future()
        self.tasks.append(task)
        with self._lock:
            if self._cancelled:
                answer.set_exception(Cancelled())
                return answer
            self._open.add(answer)
        self._pool.submit(self.copy, task).add_done_callback(lambda copied: self._answer(answer, copied))
        return answer

    def copy(self, task: RangeTask) -> RangeDone:
        """What runs in a slot."""
        return copy_range(task, self._failpoint)

    def _answer(self, answer: Future[RangeDone], copied: Future[RangeDone]) -> None:
        with self._lock:
            if answer not in self._open:
                return
            self._open.discard(answer)
        error = copied.exception()
        if error is None:
            answer.set_result(copied.result())
        else:
            answer.set_exception(error)

    def give_up(self) -> None:
        """See the protocol."""
        with self._lock:
            given_up, self._open = self._open, set()
        for answer in given_up:
            answer.set_exception(Cancelled())

    def cancel(self) -> None:
        """See the protocol."""
        with self._lock:
            self._cancelled = True
        self.give_up()

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

    def moved(self, progress: Mapping[Partition, PartitionProgress]) -> None:
        """See the protocol."""
        self.progress = dict(progress)

    def positions_unknown(self, reason: str) -> None:
        """See the protocol."""

    def answered(self, cut: Range, done: RangeDone) -> None:
        """See the protocol."""
        self.done.append(done)


def backfill(copying: Copying, **request: object) -> tuple[Backfill, Remembering]:
    """A backfill of the flow of `copying`; keywords as of `BackfillRequest`."""
    loaded = config.load(copying.file.path)
    seen = Remembering()
    flow = loaded.flows[copying.file.flow]
    return Backfill(flow, loaded, BackfillRequest(**request), seen, structlog.get_logger()), seen  # type: ignore[arg-type]

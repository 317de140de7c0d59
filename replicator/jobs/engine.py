"""What a job asks of the engine that runs its ranges side by side, and what it reports of its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from replicator.jobs.range_copy import RangeDone, RangeTask
from replicator.jobs.ranges import Range
from replicator.model.errors import Unreachable
from replicator.model.partition import Partition


class Engine(Protocol):
    """Runs tasks, each once at least, side by side in its slots."""

    @property
    def slots(self) -> int:
        """How many tasks run at the same time. A job submits no more than these."""

    def submit(self, task: RangeTask) -> Future[RangeDone]:
        """Run one task in the next slot that is free. Does not wait.

        A task that died with its process is run again, a few times. The future raises Unreachable when it died again
        and again, EngineGone when there is no engine any more, and Cancelled after `cancel`.
        """

    def give_up(self) -> None:
        """End all tasks that run; later ones may be submitted. Does not wait: their futures do, each with an answer or
        an error. The tasks themselves may run on for a moment, which does no harm."""

    def cancel(self) -> None:
        """End all tasks that run, and every later one, from any thread. Does not wait."""


class EngineGone(Unreachable):
    """The engine itself has ended: no task will ever run on it again."""


class Cancelled(Exception):
    """A task was ended because somebody asked for it."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far one partition is, read from the target. `start` and `end` bound what this job copies of it.

    `records` counts those that the flow has committed there since the job began, whoever copied them.
    """

    start: int
    end: int
    position: int
    records: int


class Observer(Protocol):
    """Is told what a job does, for people. All calls come from one thread at a time; none may block for long."""

    def planned(
        self, generation: int, ranges: Sequence[Range], progress: Mapping[Partition, PartitionProgress]
    ) -> None:
        """Note that the generation is open and the ranges are fixed."""

    def moved(self, progress: Mapping[Partition, PartitionProgress]) -> None:
        """Note that the positions were read again, while tasks run or after the last one."""

    def positions_unknown(self, reason: str) -> None:
        """Note that the positions could not be read; the tasks go on."""

    def answered(self, cut: Range, done: RangeDone) -> None:
        """Note that the task of a range has ended."""

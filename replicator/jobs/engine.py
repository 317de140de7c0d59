"""What a job asks of the engine that runs its ranges side by side, and what it reports of its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from replicator.jobs.range_copy import RangeDone, RangeTask
from replicator.jobs.ranges import Range
from replicator.model.errors import Unreachable
from replicator.model.partition import Partition


class Engine(Protocol):
    """Runs the tasks of one round, each once at least, as many at a time as it can."""

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""

    def run(self, tasks: Sequence[RangeTask]) -> list[RangeDone]:
        """Run all of them; returns when all have ended, one answer for each task, in any order.

        A task that died with its process is run again, a few times. Raises Unreachable when the round failed, such as
        by a task that died again and again, EngineGone when there is no engine any more, and Cancelled when `cancel`
        ended the round: some tasks may then run on for a while, which does no harm.
        """

    def cancel(self) -> None:
        """End the round that runs, and every later one, from any thread. Does not wait."""


class EngineGone(Unreachable):
    """The engine itself has ended: no round will ever run on it again."""


class Cancelled(Exception):
    """A round was ended before its tasks were."""


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
        """The generation is open and the ranges are fixed."""

    def round_began(self, number: int, tasks: int) -> None:
        """A round with so many tasks begins."""

    def moved(self, progress: Mapping[Partition, PartitionProgress]) -> None:
        """The positions were read again, while a round runs."""

    def positions_unknown(self, reason: str) -> None:
        """The positions could not be read; the round goes on."""

    def round_ended(self, number: int, ranges: Sequence[Range], done: Sequence[RangeDone]) -> None:
        """All tasks of a round have ended; `done` has one answer for each of its ranges."""

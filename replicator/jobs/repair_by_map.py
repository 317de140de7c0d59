"""What is lost of a partition by the flow's offset map, found after the fence. Used by `repair_policy`.

Nothing that was found before counts: both sides are compared again by the map as they stand then, and what stands on
the target is no loss. So a new producer session, whatever ended the last one, leaves out what is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from replicator.jobs.repair_decision import SPANS_NAMED_MAX, WITHOUT_KEY, Decision
from replicator.jobs.repair_plan import PlannedPartition
from replicator.jobs.repair_questions import OnRead
from replicator.jobs.repair_spans import Missing, runs_of
from replicator.lane.plan import LanePlan
from replicator.lane.ports import Connections
from replicator.model.checkpoint import Position
from replicator.model.partition import Partition
from replicator.offset_map.repair_rule import RepairChoice

SOURCE_HAS_LOST = "the source doesn't have it any more"


class ChoosesByMap(Protocol):
    """Compares both sides of partitions by the map; `proof.map_repair` does it. Used by several threads."""

    def fenced(self, partitions: Collection[Partition]) -> None:
        """Read what is the same for all of these, once the fence stands and nothing was copied yet.

        Raises ReadStopped, Incident, Unreachable, NotAllowed, Retriable.
        """

    def choose(self, at: Partition, on_read: OnRead) -> RepairChoice:
        """Compare a partition, and choose what is copied. Raises as `fenced`."""


@dataclass(frozen=True, slots=True)
class RepairByMap:
    """A repair of these source partitions, of whatever is missing there."""

    partitions: Collection[Partition]
    choices: ChoosesByMap


class RecordsByMap:
    """Implements `repair_policy.LostRecords`."""

    def __init__(self, plan: LanePlan, at: Partition, choices: ChoosesByMap) -> None:
        self._plan, self._at, self._choices = plan, at, choices
        self._target = next(route.target for route in plan.routes if route.source == at)
        self.copied = self.copied_before = 0
        self.left = True
        self.unproven = False

    def begin(self, to: Connections, position: Position, *, lost: bool) -> None:
        """See `repair_policy.LostRecords`."""
        self.left = True
        repairs = to.state.claims().repairs
        own = [it for it in repairs if it.target == self._target and it.generation == self._plan.generation]
        self.copied = sum(end - first for repair in own for first, end in repair.runs)

    def decide(self, on_read: OnRead) -> Decision:
        """See `repair_policy.LostRecords`."""
        choice = self._choices.choose(self._at, on_read)
        self.left, self.unproven = False, bool(choice.unproven or choice.untold)
        return decision_of(choice)


def decision_of(choice: RepairChoice) -> Decision:
    """Return a choice as spans of source offsets, all of which are records."""
    superseded = [offset for offset, why in sorted(choice.left.items()) if why == "superseded"]
    return Decision(
        copied=[Missing(first, end, end - first) for first, end in runs_of(choice.copied)],
        standing=sum(why == "standing" for why in choice.left.values()),
        superseded=len(superseded),
        superseded_at=runs_of(superseded)[:SPANS_NAMED_MAX],
        refused=Counter(_refused(choice)),
    )


def planned_by_map(choice: RepairChoice) -> PlannedPartition:
    """Return what a repair would copy of a partition, if nothing changed before its fence."""
    found = decision_of(choice)
    return PlannedPartition(
        sum(span.records for span in found.copied),
        found.standing,
        found.superseded,
        tuple(found.superseded_at),
        refused=found.refused,
    )


def _refused(choice: RepairChoice) -> Iterable[str]:
    yield from (WITHOUT_KEY for why in choice.left.values() if why == "without_key")
    yield from choice.unproven.values()

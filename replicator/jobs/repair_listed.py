"""Missing records as a reconciliation has listed them, which both sides are asked about. Used by `repair_policy`.

Invariants
- The claims topic is read after the fence, to its end: an earlier repair of some of these records has committed or was
  aborted. So a new producer session, whatever ended the last one, leaves out what is done.
- After the fence both sides are asked about each record, window by window, before it is copied (`repair_decision`):
  what stands on the target is not copied, and in a compacted topic nothing is that could become its key's last record
  wrongly.
"""

from __future__ import annotations

from replicator.jobs.repair_decision import Decision
from replicator.jobs.repair_questions import OnRead, Sides, answered
from replicator.jobs.repair_spans import WINDOW_OFFSETS_MAX, Missing, RepairRequest, Tally, left, windows
from replicator.lane.plan import LanePlan
from replicator.lane.ports import Connections
from replicator.model.checkpoint import Position
from replicator.model.errors import Incident
from replicator.model.partition import Partition


class ListedRecords:
    """Implements `repair_policy.LostRecords`."""

    def __init__(self, plan: LanePlan, at: Partition, request: RepairRequest) -> None:
        """`plan` has a route of the source partition `at`, and `request` a damage."""
        self._at, self._generation = at, plan.generation
        self._target = next(route.target for route in plan.routes if route.source == at)
        self._damage, self._known = request.partitions[at], request.known
        self.unproven = self._damage.unproven
        self._windows: list[list[Missing]] = []
        self._seen = Tally(())
        self.copied = self.copied_before = 0

    @property
    def left(self) -> bool:
        """See `repair_policy.LostRecords`."""
        return bool(self._windows)

    def begin(self, to: Connections, position: Position, *, lost: bool) -> None:
        """See `repair_policy.LostRecords`. Raises Incident `repair_outdated` besides."""
        self._to, self._position = to, position.offset
        damage = self._damage
        if position.offset < damage.source_end or (position.offset > damage.source_end and lost):
            why = f"the flow stood at {damage.source_end} then, and stands at {position.offset} now"
            raise self._outdated(why)
        log = answered(to.target.log_ends([self._target])[self._target])
        if log.end < damage.target_end:
            why = f"{self._target} was compared up to offset {damage.target_end}, and ends at {log.end} now"
            raise self._outdated(why)
        missing = self._left()
        if lost and self.copied:  # its entries are no evidence any more
            raise self._outdated(f"{self._target} has lost records since this repair has copied some")
        self._windows = windows(missing, WINDOW_OFFSETS_MAX)

    def decide(self, on_read: OnRead) -> Decision:
        """See `repair_policy.LostRecords`. Raises as `Sides.decide`."""
        to = self._to
        sides = Sides(to.source, to.target, to.source_records, to.target_records, self._at, self._target)
        found = sides.decide(self._windows[0], self._damage, self._position, None, seen=self._seen, on_read=on_read)
        del self._windows[0]
        return found

    def _left(self) -> list[Missing]:
        """Return missing records that no earlier repair has copied since the reconciliation."""
        repairs = self._to.state.claims().repairs
        done = [repair for repair in repairs if repair.target == self._target and repair not in self._known]
        before = left(self._damage.missing, [repair for repair in done if repair.generation != self._generation])
        missing = left(before, [repair for repair in done if repair.generation == self._generation])
        self.copied_before = self._damage.records - _records(before)
        self.copied = _records(before) - _records(missing)
        self._seen = Tally(missing)
        return missing

    def _outdated(self, why: str) -> Incident:
        at = self._at
        return Incident("repair_outdated", why, topic=at.topic, partition=at.partition)


def _records(missing: list[Missing]) -> int:
    return sum(span.records for span in missing)

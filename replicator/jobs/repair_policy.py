"""The policy of a repair: copies missing records of one partition again, batch by batch, to stand behind all others.

Used by `jobs.repair`, one lane for each partition.

Invariants
- The claims topic is read after the fence, to its end: an earlier repair of some of these records has committed or was
  aborted. So a new producer session, whatever ended the last one, leaves out what is done.
- After the fence both sides are asked about each record, window by window, before it is copied (`repair_decision`):
  what stands on the target is not copied, and in a compacted topic nothing is that could become its key's last record
  wrongly. What stands there is known only once the target's stable end has reached the log's end.
- Records, their `Repair` entry of the claims topic and the position with its new evidence are committed together. The
  position's source offset stays where it is: a repair copies nothing that the flow hasn't passed.
- Only a transaction that is certainly committed moves the repair on; after an abort the batch is read again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from replicator.jobs.range_policy import check_source_end
from replicator.jobs.repair_decision import SPANS_NAMED_MAX, Decision
from replicator.jobs.repair_questions import Sides, answered, check_gone, check_source_start
from replicator.jobs.repair_spans import (
    BATCH_OFFSETS_MAX,
    WINDOW_OFFSETS_MAX,
    Damage,
    Missing,
    RepairRequest,
    Tally,
    batches,
    left,
    windows,
)
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Progress, read_plan
from replicator.lane.ports import Connections
from replicator.lane.positions import LanePositions, check_acks
from replicator.model.errors import Abortable, Incident, ReplicatorError
from replicator.model.partition import LogEnds, Partition, Seek, Span
from replicator.planes.contract import Copied, ReadPlan, ReadStopped
from replicator.state.claims import Repair

REPAIRABLE = ("target_lost_data", "target_records_hidden")
"""Incidents of a target that lost records: the decision that they wait for is this repair."""


class RepairPolicy:
    """Implements `lane.policy.Policy` for the one partition of a repair's lane."""

    waits = False
    copies_live = False
    rate_max: float | None = None

    def __init__(
        self, plan: LanePlan, at: Partition, request: RepairRequest, log: structlog.stdlib.BoundLogger
    ) -> None:
        """`plan` has a route of the source partition `at`, and `request` a damage."""
        self._plan, self._at, self._log = plan, at, log
        self._route = next(route for route in plan.routes if route.source == at)
        self._damage: Damage = request.partitions[at]
        self._known = request.known
        self._lost: Incident | None = None  # the target lacks records that the position covers
        self._to: Connections | None = None
        self._windows: list[list[Missing]] | None = None  # that are not decided yet; None: not yet known
        self._batches: list[list[Span]] = []  # of the window that was decided last, the first is copied now
        self._tally, self._seen = Tally(()), Tally(())  # of what is copied; of what the source has when it is asked
        self._until = 0  # how far the plane was asked to read
        self.on_read: Callable[[str, int, int], None] = lambda side, done, of: None
        """Told how many offsets of a side were read, of how many."""
        self.copied = 0  # by this repair, in earlier sessions too
        self.copied_before = 0  # by other repairs since the reconciliation
        self.standing = 0  # not copied: on the target already
        self.superseded = 0  # not copied: a later record of the key exists
        self.superseded_at: list[Span] = []

    def first_offset(self, at: Partition) -> int | None:
        """None: a repair never begins a partition."""
        return None

    def repairs(self, incident: Incident) -> bool:
        """Whether the target lost records: what the position covers is made whole by this repair."""
        if incident.name not in REPAIRABLE:
            return False
        if self._lost is None:
            self._log.warning("incident_repaired", **incident.facts)
            self._lost = incident
        return True

    def opened(self, to: Connections, positions: LanePositions) -> None:
        """A new session knows nothing of the last one's progress: it stands in the claims topic."""
        self._to, self._windows, self._batches = to, None, []
        self.standing = self.superseded = 0
        self.superseded_at = []

    def read_plans(self, positions: LanePositions) -> dict[Partition, ReadPlan]:
        """The rest of the current batch, or nothing once all are copied, or when the lane was asked to stop.

        Raises Incident: `repair_outdated`, `target_transaction_open`, `source_records_gone`, `repair_record_gone`.
        """
        at = self._at
        if at not in positions.copying:
            return {}
        if self._windows is None:
            self._check(positions)
            self._windows = windows(self._left(), WINDOW_OFFSETS_MAX)
        try:
            while not self._batches and self._windows:
                self._decide(self._windows[0], positions)
                del self._windows[0]
        except ReadStopped:
            return {}
        if not self._batches:
            return {}
        batch = self._batches[0]
        check_source_start(self._connected.source, at, batch[0][0])
        asked = read_plan(positions.entries[at], Seek(batch[0][0], -1), batch[-1][1], batch)
        self._until = asked.until or 0
        return {at: asked}

    def reached(self, positions: LanePositions) -> dict[Partition, int]:
        """Where the rest of the current batch begins."""
        return {self._at: self._batches[0][0][0]} if self._batches else {}

    def progress(
        self, positions: LanePositions, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek], now_ms: int
    ) -> Progress:
        """The position with its new evidence, and the entry that says what was copied again."""
        at, done = self._at, copied.get(self._at)
        position = positions.entries[at].position
        if done is None or position is None:
            return Progress()
        if not done.records:  # the first one can't be carried; a transaction without positions would be none
            return Progress({at: position})
        if done.next_target - done.first_target != done.records:
            raise Abortable(f"{done.records} records got target offsets {done.first_target} to {done.next_target - 1}")
        if self._lost is None:
            check_acks(at, position, done)
        target, generation = self._route.target, self._plan.generation
        ids = position.evidence.source_topic_id, position.evidence.target_topic_id
        entry = Repair(target, at, tuple(done.runs), done.first_target, generation, now_ms, *ids)
        return Progress({at: positions.repaired(at, done, now_ms)}, [entry.encode()])

    def committed(self, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek]) -> bool:
        """Cut off what was copied; whether the next batch is to be read.

        Raises Incident: `source_truncated`, `repair_record_gone`.
        """
        if not self._batches:
            return False
        done, end = copied.get(self._at), ends.get(self._at)
        if done is not None and done.records:
            self._note(done)
        if done is not None and done.blocked is not None:
            return False
        reached = max(done.next_offset if done is not None else 0, end.offset if end is not None else 0)
        batch = self._batches[0]
        batch_end = batch[-1][1]
        self._batches[0] = [(max(first, reached), end_) for first, end_ in batch if end_ > reached]
        if self._batches[0]:
            if end is not None and reached < self._until:
                check_source_end(self._connected.source, self._at, self._until)
            return False
        del self._batches[0]
        check_gone(self._tally, batch_end, self._at)
        return bool(self._batches or self._windows)

    def done(self, positions: LanePositions, ends: Mapping[Partition, Seek]) -> bool:
        """Whether nothing is left to be copied, or the plane has read as far as it was asked to."""
        if self._at not in positions.copying or self._windows is None:
            return False
        if not self._batches:
            return not self._windows
        return self._at in ends and ends[self._at].offset >= self._until

    def _note(self, done: Copied) -> None:
        self._tally.add(done.runs)
        self.copied += done.records
        self._lost = None  # the position covers what the target has
        self._log.info("copied_again", records=done.records, first_target=done.first_target)

    def _check(self, positions: LanePositions) -> None:
        """Whether what the reconciliation found is still so."""
        damage, position, target = self._damage, positions.entries[self._at].position, self._route.target
        assert position is not None, "a partition that is copied has one"
        if position.offset < damage.source_end or (position.offset > damage.source_end and self._lost is not None):
            why = f"the flow stood at {damage.source_end} then, and stands at {position.offset} now"
            raise self._incident("repair_outdated", why, "stop the flow and reconcile again")
        log = answered(self._connected.target.log_ends([target])[target])
        if log.end < damage.target_end:
            why = f"{target} was compared up to offset {damage.target_end}, and ends at {log.end} now"
            raise self._incident("repair_outdated", why, "reconcile again")
        if log.end > log.start:
            self._check_stable(target, log)

    def _check_stable(self, target: Partition, log: LogEnds) -> None:
        """What a transaction that stays open hides may be what is missing, and no reader would see what is written
        behind it."""
        start = {target: max(log.end - 1, log.start)}
        last = self._connected.target.end_records(start, {target: log.end})[target]
        if isinstance(last, ReplicatorError):
            raise last
        if last.stable < log.end:
            raise self._incident("target_transaction_open", f"{target} is stable up to {last.stable} of {log.end}")

    def _left(self) -> list[Missing]:
        """Missing records that no earlier repair has copied since the reconciliation."""
        route, generation = self._route, self._plan.generation
        repairs = self._connected.state.claims().repairs
        done = [repair for repair in repairs if repair.target == route.target and repair not in self._known]
        before = left(self._damage.missing, [repair for repair in done if repair.generation != generation])
        missing = left(before, [repair for repair in done if repair.generation == generation])
        self.copied_before = self._damage.records - _records(before)
        self.copied = _records(before) - _records(missing)
        self._seen = Tally(missing)
        return missing

    def _decide(self, window: list[Missing], positions: LanePositions) -> None:
        """Ask both sides about the records of a window, and note what is to be copied of it.

        Raises as `Sides.decide`.
        """
        position, to = positions.entries[self._at].position, self._connected
        assert position is not None, "a partition that is copied has one"
        sides = Sides(to.source, to.target, to.source_records, to.target_records, self._at, self._route.target)
        compacted = self._damage.compacted
        self._note_decision(
            sides.decide(window, position.offset, None, compacted=compacted, seen=self._seen, on_read=self.on_read)
        )

    def _note_decision(self, found: Decision) -> None:
        self.standing += found.standing
        self.superseded += found.superseded
        self.superseded_at += found.superseded_at[: SPANS_NAMED_MAX - len(self.superseded_at)]
        copied = sum(span.records for span in found.copied)
        self._log.info("repair_decided", copied=copied, standing=found.standing, superseded=found.superseded)
        self._tally = Tally(found.copied)
        together_max = min(BATCH_OFFSETS_MAX, self._plan.flow.commit.records_max)
        self._batches = batches(found.copied, together_max, record_bytes=found.record_bytes)

    @property
    def _connected(self) -> Connections:
        assert self._to is not None, "opened comes first"
        return self._to

    def _incident(self, name: str, why: str, advice: str = "") -> Incident:
        return Incident(name, why, topic=self._at.topic, partition=self._at.partition, advice=advice)


def _records(missing: list[Missing]) -> int:
    return sum(span.records for span in missing)

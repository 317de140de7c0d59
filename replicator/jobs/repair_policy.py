"""The policy of a repair: copies missing records of one partition again, batch by batch, to stand behind all others.

Used by `jobs.repair`, one lane for each partition. Which records are lost is found after the fence, in each producer
session anew: of those that a reconciliation has listed (`repair_listed`), or by the offset map (`repair_by_map`).

Invariants
- What stands on the target is known only once its stable end has reached the log's end.
- Records, their `Repair` entry of the claims topic and the position with its new evidence are committed together. The
  position's source offset stays where it is: a repair copies nothing that the flow hasn't passed.
- Only a transaction that is certainly committed moves the repair on; after an abort the batch is read again from there.
- Of a target that has lost records only what it had lost before this repair is made whole. What it loses meanwhile may
  be what was copied, or what stood there when it was decided what isn't: that stays an incident.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from replicator.jobs.range_policy import check_source_end
from replicator.jobs.repair_decision import SPANS_NAMED_MAX, Decision
from replicator.jobs.repair_questions import OnRead, check_gone, check_source_start, check_stable
from replicator.jobs.repair_spans import BATCH_OFFSETS_MAX, Tally, batches
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Progress, read_plan
from replicator.lane.ports import Connections
from replicator.lane.positions import LanePositions, check_acks
from replicator.model.checkpoint import Position
from replicator.model.errors import Abortable, Incident
from replicator.model.partition import Partition, Seek, Span
from replicator.planes.contract import Copied, ReadPlan, ReadStopped
from replicator.state.claims import Repair

DECIDED_AGAIN_MAX = 30
"""How often in a row a loss of the target is found, and nothing can be committed that makes it whole."""
REPAIRABLE = ("target_lost_data", "target_records_hidden")
"""Incidents of a target that lost records: the decision that they wait for is this repair."""


class LostRecords(Protocol):
    """What one partition has lost.

    Attributes:
        copied: how many records this repair had copied before this session.
        copied_before: how many other repairs have copied since the reconciliation.
        left: whether there is more to decide about.
        unproven: whether more may be lost than can be decided about.
    """

    copied: int
    copied_before: int
    unproven: bool

    @property
    def left(self) -> bool: ...

    def begin(self, to: Connections, position: Position, *, lost: bool) -> None:
        """Begin anew in a session, after its fence; the target's stable end has reached the log's end.

        Args:
            position: the flow's.
            lost: whether the target lacks records that the position covers, as an incident says.

        Raises Incident, Retriable, Unreachable, NotAllowed.
        """

    def decide(self, on_read: OnRead) -> Decision:
        """Decide about the next ones. Raises ReadStopped, and as `begin`."""


class RepairPolicy:
    """Implements `lane.policy.Policy` for the one partition of a repair's lane."""

    waits = False
    copies_live = False
    reads_on = False
    decides = False
    rate_max: float | None = None

    def __init__(self, plan: LanePlan, at: Partition, lost: LostRecords, log: structlog.stdlib.BoundLogger) -> None:
        """`plan` has a route of the source partition `at`."""
        self._plan, self._at, self._log = plan, at, log
        self._route = next(route for route in plan.routes if route.source == at)
        self._found = lost
        self._lost: Incident | None = None  # the target lacks records that the position covers
        self._told = False  # of that, since this session's decisions were begun
        self._makes_whole = self._is_whole = False  # the target had lost some; the position covers no more than it has
        self._decided_again = 0  # since something was committed
        self._has_written = False  # something of this repair may be committed
        self._to: Connections | None = None
        self._begun = False  # in this session
        self._batches: list[list[Span]] = []  # of what was decided last, the first is copied now
        self._tally = Tally(())
        self._until = 0  # how far the plane was asked to read
        self.on_read: Callable[[str, int, int], None] = lambda side, done, of: None
        """Told how many offsets of a side were read, of how many."""
        self.copied = 0  # by this repair, in earlier sessions too
        self.copied_before = 0  # by other repairs since the reconciliation
        self.standing = 0  # not copied: on the target already
        self.superseded = 0  # not copied: a later record of the key exists
        self.superseded_at: list[Span] = []
        self.refused = Counter[str]()  # not copied: why it can't be told that they are lost

    @property
    def is_half_done(self) -> bool:
        """Whether the target had lost records that the position covers, and some of them may be there again, and others
        not: the position says nothing of those any more."""
        return self._makes_whole and self._has_written and not self.is_finished

    @property
    def is_finished(self) -> bool:
        """Whether it has decided about all that was lost, and copied what is to be copied; not where more may be
        lost."""
        return self._begun and not self._batches and not self._found.left and not self._found.unproven

    def first_offset(self, at: Partition) -> int | None:
        """Return None: a repair never begins a partition."""
        return None

    def repairs(self, incident: Incident) -> bool:
        """Return whether the target lost records: what the position covers is made whole by this repair."""
        if incident.name not in REPAIRABLE or (self._has_written and (self._is_whole or not self._makes_whole)):
            return False
        self._decided_again += self._begun
        if self._decided_again > DECIDED_AGAIN_MAX:
            return False
        if self._lost is None:
            self._log.warning("incident_repaired", **incident.facts)
        self._lost, self._told, self._makes_whole = incident, True, True
        self._begun, self._batches = False, []  # what was decided before may be true no longer
        return True

    def opened(self, to: Connections, positions: LanePositions) -> None:
        """Begin anew: a new session knows nothing of the last one's progress, which stands in the claims topic."""
        self._to, self._begun, self._batches = to, False, []
        if not self._told:  # at the start of this session: it was made whole by a commit whose reply was lost
            self._lost = None
        self._forget_decisions()

    def read_plans(self, positions: LanePositions) -> dict[Partition, ReadPlan]:
        """Plan to read the rest of the current batch, or nothing once all are copied, or when the lane was asked to
        stop.

        Raises Incident: `target_transaction_open`, `source_records_gone`, and those of `LostRecords`.
        """
        at = self._at
        if at not in positions.copying:
            return {}
        try:
            if not self._begun:
                self._begin(positions)
            while not self._batches and self._found.left:
                self._note_decision(self._found.decide(self.on_read))
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
        """Say where the rest of the current batch begins."""
        return {self._at: self._batches[0][0][0]} if self._batches else {}

    def progress(
        self, positions: LanePositions, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek], now_ms: int
    ) -> Progress:
        """Return the position with its new evidence, and the entry that says what was copied again."""
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
        self._has_written = True
        target, generation = self._route.target, self._plan.generation
        ids = position.evidence.source_topic_id, position.evidence.target_topic_id
        runs, lost_end = tuple(done.runs), self._makes_whole
        entry = Repair(target, at, runs, done.first_target, generation, now_ms, *ids, lost_end=lost_end)
        return Progress({at: positions.repaired(at, done, now_ms)}, [entry.encode()])

    def on_committed(self, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek]) -> bool:
        """Cut off what was copied; return whether the next batch is to be read.

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
                check_source_end(self._connected.source, self._at, self._until, end.leader_epoch)
            return False
        del self._batches[0]
        check_gone(self._tally, batch_end, self._at)
        return bool(self._batches or self._found.left)

    def done(self, positions: LanePositions, ends: Mapping[Partition, Seek]) -> bool:
        """Return whether nothing is left to be copied, or the plane has read as far as it was asked to."""
        if self._at not in positions.copying or not self._begun:
            return False
        if not self._batches:
            return not self._found.left
        return self._at in ends and ends[self._at].offset >= self._until

    def _note(self, done: Copied) -> None:
        self._tally.add(done.runs)
        self.copied += done.records
        self._decided_again = 0
        self._lost, self._is_whole = None, True  # the position covers what the target has
        self._log.info("copied_again", records=done.records, first_target=done.first_target)

    def _begin(self, positions: LanePositions) -> None:
        """Find what was lost, and make batches of it. Raises as `LostRecords.begin`, and Incident
        `target_transaction_open`.
        """
        position, to = positions.entries[self._at].position, self._connected
        assert position is not None, "a partition that is copied has one"
        check_stable(to.target, self._route.target, self._at)
        self._told = False
        self._forget_decisions()
        self._found.begin(to, position, lost=self._lost is not None)
        self.copied, self.copied_before = self._found.copied, self._found.copied_before
        self._begun = True

    def _forget_decisions(self) -> None:
        self.standing = self.superseded = 0
        self.superseded_at, self.refused = [], Counter()

    def _note_decision(self, found: Decision) -> None:
        self.standing += found.standing
        self.refused.update(found.refused)
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

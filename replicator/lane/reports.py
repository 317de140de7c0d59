"""Incidents that lanes find, written into the flow's claims topic as `occurrences`, where `incident`, `status` and
`plan` read them.

A refused record, a foreign one, a transaction of somebody else: none of these can be seen from outside; and a
decision about any names its occurrence. Kept by `lane.memory` over all producer sessions; `lane.start` and
`lane.session` note what they find, `lane.decisions` what was decided. What is known of each partition's incidents is
in `incident_report`.

Invariants
- An occurrence is opened and closed in a transaction of its lane.
- It is closed with the transaction with which the partition is admitted again, or, where one record is the cause, in
  the one whose position passes that record. A cause that is still there is found anew. Where it can't be, since only
  the log's end has shown that the source was cut, the occurrence stops its partition, and nothing but a decision, or a
  position that was set, ends it.
- Invariant 12: the end that says where a partition begins is written with that position, and never without: where the
  partition is kept out of the transaction, its occurrence stays open, and its decision due.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from replicator.lane.incident_report import UNKNOWN, IncidentReport, Topics
from replicator.lane.partition import LanePartition, Stopped
from replicator.lane.plan import LanePlan
from replicator.model.checkpoint import Position
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.state.occurrences import Occurrence

Entries = list[tuple[bytes, bytes]]


class Reports:
    """Those of one lane."""

    def __init__(self, partitions: Mapping[Partition, LanePartition]) -> None:
        self._partitions = partitions
        # In the open transaction: records, and of which reports, as these were before.
        self._written: dict[Partition, Sequence[Occurrence]] = {}
        self._before: dict[Partition, IncidentReport] = {}
        self._new: dict[Partition, Incident | None] = {}
        self._pending, self._again_ms = False, math.inf  # whether there is something to write, and from when on

    def begin(self, open_: Mapping[Partition, Sequence[Occurrence]]) -> None:
        """Take what a producer session has read in the claims topic, by target partition."""
        self.none()
        for partition in self._partitions.values():
            partition.report = partition.report.read(open_.get(partition.route.target, ()))

    def due(self, now_ms: int) -> bool:
        """Tell whether there is something to write."""
        return self._pending or now_ms >= self._again_ms

    def note(self, partition: LanePartition, incident: Incident, topics: Topics = UNKNOWN) -> None:
        """Have the incident written that stops a partition. `topics`: what it was found of, where that is known."""
        partition.report = partition.report.noted(incident, topics)
        self._pending = self._pending or partition.report.new is not None

    def decided(self, at: Partition, closed: Occurrence) -> None:
        """Have the end of an occurrence written with the positions of admitted partitions."""
        self._partitions[at].report = self._partitions[at].report.decided(closed)
        self._pending = True

    def entries(self, plan: LanePlan, admitted: Collection[Partition], now_ms: int) -> Entries:
        """Make records for the claims topic: what was noted, and the ends of what no longer stops partitions.

        What was noted and isn't known to be committed stays: it is written again where it stops its partition then.
        """
        self.none()
        limits = plan.flow.limits
        first_ms = limits.discovery_interval_ms
        pauses_ms = first_ms, max(first_ms, limits.recommit_interval_ms)
        for at, partition in self._partitions.items():
            if at not in admitted:
                partition.report = partition.report.not_begun()
            elif partition.report.new is not None:
                partition.report = partition.report.dropped()
            report = partition.report
            sending = report.sending(now_ms, _stops(partition))
            if sending.new is not None or report.ended is not None or (report.open and at in admitted):
                begins = partition.position if at in admitted else None
                self._written[at] = sending.to_write(plan, partition.route, now_ms, admitted=begins)
                self._before[at], self._new[at] = report, sending.new
                partition.report = report.sent(sending, now_ms, pauses_ms)
        self._pending = False
        self._wait()
        return self._encoded()

    def _wait(self) -> None:
        """Find out when what could not be written is due."""
        found = [it for it in self._partitions.values() if it.report.new is not None and it.report.new == _stops(it)]
        self._again_ms = min((it.report.again_ms for it in found), default=math.inf)

    def of_decision(self, at: Partition, closed: Occurrence) -> Entries:
        """Make the record of the end of one occurrence, which goes with the position that the decision moves."""
        self.none()
        self._written = {at: [closed]}
        return self._encoded()

    def passed(self, plan: LanePlan, positions: Mapping[Partition, Position], now_ms: int) -> Entries:
        """Make the ends of what single records have caused that these positions pass."""
        self.none()
        for at, position in positions.items():
            report, before = self._partitions[at].report, self._partitions[at].position
            if report.open and before is not None and (ends := report.passed(plan, before, position.offset, now_ms)):
                self._written[at] = ends
        return self._encoded()

    def none(self) -> None:
        """Note that nothing of this is in the open transaction."""
        self._written, self._before, self._new = {}, {}, {}

    def _encoded(self) -> Entries:
        return [it.encode() for occurrences in self._written.values() for it in occurrences]

    def again(self) -> None:
        """Have all of that written with the next transaction: something else has kept the last one back."""
        for at, report in self._before.items():
            self._partitions[at].report = report
        self._pending = self._pending or bool(self._before)
        self.none()

    def on_committed(self) -> None:
        """Note that the records that were made last are certainly committed."""
        written, new = self._written, self._new
        self.none()
        for at, occurrences in written.items():
            partition = self._partitions[at]
            partition.report = partition.report.after_commit(occurrences, new.get(at))
        if new:
            self._wait()


def _stops(partition: LanePartition) -> Incident | None:
    return partition.state.incident if isinstance(partition.state, Stopped) else None

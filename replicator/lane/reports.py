"""Incidents that lanes find, written into the flow's claims topic as `occurrences`, where `incident`, `status` and
`plan` read them.

A refused record, a foreign one, a transaction of somebody else: none of these can be seen from outside; and a
decision about any names its occurrence. Kept by `lane.memory` over all producer sessions; `lane.start` and
`lane.session` note what they find, `lane.decisions` what was decided. What is known of each partition's incidents is
in `incident_report`.

Invariants
- An occurrence is opened and closed in a transaction of its lane.
- It is closed with the transaction with which the partition is admitted again, or, where one record is the cause, in
  the one whose position passes that record. A cause that is still there is found anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from replicator.lane.incident_report import UNKNOWN, Topics
from replicator.lane.partition import LanePartition
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
        self._written: dict[Partition, Sequence[Occurrence]] = {}  # in the open transaction
        self.pending = False  # whether there is something to write

    def begin(self, open_: Mapping[Partition, Sequence[Occurrence]]) -> None:
        """Take what a producer session has read in the claims topic, by target partition."""
        self._written = {}
        for partition in self._partitions.values():
            partition.report = partition.report.read(open_.get(partition.route.target, ()))

    def note(self, partition: LanePartition, incident: Incident, topics: Topics = UNKNOWN) -> None:
        """Have the incident written that stops a partition. `topics`: what it was found of, where that is known."""
        partition.report = partition.report.noted(incident, topics)
        self.pending = self.pending or partition.report.new is not None

    def decided(self, at: Partition, closed: Occurrence) -> None:
        """Have the end of an occurrence written with the positions of admitted partitions."""
        self._partitions[at].report = self._partitions[at].report.decided(closed)
        self.pending = True

    def entries(self, plan: LanePlan, admitted: Collection[Partition], now_ms: int) -> Entries:
        """Make records for the claims topic: what was noted, and the ends of what no longer stops partitions."""
        self._written = {}
        for at, partition in self._partitions.items():
            report = partition.report
            if report.new is not None or report.ended is not None or (report.open and at in admitted):
                self._write(at, report.to_write(plan, partition.route, now_ms, admitted=at in admitted))
                partition.report = report.writing()
        self.pending = False
        return self._encoded()

    def of_decision(self, at: Partition, closed: Occurrence) -> Entries:
        """Make the record of the end of one occurrence, which goes with the position that the decision moves."""
        self._written = {at: [closed]}
        return self._encoded()

    def passed(self, plan: LanePlan, positions: Mapping[Partition, Position], now_ms: int) -> Entries:
        """Make the ends of what single records have caused that these positions pass."""
        self._written = {}
        for at, position in positions.items():
            if (report := self._partitions[at].report).open:
                self._write(at, report.passed(plan, position.offset, now_ms))
        return self._encoded()

    def _write(self, at: Partition, occurrences: Sequence[Occurrence]) -> None:
        if occurrences:
            self._written[at] = occurrences

    def _encoded(self) -> Entries:
        return [it.encode() for occurrences in self._written.values() for it in occurrences]

    def on_committed(self) -> None:
        """Note that the records that were made last are certainly committed."""
        written, self._written = self._written, {}
        for at, occurrences in written.items():
            partition = self._partitions[at]
            partition.report = partition.report.after_commit(occurrences)

"""Incidents that only a lane can find, written into the flow's claims topic, where `status` and `plan` read them.

A refused record, a foreign one, a transaction of somebody else: none of these can be judged from outside. Kept by
`lane.memory` over all producer sessions; `lane.start` and `lane.session` note what they find. What is known of each
partition's report is in `incident_report`.

Invariants
- A report is written in a transaction of its lane.
- It is closed by the transaction with which the partition is admitted again. A cause that is still there is found and
  reported anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from replicator.lane.partition import LanePartition
from replicator.lane.plan import LanePlan
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.state.claims import Report


class Reports:
    """Those of one lane."""

    def __init__(self, partitions: Mapping[Partition, LanePartition]) -> None:
        self._partitions = partitions
        self.pending = False  # whether there is something to write

    def begin(self, stand: Mapping[Partition, Report]) -> None:
        """Take what a producer session has read in the claims topic, by target partition."""
        for partition in self._partitions.values():
            partition.report = replace(partition.report, stands=stand.get(partition.route.target))

    def note(self, partition: LanePartition, incident: Incident) -> None:
        """Have the incident written that stops a partition."""
        partition.report = partition.report.noted(incident)
        self.pending = self.pending or partition.report.new is not None

    def entries(self, plan: LanePlan, admitted: Collection[Partition], now_ms: int) -> list[tuple[bytes, bytes]]:
        """Make records for the claims topic: what was noted, and the end of what no longer stops these partitions."""
        found: list[Report] = []
        for at, partition in self._partitions.items():
            known, report = partition.report, None
            if known.new is not None:
                report = _report(plan, partition, known.new, now_ms)
            elif known.stands is not None and at in admitted:
                report = known.stands.closed(plan.generation, plan.owner, now_ms)
            if report is not None or known.sent is not None:
                partition.report = known.sending(report)
            found += [report] if report is not None else []
        self.pending = False
        return [report.encode() for report in found]

    def committed(self) -> None:
        """Note that what `entries` returned last is certainly committed."""
        for partition in self._partitions.values():
            partition.report = partition.report.committed()


def _report(plan: LanePlan, partition: LanePartition, incident: Incident, now_ms: int) -> Report:
    return Report(
        target=partition.route.target,
        source=partition.route.source,
        name=incident.name,
        detail=incident.detail,
        offset=incident.offset,
        stands=True,
        generation=plan.generation,
        owner=plan.owner,
        at_ms=now_ms,
    )

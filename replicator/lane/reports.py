"""Incidents that only a lane can find, written into the flow's claims topic, where `status` and `plan` read them.

A refused record, a foreign one, a transaction of somebody else: none of these can be judged from outside. Kept by
`lane.memory` over all producer sessions; `lane.start` and `lane.session` note what they find.

Invariants
- A report is written in a transaction of its lane, and is tried once for each incident: the flow goes on without it.
- It is closed by the transaction with which the partition is admitted again. A cause that is still there is found and
  reported anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replicator.lane.partition import LanePartition
from replicator.lane.plan import LanePlan
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.state.claims import Report


class Reports:
    """Of one lane, by target partition."""

    def __init__(self) -> None:
        self._open: dict[Partition, Report] = {}  # as they stand in the claims topic
        self._tried: dict[Partition, Incident] = {}
        self._new: dict[Partition, tuple[Route, Incident]] = {}
        self._written: list[Report] = []  # in the transaction under way

    def begin(self, stand: Mapping[Partition, Report]) -> None:
        """A producer session has read the claims topic."""
        self._open = dict(stand)

    def note(self, route: Route, incident: Incident) -> None:
        """An incident stops a partition."""
        stands = self._open.get(route.target)
        if self._tried.get(route.target) == incident or (stands is not None and stands.says(incident)):
            return
        self._new[route.target] = (route, incident)

    @property
    def pending(self) -> bool:
        """Whether there is something to write."""
        return bool(self._new)

    def entries(self, plan: LanePlan, admitted: Iterable[LanePartition], now_ms: int) -> list[tuple[bytes, bytes]]:
        """Records for the claims topic: what was noted, and the end of what no longer stops these partitions."""
        self._tried |= {target: incident for target, (_, incident) in self._new.items()}
        found = [
            Report(
                target=route.target,
                source=route.source,
                name=incident.name,
                detail=incident.detail,
                offset=incident.offset,
                stands=True,
                generation=plan.generation,
                owner=plan.owner,
                at_ms=now_ms,
            )
            for route, incident in self._new.values()
        ]
        for partition in admitted:
            target = partition.route.target
            if target in self._open and target not in self._new:
                found.append(self._open[target].closed(plan.generation, plan.owner, now_ms))
        self._new, self._written = {}, found
        return [report.encode() for report in found]

    def committed(self) -> None:
        """What `entries` returned last is certainly committed."""
        for report in self._written:
            if report.stands:
                self._open[report.target] = report
            else:
                self._open.pop(report.target, None)
                self._tried.pop(report.target, None)
        self._written = []

"""What the claims topic says of an incident that only a lane can find, for one partition. Pure; a value of
`LanePartition`.

Invariant: a report is tried once for each incident: the flow goes on without it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from replicator.model.errors import Incident
from replicator.state.claims import Report


@dataclass(frozen=True, slots=True)
class IncidentReport:
    """`stands` is what the claims topic has, `new` what has to be written there, `sent` what the transaction under way
    writes, and `tried` the incident that was reported last, or could not be."""

    stands: Report | None = None
    new: Incident | None = None
    sent: Report | None = None
    tried: Incident | None = None

    def noted(self, incident: Incident) -> IncidentReport:
        """Have an incident written, unless it is there or was tried before."""
        if self.tried == incident or (self.stands is not None and self.stands.says(incident)):
            return self
        return replace(self, new=incident)

    def sending(self, report: Report | None) -> IncidentReport:
        """Put into a transaction what there was to write: `report`, or nothing."""
        return replace(self, new=None, sent=report, tried=self.new or self.tried)

    def committed(self) -> IncidentReport:
        """Take that transaction as certainly committed."""
        if self.sent is None:
            return self
        if self.sent.stands:
            return replace(self, stands=self.sent, sent=None)
        return replace(self, stands=None, sent=None, tried=None)


NOT_REPORTED = IncidentReport()

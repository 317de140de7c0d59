"""How one partition is read and written after the target has refused a record of it. Pure; a value of `LanePartition`.

A refused record stops its partition before it; the other partitions go on with the next transaction. Kafka names the
record (KIP-467) where it checks single records, but librdkafka passes the name on only where there are several. Where
none comes, all records of the batch are suspects: what is before them is committed, then they are written a part at a
time, each part acknowledged before the next, so that each round leaves a sixteenth of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.planes.contract import Refusal

PARTS = 16
TIMESTAMP_BOUNDS = "target_timestamp_bounds"
"""The incident of a record that is refused for its timestamp: mostly it is found before the record is written, by the
topic's configs as they were listed last."""


@dataclass(frozen=True, slots=True)
class RefusalSearch:
    """What is known of a refused record of one partition.

    `until` is the source offset up to which (exclusive) it is read: before the record that `incident` names, or before
    the suspects; None: on and on. `every_ack`: each record's acknowledgement is asked for. `together`: so many records
    are written together once the suspects' turn has come; 0: as many as come.
    """

    until: int | None = None
    incident: Incident | None = None
    every_ack: bool = False
    together: int = 0

    @property
    def flush_every(self) -> int:
        """How many records are written together now; 0: as many as come."""
        return self.together if self.until is None else 0

    def noted(self, refusal: Refusal, route: Route) -> RefusalSearch:
        """Take in what was refused: the record itself, suspects, or neither, where acknowledgements weren't asked
        for."""
        suspects = refusal.suspects
        if not suspects:
            return replace(self, every_ack=True)
        if len(suspects) == 1:
            return replace(self, until=suspects[0], incident=_incident(suspects[0], refusal, route), every_ack=True)
        return RefusalSearch(suspects[0], None, every_ack=True, together=max(1, len(suspects) // PARTS))

    def stops_before(self, incident: Incident) -> RefusalSearch:
        """Let everything before a record that can't be read be copied; then `incident` stops the partition."""
        return replace(self, until=incident.offset, incident=incident)

    def reached(self, offset: int | None) -> bool:
        """Tell whether all records before the bound are committed."""
        return self.until is not None and offset is not None and offset >= self.until

    def without_bound(self) -> RefusalSearch:
        """Read on: the bound was reached, and only kept the suspects out."""
        return replace(self, until=None, incident=None)

    def passed(self) -> RefusalSearch:
        """Ask for single acknowledgements no more once records are committed, where no bound is left."""
        return NOT_REFUSED if self.until is None else self


NOT_REFUSED = RefusalSearch()


def _incident(offset: int, refusal: Refusal, route: Route) -> Incident:
    at: Partition = route.source
    if not refusal.too_large:
        name = TIMESTAMP_BOUNDS if refusal.for_timestamp else "record_refused"
        return Incident(name, refusal.detail, topic=at.topic, partition=at.partition, offset=offset)
    detail = refusal.detail
    if refusal.bytes:
        detail += f"; the record has {refusal.bytes} bytes in a batch of its own, uncompressed"
    if route.message_bytes_max:
        detail += f"; max.message.bytes of topic {route.target.topic!r} was {route.message_bytes_max} when last listed"
    return Incident("record_too_large", detail, topic=at.topic, partition=at.partition, offset=offset)

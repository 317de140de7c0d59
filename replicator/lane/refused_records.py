"""Which records the target refused, and how the next transaction finds out which ones exactly. Pure.

A refused record stops its partition before it; the other partitions go on with the next transaction. Kafka names the
record (KIP-467) where it checks single records, but librdkafka passes the name on only where there are several. Where
none comes, all records of the batch are suspects: what is before them is committed, then they are written a part at a
time, each part acknowledged before the next, so that each round leaves a sixteenth of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from replicator.model.errors import Incident, Retriable
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.planes.contract import Refusal

PARTS = 16


@dataclass(frozen=True, slots=True)
class Bound:
    """Where the partition is read to next: before the refused record (`incident`), or before its suspects."""

    until: int
    incident: Incident | None = None


class RefusedRecords:
    """What is known of refused records, by source partition, over all producer sessions of a lane."""

    def __init__(self) -> None:
        self._bounds: dict[Partition, Bound] = {}
        self._every_ack: set[Partition] = set()
        self._parts: dict[Partition, int] = {}  # records that are written together
        self._all = False
        self.compress = False  # see `note`

    def note(
        self, refusals: Mapping[Partition, Refusal], *, compressed: bool = True, routes: Iterable[Route] = ()
    ) -> None:
        """Note that a transaction was refused. Without names the next one asks for each record's acknowledgement.

        `routes` of the lane say what their targets take.

        Raises Retriable if records were too large that weren't `compressed`: the source may hold them so. Brokers count
        what is sent. From the next producer session on the lane compresses; doing so from the beginning would cost each
        flow 6 % (lz4) to 20 % (zstd) of its CPU.
        """
        large = [at for at, refusal in refusals.items() if refusal.too_large]
        if large and not compressed:
            self.compress = True
            raise Retriable(f"{', '.join(map(str, sorted(large)))}: too large; records are sent compressed from now on")
        self._all, by_source = self._all or not refusals, {route.source: route for route in routes}
        for at, refusal in refusals.items():
            self._every_ack.add(at)
            suspects = refusal.suspects
            if len(suspects) == 1:
                self._bounds[at] = Bound(suspects[0], _incident(at, suspects[0], refusal, by_source.get(at)))
            elif suspects:
                self._bounds[at] = Bound(suspects[0])
                self._parts[at] = max(1, len(suspects) // PARTS)

    def stop_before(self, at: Partition, incident: Incident) -> None:
        """Note a record that can't be read: everything before it is copied, then `incident` stops the partition."""
        self._bounds[at] = Bound(incident.offset, incident)

    def until(self, at: Partition) -> int | None:
        """Return the source offset up to which (exclusive) the partition is read now; None: no bound."""
        bound = self._bounds.get(at)
        return None if bound is None else bound.until

    def flush_every(self, at: Partition) -> int:
        """Return how many records are written together; 0: as many as come."""
        return self._parts.get(at, 0) if at not in self._bounds else 0

    def every_ack(self, at: Partition) -> bool:
        """Tell whether each record's acknowledgement is to be asked for."""
        return self._all or at in self._every_ack

    def reached(self, positions: Mapping[Partition, int]) -> dict[Partition, Incident | None]:
        """Find partitions whose position has reached their bound: the incident that stops each, or None where the bound
        only kept the suspects out; these are read on."""
        found = {
            at: bound.incident for at, bound in self._bounds.items() if at in positions and positions[at] >= bound.until
        }
        for at in found:
            del self._bounds[at]
        return found

    def passed(self, partitions: Iterable[Partition]) -> bool:
        """Note that records were committed, with positions of these partitions.

        Single acknowledgements are needed no more where no bound is left. Returns whether the source has to be read
        anew for that.
        """
        before = self._all or bool(self._every_ack)
        self._all = False
        for at in [at for at in partitions if at not in self._bounds]:
            self._every_ack.discard(at)
            self._parts.pop(at, None)
        return before

    def forget(self, at: Partition) -> None:
        """Forget a partition that is stopped, or whose topic is another one."""
        self._bounds.pop(at, None)
        self._every_ack.discard(at)
        self._parts.pop(at, None)


def _incident(at: Partition, offset: int, refusal: Refusal, route: Route | None) -> Incident:
    if not refusal.too_large:
        return Incident("record_refused", refusal.detail, topic=at.topic, partition=at.partition, offset=offset)
    detail = refusal.detail
    if refusal.bytes:
        detail += f"; the record has {refusal.bytes} bytes in a batch of its own, uncompressed"
    if route is not None and route.message_bytes_max:
        detail += f"; max.message.bytes of topic {route.target.topic!r} is {route.message_bytes_max}"
    return Incident("record_too_large", detail, topic=at.topic, partition=at.partition, offset=offset)

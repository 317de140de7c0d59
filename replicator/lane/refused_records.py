"""Refused records of a lane, over all its producer sessions. Each partition's own search is in `refusal_search`; this
has what concerns the lane as a whole. Pure; used by `lane.session`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from replicator.lane.partition import LanePartition
from replicator.lane.refusal_search import NOT_REFUSED
from replicator.model.counting import named
from replicator.model.errors import Incident, Retriable
from replicator.model.partition import Partition
from replicator.planes.contract import Refusal


@dataclass(frozen=True, slots=True)
class AfterCommit:
    """What follows a commit: partitions that stand before a refused record now, each with the incident that stops it,
    and whether the source has to be read anew."""

    stopped: Mapping[Partition, Incident] = field(default_factory=dict)
    read_anew: bool = False


class RefusedRecords:
    """Notes what the target refused, and finds out which partitions have got as far."""

    def __init__(self, partitions: Mapping[Partition, LanePartition]) -> None:
        self._partitions = partitions
        self._searching = False  # whether any partition has a search: mostly none has, and none is looked at
        self.every_ack = False  # of all partitions: the target has refused records and named none
        self.compress = False  # see `note`

    def note(self, refusals: Mapping[Partition, Refusal], *, compressed: bool = True) -> None:
        """Note that a transaction was refused. Without names the next one asks for each record's acknowledgement.

        Raises Retriable if records were too large that weren't `compressed`: the source may hold them so. Brokers count
        what is sent. From the next producer session on the lane compresses; doing so from the beginning would cost each
        flow 6 % (lz4) to 20 % (zstd) of its CPU.
        """
        large = [at for at, refusal in refusals.items() if refusal.too_large]
        if large and not compressed:
            self.compress = True
            told = named([str(at) for at in sorted(large)])
            raise Retriable(f"{told}: too large; records are sent compressed from now on")
        self.every_ack, self._searching = self.every_ack or not refusals, True
        for at, refusal in refusals.items():
            partition = self._partitions[at]
            partition.refusal = partition.refusal.noted(refusal, partition.route)

    def stop_before(self, at: Partition, incident: Incident) -> None:
        """Note a record that can't be read: everything before it is copied, then `incident` stops the partition."""
        self._partitions[at].refusal = self._partitions[at].refusal.stops_before(incident)
        self._searching = True

    def bounded(self) -> dict[Partition, LanePartition]:
        """Return the partitions that are read up to a bound."""
        if not self._searching:
            return {}
        return {at: it for at, it in self._partitions.items() if it.refusal.until is not None}

    def on_committed(
        self, with_records: Iterable[Partition] | None, reached: Callable[[], Mapping[Partition, int]]
    ) -> AfterCommit:
        """Note a commit, and find what follows from it.

        Args:
            with_records: the partitions whose positions moved in a transaction with records; None: it had none.
            reached: says up to which offset each partition was read and committed. Called only if any has a bound.
        """
        if not self._searching:
            return AfterCommit()
        single = with_records is not None and self.passed(with_records)  # before bounds go that were reached now
        found = self.reached(reached()) if self.bounded() else {}
        stopped = {at: incident for at, incident in found.items() if incident is not None}
        return AfterCommit(stopped, single or bool(found))

    def reached(self, positions: Mapping[Partition, int]) -> dict[Partition, Incident | None]:
        """Find partitions whose position has reached their bound: the incident that stops each, or None where the bound
        only kept the suspects out; these are read on."""
        found: dict[Partition, Incident | None] = {}
        for at, partition in self.bounded().items():
            if partition.refusal.reached(positions.get(at)):
                found[at] = partition.refusal.incident
                partition.refusal = partition.refusal.without_bound()
        return found

    def passed(self, partitions: Iterable[Partition]) -> bool:
        """Note that records were committed, with positions of these partitions.

        Returns whether the source has to be read anew, because single acknowledgements were asked for.
        """
        if not self._searching:
            return False
        before = self.every_ack or any(it.refusal.every_ack for it in self._partitions.values())
        self.every_ack = False
        for at in partitions:
            self._partitions[at].refusal = self._partitions[at].refusal.passed()
        self._searching = any(it.refusal != NOT_REFUSED for it in self._partitions.values())
        return before

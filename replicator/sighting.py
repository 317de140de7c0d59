"""What both clusters say about the partitions of a job, before and after its generation is open. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from replicator import checkpoint, map, names
from replicator.admin import TopicInfo
from replicator.checkpoint import NOBODY, BadMetadata, Evidence
from replicator.config import Flow
from replicator.errors import Incident
from replicator.generation import Control
from replicator.planes.contract import Committed, Partition
from replicator.planes.records import look
from replicator.planes.records.reading import Reader, Record
from replicator.routing import target_topic
from replicator.topics import ControlPlane

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sighted:
    """One source partition: its log start, its read_committed end, and its position at the target, if it has one.

    `evidence` is None without a position, and where what stands there can't be read: the lane makes an incident of it.
    """

    log_start: int
    end: int
    position: int | None
    evidence: Evidence | None

    @property
    def records(self) -> int:
        """Records that the flow has committed there so far."""
        return self.evidence.count if self.evidence else 0


def sight(flow: Flow, plane: ControlPlane, infos: Mapping[str, TopicInfo], *, stable: bool) -> dict[Partition, Sighted]:
    """All partitions of these source topics.

    Args:
        stable: wait for transactions over the positions to end; without it the answer is the last committed one.

    Raises:
        Unreachable, NotAllowed, Retriable: an error never reads as "no position".
    """
    partitions = [Partition(name, number) for name, info in infos.items() for number in range(info.partitions)]
    starts = plane.source.offsets(partitions, end=False)
    ends = plane.source.offsets(partitions, end=True, committed_only=True)
    found = positions(flow, partitions, plane.list_target(infos), stable=stable)
    return {
        at: Sighted(starts[at], ends[at], found[at].offset, evidence_of(found[at]))
        if at in found
        else Sighted(starts[at], ends[at], None, None)
        for at in partitions
    }


def positions(
    flow: Flow, partitions: Iterable[Partition], targets: Mapping[str, TopicInfo], *, stable: bool
) -> dict[Partition, Committed]:
    """Positions by source partition, of those that have one. `targets` are the target's topics by name."""
    there: dict[Partition, Partition] = {}
    for at in partitions:
        name = target_topic(flow, at.topic)
        if name in targets and at.partition < targets[name].partitions:
            there[Partition(name, at.partition)] = at
    stored = look.positions(flow, there, stable=stable)
    return {there[target]: committed for target, committed in stored.items() if committed is not None}


def moved(before: Sighted, committed: Committed | None) -> Sighted:
    """The same partition with the position that stands there now."""
    if committed is None:
        return before
    return replace(before, position=committed.offset, evidence=evidence_of(committed))


def evidence_of(committed: Committed) -> Evidence | None:
    """What stands beside a position; None when this program didn't write it."""
    try:
        return checkpoint.decode(committed.metadata)
    except BadMetadata:
        return None


def holders(seen: Mapping[Partition, Sighted], generation: int) -> dict[str, list[Partition]]:
    """Who holds partitions under this generation: workers that did not release them at a clean stop."""
    found: dict[str, list[Partition]] = {}
    for at, sighted in sorted(seen.items()):
        evidence = sighted.evidence
        if evidence is not None and evidence.generation == generation and evidence.owner != NOBODY:
            found.setdefault(evidence.owner, []).append(at)
    return found


def starts(flow: Flow, seen: Mapping[Partition, Sighted], control: Control, reader: Reader) -> dict[Partition, int]:
    """Where partitions without a position begin by the flow's own `start`; a job copies history, so `latest` is none.

    Those that were not there when the flow was first opened begin at earliest. `reader` is of the source.
    """
    fresh = {at: sighted for at, sighted in seen.items() if sighted.position is None}
    found = {at: sighted.log_start for at, sighted in fresh.items()}
    listing = control.first_listing()
    first = [at for at in fresh if not control.generations or at.partition < listing.get(at.topic, 0)]
    if flow.start.kind == "latest":
        found.update({at: fresh[at].end for at in first})
    elif flow.start.kind == "timestamp" and first:
        found.update(at_time(reader, first, flow.start.timestamp_ms, seen))
    return found


def at_time(
    reader: Reader, partitions: Collection[Partition], timestamp_ms: int, seen: Mapping[Partition, Sighted]
) -> dict[Partition, int]:
    """The first offset at or after a time, the committed end where there is none or none is committed yet."""
    ends = {at: seen[at].end for at in partitions}
    found = reader.at_time(partitions, timestamp_ms) if partitions else {}
    return {at: min(offset, ends[at]) if offset >= 0 else ends[at] for at, offset in found.items()}


def claimed(flow: Flow, reader: Reader) -> dict[Partition, int]:
    """Where the copy of each source partition began. `reader` is of the target.

    Raises Incident when the map topic can't be read.
    """
    found = _read_map(flow, reader, map.claims)
    return {claim.source: claim.offset for claim in found.values()}


def repaired(flow: Flow, reader: Reader) -> list[map.Repair]:
    """What repairs have copied again; none where the flow has no map topic yet. See `claimed`."""
    return _read_map(flow, reader, map.repairs)


def _read_map(flow: Flow, reader: Reader, understood: Callable[[list[Record]], T]) -> T:
    topic = names.map_topic(flow.name)
    try:
        return understood(reader.whole(topic, range(reader.partitions([topic]).get(topic, 0))))
    except map.BadMap as error:
        raise Incident("map_topic_unreadable", str(error), topic=topic) from error

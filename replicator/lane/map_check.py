"""Whether the offset map has what the positions of a lane say, as a lane looks at it once in a producer session.

Called by `lane.map_writer`, after the fence: this lane's predecessors write nothing any more.

Invariant M3: the newest block of a lane ends at the positions that it covers. It was written by the transaction that
moved those positions of the lane that name the highest offset of the map; whole chains are not looked at. What doesn't
fit is told, and the map begins anew there: copying doesn't depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from replicator.lane.partition import LanePartition, Stopped
from replicator.lane.ports import LogEndsByPartition, MapLog
from replicator.model.checkpoint import Position
from replicator.model.contradictions import OF_ANOTHER_SOURCE
from replicator.model.errors import ReplicatorError
from replicator.model.partition import LogEnds, Partition
from replicator.offset_map.newest import SectionKey, newest_ends
from replicator.offset_map.section import topic_id_bytes
from replicator.offset_map.varints import BadBlock


@dataclass(slots=True)
class MapFindings:
    """Source partitions whose sections are not where their positions say, or of which that isn't known; what of the map
    is `lost`, and why something of it is `unknown`."""

    broken: set[Partition] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def written_partitions(partitions: Mapping[Partition, LanePartition], topic: str) -> set[Partition]:
    """Return the partitions of the map topic in which positions of the lane name blocks, of whatever topic's id."""
    return {
        Partition(topic, it.evidence.map_partition)
        for it in _positions(partitions).values()
        if it.evidence.map_topic_id
    }


def check_newest(
    partitions: Mapping[Partition, LanePartition],
    topic: str,
    topic_id: str,
    ends: LogEndsByPartition,
    log: MapLog,
    late: Callable[[], bool] = lambda: False,
) -> MapFindings:
    """Compare the newest block in each partition of the map topic with the positions that it covers.

    Args:
        topic_id: that of the map topic, as the target has it now.
        ends: of its partitions, read after the fence; `written_partitions` says of which.
        late: whether no more time may be spent; what was not looked at until then is not known.
    """
    found = MapFindings()
    mapped = {at: it for at, it in _positions(partitions).items() if it.evidence.map_topic_id == topic_id}
    others = {
        at for at, position in _positions(partitions).items() if position.evidence.map_topic_id not in ("", topic_id)
    }
    if others:
        found.broken |= others
        found.lost.append(f"positions of {len(others)} partitions have their blocks in another topic of this name")
    for there in sorted({Partition(topic, it.evidence.map_partition) for it in mapped.values()}):
        members = {at: it for at, it in mapped.items() if it.evidence.map_partition == there.partition}
        answer = ends.get(there)
        if late() or not isinstance(answer, LogEnds):
            found.unknown.append(f"{there}: {answer if isinstance(answer, ReplicatorError) else 'there was no time'}")
            found.broken |= members.keys()
            continue
        try:
            lost, broken = _lost(there, topic_id, members, answer, log)
        except ReplicatorError as error:
            found.unknown.append(f"{there}: {error}")
            found.broken |= members.keys()
            continue
        found.broken |= broken
        if any(partitions[at].copied for at in broken):  # another one's position may be what is wrong
            found.lost.append(lost)
            found.broken |= members.keys()
    return found


def _lost(
    there: Partition, topic_id: str, members: Mapping[Partition, Position], log_ends: LogEnds, log: MapLog
) -> tuple[str, set[Partition]]:
    """Say what is missing of the newest block, and of which of the positions that it covers."""
    first = max(position.evidence.map_offset for position in members.values())
    covered: dict[SectionKey, Partition] = {
        (topic_id_bytes(it.evidence.source_topic_id), at.partition): at
        for at, it in members.items()
        if it.evidence.map_offset == first
    }
    if first > log_ends.end:
        why = f"{there} ends at offset {log_ends.end}, and the newest block stood behind {first}"
        return why, set(covered.values())
    wanted = {key: members[at].offset for key, at in covered.items()}
    begin = max(first, log_ends.start)
    try:
        found = newest_ends(log.items(there, topic_id, begin, log_ends.end), wanted)
        unsaid = wanted.keys() - found.keys()
        if unsaid and begin > first:  # they were consolidated, and deleted then
            found |= log.indexed_ends(topic_id, unsaid)
    except BadBlock as error:
        return f"{there} can't be read behind offset {begin}: {error}", set(covered.values())
    missing = [key for key, end in wanted.items() if found.get(key) != end]
    why = f"{there} has no block behind offset {first} that ends at {len(missing)} positions"
    if begin > first:
        why = f"{there} begins at offset {begin}, and neither it nor the map's index ends at {len(missing)} positions"
    return why, {covered[key] for key in missing}


def _positions(partitions: Mapping[Partition, LanePartition]) -> dict[Partition, Position]:
    return {at: it.position for at, it in partitions.items() if it.position is not None and not _of_another(it)}


def _of_another(it: LanePartition) -> bool:
    return isinstance(it.state, Stopped) and it.state.incident.name in OF_ANOTHER_SOURCE

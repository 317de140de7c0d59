"""Finds, by the flow's offset map, the position of a partition that has none. Called by `flow.deciding`.

Invariant: it is given only where the target ends with the last copy that the map has of the partition: that record is
there and committed, no committed one follows, and no transaction is open. Whatever the flow had copied beyond it, or
somebody else has written, would stand there. So nothing of what lies before it is missing in the map's order, and
nothing behind it was copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from replicator.config import Flow
from replicator.kafka.topic_questions import raised
from replicator.kafka.topic_reader import TopicReader
from replicator.lane.ports import ClusterQuestions
from replicator.model.errors import TopicMissing
from replicator.model.partition import Partition
from replicator.offset_map.block import MapBlock, decode_block
from replicator.offset_map.section import MapSection, topic_id_bytes
from replicator.offset_map.topic import MAP_PARTITIONS
from replicator.offset_map.varints import BadBlock
from replicator.state.decisions import NotDecided, Objection
from replicator.wire.map_index import index_of

WINDOW = 100_000  # offsets that are read at once: reading has a time limit


def position_by_map(
    reader: TopicReader,
    target: ClusterQuestions,
    offsets_topic: str,
    source_topic_id: str,
    route: tuple[Partition, Partition],
    moved: tuple[int, int] = (-1, -1),
    indexed: Callable[[], LastCopy | None] = lambda: None,
) -> int:
    """Return the source offset at which copying goes on. `route`: source and target partition; `moved`: generation and
    time (ms) of the last decision that has moved its position; `indexed`: asks the map's index for its last copy.

    Raises NotDecided where that isn't proven; TopicMissing, Retriable, Unreachable, NotAllowed.
    """
    source, to = route
    try:
        last = last_copy(reader, offsets_topic, source_topic_id, source.partition) or indexed()
    except TopicMissing as error:
        raise _unproven(str(error)) from error
    if last is None:
        raise _unproven(f"{offsets_topic} has nothing of {source}")
    if (last.generation, last.commit_ms) < moved:
        raise _unproven(f"the position of {source} was moved by a decision since the map's last copy")
    check_end(target, to, last)
    return last.position


class LastCopy(NamedTuple):
    """What the map's newest section of a partition says: the position behind it, and one past its last copy on the
    target; generation and time of its block."""

    position: int
    next_target: int
    generation: int = 0
    commit_ms: int = 0


def indexed_copy(flow: Flow, source_topic_id: str, partition: int) -> LastCopy | None:
    """Ask the map's index for the newest section of a source partition that was consolidated; None where it has none.

    Of several that are in one page, the end of the copies is that of the highest one. Raises as `MapIndexLog`.
    """
    key = topic_id_bytes(source_topic_id), partition
    with index_of(flow) as (index, root):
        if root is None:
            return None
        ((_, entries),) = index.entries(root, [key])
    entry = entries[key]
    if entry is None or not entry.pages:
        return None
    return LastCopy(entry.after, entry[-1].target_end, entry.generation, entry.commit_ms)


def last_copy(reader: TopicReader, offsets_topic: str, source_topic_id: str, partition: int) -> LastCopy | None:
    """Read the whole map for the newest section of a source partition; None where it has none.

    Blocks that can't be read are passed over: what they could say is seen at the target's end. Raises TopicMissing,
    Retriable, Unreachable, NotAllowed.
    """
    wanted, order = topic_id_bytes(source_topic_id), (-1, -1)
    newest: LastCopy | None = None
    for offset, value in _blocks(reader, offsets_topic):
        try:
            block = decode_block(value)
        except BadBlock:
            continue
        place = block.generation, offset
        for section in block.sections:
            if (section.source_topic_id, section.partition) == (wanted, partition) and place >= order:
                order, newest = place, _end_of(section, block)
    return newest


def _end_of(section: MapSection, block: MapBlock) -> LastCopy:
    next_target = max(0, section.first_target + section.records)
    return LastCopy(section.after, next_target, block.generation, block.commit_ms)


def _blocks(reader: TopicReader, topic: str) -> Iterator[tuple[int, bytes]]:
    count = reader.partition_count(topic)
    if count != MAP_PARTITIONS:
        raise TopicMissing(f"{topic} has {count} partitions, not {MAP_PARTITIONS}")
    for at, bounds in reader.bounds([Partition(topic, number) for number in range(count)]).items():
        low, high = raised(bounds)
        for first in range(low, high, WINDOW):
            found = list[tuple[int, bytes]]()
            window = {at: (first, min(first + WINDOW, high))}
            errors = reader.each(window, lambda _, offset, record, to=found: to.append((offset, record[1] or b"")))  # type: ignore[misc]
            for error in errors.values():
                raise error
            yield from found


def check_end(target: ClusterQuestions, at: Partition, last: LastCopy) -> None:
    """Raise NotDecided unless the target partition ends with this copy; and what the cluster says instead."""
    ends = raised(target.log_ends([at])[at])
    first = max(last.next_target - 1, ends.start)
    if last.next_target > ends.end:
        raise _unproven(f"{at} ends at {ends.end}, before the map's last copy at {last.next_target - 1}")
    if ends.end == first:
        return
    read = raised(target.end_records({at: first}, {at: ends.end})[at])
    beyond = [offset for offset in read.records if offset >= last.next_target]
    if beyond:
        raise _unproven(f"{at} has a record at offset {beyond[0]}, and the map's last copy is {last.next_target - 1}")
    if read.stable < ends.end:
        raise _unproven(f"{at} is stable up to {read.stable}, and ends at {ends.end}: a transaction is open there")
    absent = first < last.next_target and not read.records
    if absent and (not target.compacted(at.topic) or target.holds(at, first)):
        raise _unproven(f"{at} has no committed record at offset {first}, where the map has its last copy")


def _unproven(why: str) -> NotDecided:
    return NotDecided(Objection.NOT_PROVEN, f"the offset map doesn't say where to go on: {why}; name the offset")

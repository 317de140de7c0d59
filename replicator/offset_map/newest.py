"""Whether the newest block of a lane ends at the positions that it covers (invariant M3). Pure.

Called by `lane.map_check` with what stands in a partition of the map topic, raw: blocks of open and aborted
transactions, and markers. Other lanes write there, too; a source partition is only one lane's at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from replicator.offset_map.block import decode_block

SectionKey = tuple[bytes, int]
"""Source topic id and partition."""


class MapRecord(NamedTuple):
    """A block as it stands in the topic, with its producer's id."""

    producer_id: int
    value: bytes


class MapMarker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    commits: bool


MapItem = MapRecord | MapMarker


def newest_ends(items: Iterable[MapItem], wanted: Mapping[SectionKey, int]) -> dict[SectionKey, int]:
    """Read until the last committed section of each wanted partition ends at the offset that it should; return where
    the last one of each ends, of those that have any.

    Raises BadBlock, NewerBlock; and what `items` raises.
    """
    open_: dict[int, dict[SectionKey, int]] = {}
    found: dict[SectionKey, int] = {}
    for item in items:
        if isinstance(item, MapRecord):
            ends = open_.setdefault(item.producer_id, {})
            for section in decode_block(item.value).sections:
                key = section.source_topic_id, section.partition
                if key in wanted:
                    ends[key] = section.after
            continue
        ended = open_.pop(item.producer_id, {})
        if item.commits:
            found |= ended
            if ended and found == wanted:
                break
    return found

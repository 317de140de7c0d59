"""Where the partitions of a flow's first listing begin, as it was resolved when the flow was first opened. Pure.

Written by `control` in the transaction of the first `open` record, read by lanes and jobs that find a partition without
a position. `start: earliest` needs none of this: it means what the source still has.

Invariant 4: `start: latest` and a time are resolved once, when the flow is opened, for all partitions that are listed
then. Resolved when a partition is first admitted, everything would be lost that was written while it waited or was
stopped, or between the opening and a crash before its claim.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from replicator.model.partition import Partition
from replicator.state.envelope import NotOurs, unwrap, wrap

STARTS = "starts"
RECORD_BYTES_MAX = 262_144
_KINDS = frozenset({STARTS})
_OFFSETS_TOGETHER = 1_000
_ENVELOPE_BYTES, _OFFSET_BYTES = 200, 21  # around the content; an offset's digits and a comma


@dataclass(frozen=True, slots=True)
class TopicStarts:
    """The first offsets of one topic's partitions, by number; None: at earliest, because it could not be resolved.

    They mean nothing in another topic of the same name: `topic_id` tells.
    """

    topic_id: str
    offsets: tuple[int | None, ...]


Starts = Mapping[str, TopicStarts]
"""By source topic."""


def start_of(starts: Starts, at: Partition, topic_id: str) -> int | None:
    """Return the resolved start of a partition whose topic has this id now; None: it begins at earliest."""
    found = starts.get(at.topic)
    if found is None or found.topic_id != topic_id or at.partition >= len(found.offsets):
        return None
    return found.offsets[at.partition]


def encode(starts: Starts, bytes_max: int = RECORD_BYTES_MAX) -> list[tuple[bytes, bytes]]:
    """Return keys and values of the records that hold `starts`, none of them larger than `bytes_max` where that is
    possible: one holds at least one topic's name and an offset."""
    parts: list[list[list[object]]] = [[]]
    size = _ENVELOPE_BYTES
    for part in _parts(starts, bytes_max - _ENVELOPE_BYTES):
        length = len(json.dumps(part, separators=(",", ":")).encode())
        if parts[-1] and size + length > bytes_max:
            parts.append([])
            size = _ENVELOPE_BYTES
        parts[-1].append(part)
        size += length + 1
    return [
        (f"{STARTS}/{number}".encode(), wrap(STARTS, {"topics": part})) for number, part in enumerate(parts) if part
    ]


def _parts(starts: Starts, bytes_max: int) -> Iterator[list[object]]:
    for name, topic in sorted(starts.items()):
        left = bytes_max - len(name) - len(topic.topic_id) - _OFFSET_BYTES
        together = max(1, min(_OFFSETS_TOGETHER, left // _OFFSET_BYTES))
        for first in range(0, len(topic.offsets), together):
            yield [name, topic.topic_id, first, list(topic.offsets[first : first + together])]


def holds_starts(key: bytes) -> bool:
    """Return whether a record of the control topic with this key holds starts."""
    return key.startswith(f"{STARTS}/".encode())


def decode(records: Iterable[tuple[bytes, bytes]]) -> dict[str, TopicStarts]:
    """Decode the starts that these records hold, in the order of their numbers. Raises NotOurs, NewerFormat."""
    found: dict[str, tuple[str, list[int | None]]] = {}
    for key, value in sorted(records, key=_number):
        body = unwrap(key, value, _KINDS)
        try:
            for name, topic_id, first, offsets in [] if body is None else body["topics"]:
                _, known = found.setdefault(str(name), (str(topic_id), []))
                if first != len(known):
                    raise ValueError(f"partition {first} of {name} follows {len(known) - 1}")
                known += [None if offset is None else int(offset) for offset in offsets]
        except (ValueError, KeyError, TypeError) as error:
            raise NotOurs(f"unreadable record {key!r}: {error!r}") from error
    return {name: TopicStarts(topic_id, tuple(offsets)) for name, (topic_id, offsets) in found.items()}


def _number(record: tuple[bytes, bytes]) -> int:
    try:
        return int(record[0].rpartition(b"/")[2])
    except ValueError as error:
        raise NotOurs(f"record {record[0]!r} has no number") from error

"""What the flow notes of consumer groups at the target, as records of its groups topic. Pure.

One record has the notes of up to `PARTITIONS_MAX` partitions of one topic in one group: a round that moves all of a
group's partitions writes one record instead of a hundred. Whose an offset is follows from the notes, see
`groups.ownership`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from replicator.groups.ownership import GroupOffset, OwnershipNote, UnansweredCommit
from replicator.model.partition import Partition
from replicator.state.envelope import NotOurs, unwrap, wrap

GROUP_NOTES = "group_notes"
PARTITIONS_MAX = 500
"""In one record: with the longest metadata that brokers take by default (4 KiB) it stays below 4 MiB."""


class GroupPartition(NamedTuple):
    """A partition of a group, both by their names at the target."""

    group: str
    at: Partition


class GroupNotes:
    """All notes of a flow."""

    def __init__(self) -> None:
        self._notes: dict[GroupPartition, OwnershipNote] = {}
        self._records: defaultdict[tuple[str, str, int], dict[int, OwnershipNote]] = defaultdict(dict)

    def of(self, key: GroupPartition) -> OwnershipNote:
        """Return the note of a partition; an empty one where there is none."""
        return self._notes.get(key, _NOTHING)

    def __iter__(self) -> Iterator[GroupPartition]:
        """Yield the partitions of which there is a note."""
        return iter(self._notes)

    def take(self, notes: Mapping[GroupPartition, OwnershipNote]) -> list[tuple[bytes, bytes]]:
        """Take notes; return the records in which they become durable."""
        changed: dict[tuple[str, str, int], None] = {}
        for key, note in notes.items():
            record = key.group, key.at.topic, key.at.partition // PARTITIONS_MAX
            self._notes[key] = self._records[record][key.at.partition] = note
            changed[record] = None
        return [(json.dumps(list(one)).encode(), _encoded(self._records[one])) for one in changed]

    def read(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Take what records have, the oldest first. Raises NotOurs, NewerFormat."""
        for key, value in records:
            for at, note in _decoded(key or b"", value or b""):
                self._notes[at] = note
                self._records[at.group, at.at.topic, at.at.partition // PARTITIONS_MAX][at.at.partition] = note


_NOTHING = OwnershipNote()


def _encoded(notes: Mapping[int, OwnershipNote]) -> bytes:
    partitions = {
        str(number): [note.last, [[*one.value, one.until_ms] for one in note.unanswered]]
        for number, note in notes.items()
    }
    return wrap(GROUP_NOTES, {"partitions": partitions})


def _decoded(key: bytes, value: bytes) -> Iterator[tuple[GroupPartition, OwnershipNote]]:
    body = unwrap(key, value, frozenset({GROUP_NOTES}))
    if body is None:
        return
    try:
        group, topic, _ = json.loads(key)
        for number, (last, unanswered) in body["partitions"].items():
            yield GroupPartition(str(group), Partition(str(topic), int(number))), _note(last, unanswered)
    except (KeyError, TypeError, ValueError) as error:
        raise NotOurs(f"record {key!r} has no notes of a group: {error!r}") from error


def _note(last: Any, unanswered: Any) -> OwnershipNote:
    return OwnershipNote(
        None if last is None else GroupOffset(int(last[0]), str(last[1])),
        tuple(UnansweredCommit(GroupOffset(int(at), str(said)), int(until)) for at, said, until in unanswered),
    )

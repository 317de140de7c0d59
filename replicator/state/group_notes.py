"""What the flow notes of consumer groups at the target, as records of its groups topic. Pure.

One record has the notes of up to `PARTITIONS_MAX` partitions of one topic in one group: a round that moves all of a
group's partitions writes one record instead of a hundred. Whose an offset is follows from the notes, see
`groups.ownership`. They are kept as they stand in their records, and decoded when a group is looked at: there may be
millions.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from replicator.groups.ownership import GroupOffset, OwnershipNote, UnansweredCommit
from replicator.state.envelope import NotOurs, unwrap, wrap

GROUP_NOTES = "group_notes"
PARTITIONS_MAX = 500
"""In one record: with the longest metadata that brokers take by default (4 KiB) it stays below 4 MiB."""
NO_NOTE = OwnershipNote()
"""That of a partition of which there is none."""

GroupTopic = tuple[str, str]
"""A group and a topic, both by their names at the target."""


class GroupNotes:
    """All notes of a flow."""

    def __init__(self) -> None:
        self._records: defaultdict[GroupTopic, dict[bytes, bytes]] = defaultdict(dict)  # value by key

    def of(self, group: str, topic: str) -> dict[int, OwnershipNote]:
        """Return the notes of a group in a topic by partition, to be changed and given to `take`."""
        found = dict[int, OwnershipNote]()
        for value in self._records.get((group, topic), {}).values():
            for number, (last, unanswered) in json.loads(value)["partitions"].items():
                known = GroupOffset._make(last) if last is not None else None
                found[int(number)] = OwnershipNote(known, _unanswered(unanswered) if unanswered else ())
        return found

    def __iter__(self) -> Iterator[GroupTopic]:
        """Yield the groups and topics of which there are notes."""
        return iter(self._records)

    def take(
        self, group: str, topic: str, notes: dict[int, OwnershipNote], changed: Collection[int]
    ) -> Iterator[tuple[bytes, bytes]]:
        """Take all notes of a group in a topic, by partition; yield the records in which those of `changed` become
        durable."""
        numbers = {partition // PARTITIONS_MAX for partition in changed}
        of_record = {number: dict[int, OwnershipNote]() for number in numbers}
        for partition, note in notes.items():
            if (found := of_record.get(partition // PARTITIONS_MAX)) is not None:
                found[partition] = note
        for number, in_it in of_record.items():
            key, value = json.dumps([group, topic, number]).encode(), _encoded(in_it)
            self._records[group, topic][key] = value
            yield key, value

    def read(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Take what records have, the oldest first. Raises NotOurs, NewerFormat."""
        for key, value in ((key or b"", value or b"") for key, value in records):
            body = unwrap(key, value, frozenset({GROUP_NOTES}))
            if body is not None:
                self._records[_whose(key, body)][key] = value


def _encoded(notes: dict[int, OwnershipNote]) -> bytes:
    partitions = {
        str(number): [last, [[*one.value, one.until_ms] for one in unanswered]]
        for number, (last, unanswered) in notes.items()
    }
    return wrap(GROUP_NOTES, {"partitions": partitions})


def _unanswered(commits: Iterable[tuple[int, str, int]]) -> tuple[UnansweredCommit, ...]:
    return tuple(UnansweredCommit(GroupOffset(offset, metadata), until_ms) for offset, metadata, until_ms in commits)


def _whose(key: bytes, body: Mapping[str, Any]) -> GroupTopic:
    """Of whom a record is, which can be decoded. Raises NotOurs."""
    try:
        group, topic, number = json.loads(key)
        if not (type(group) is type(topic) is str and type(number) is int):
            raise TypeError("it has no group, topic and number")
        for partition, (last, unanswered) in body["partitions"].items():
            int(partition)
            for offset, metadata, *_ in unanswered if last is None else (last, *unanswered):
                if type(offset) is not int or type(metadata) is not str:
                    raise TypeError("it has no offset and metadata")
            for _, _, until_ms in unanswered:
                int(until_ms)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotOurs(f"record {key!r} has no notes of a group: {error!r}") from error
    return group, topic

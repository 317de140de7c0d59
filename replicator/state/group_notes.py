"""What the flow notes of consumer groups at the target, as records of its groups topic. Pure.

One record has the notes of up to `PARTITIONS_MAX` partitions of one topic in one group: a round that moves all of a
group's partitions writes one record instead of a hundred. Where they would take more than `RECORD_BYTES_MAX` they are
divided among several. Whose an offset is follows from the notes, see `groups.ownership`. They are kept as they stand in
their records, and decoded when a group is looked at: there may be millions.

Keys are JSON arrays: group, topic, a number that has the partitions from `PARTITIONS_MAX` times it on, and for the
second and later ones of several records a number of theirs. All of them are written together, in a transaction, so
that a partition stands in one of them only; one that isn't needed any more becomes empty.

A record with a digest in place of long metadata, and any of several, has format version 2: an older version of the
program would take such an offset for somebody else's. It says `newer_format` instead, as it must. Records of version 1
have all metadata as it is.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from replicator.groups.ownership import DIGEST, METADATA_MAX, GroupOffset, OwnershipNote, UnansweredCommit, noted
from replicator.state.envelope import FORMAT_VERSION, NotOurs, unwrap, wrap

GROUP_NOTES = "group_notes"
SHORTENED = 2
"""The format version of records that older programs don't understand."""
PARTITIONS_MAX = 500
RECORD_BYTES_MAX = 256 * 1024
"""Of a record: far below what brokers take by default (1 MiB). One partition's notes take less than 5 KiB."""
_DIGEST = f'"{DIGEST}'.encode()  # a record that has it by chance is of version 2 needlessly
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

    def keep(self, groups: Collection[str]) -> set[str]:
        """Let go of all notes but those of these groups; return of which. They stay in the topic."""
        gone = [key for key in self._records if key[0] not in groups]
        for key in gone:
            del self._records[key]
        return {group for group, _ in gone}

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
        records = self._records[group, topic]
        for number, in_it in of_record.items():
            place = group, topic, number
            written = {
                json.dumps((*place, part) if part else place).encode(): value
                for part, value in enumerate(_pieces(in_it))
            }
            if len(records) > 1:  # else there is none besides the one that is written
                written |= {key: _encoded({}) for key in records.keys() - written.keys() if _number(key) == number}
            records |= written
            yield from written.items()

    def read(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Take what records have, the oldest first. Raises NotOurs, NewerFormat."""
        for key, value in ((key or b"", value or b"") for key, value in records):
            body = unwrap(key, value, frozenset({GROUP_NOTES}), SHORTENED)
            if body is not None:
                of = self._records[_whose(key, body)]
                of[key] = value if body["v"] >= SHORTENED else _shortened(value, body)


def _pieces(notes: Mapping[int, OwnershipNote], version: int = FORMAT_VERSION) -> Iterator[bytes]:
    """Encode notes, in as many records as are needed."""
    value = _encoded(notes, version)
    if len(value) <= RECORD_BYTES_MAX or len(notes) <= 1:
        yield value
        return
    numbers = sorted(notes)
    half = len(numbers) // 2
    for part in (numbers[:half], numbers[half:]):
        yield from _pieces({number: notes[number] for number in part}, SHORTENED)


def _encoded(notes: Mapping[int, OwnershipNote], version: int = FORMAT_VERSION) -> bytes:
    """Encode a record as `json.dumps` has it, without the lists that it would be given: all notes may change in a
    round.
    """
    said = list[str]()
    for number, (last, unanswered) in notes.items():
        commits = ",".join([_said(value, f",{until_ms}") for value, until_ms in unanswered]) if unanswered else ""
        said.append(f'"{number}":[{"null" if last is None else _said(last)},[{commits}]]')
    partitions = ",".join(said).encode()
    if version < SHORTENED and _DIGEST in partitions:
        version = SHORTENED
    return wrap(GROUP_NOTES, {"partitions": {}}, version=version)[: -len(b"}}")] + partitions + b"}}"


def _said(value: GroupOffset, until: str = "") -> str:
    offset, metadata = value
    return f"[{offset},{json.dumps(metadata)}{until}]" if metadata else f'[{offset},""{until}]'


def _shortened(value: bytes, body: Mapping[str, Any]) -> bytes:
    """Return a record of version 1 as this version has it: the same where no metadata is long."""
    notes = body["partitions"].values()
    values = [one for last, unanswered in notes for one in ((last, *unanswered) if last is not None else unanswered)]
    if all(len(one[1]) <= METADATA_MAX for one in values):
        return value
    for one in values:
        one[1] = noted(GroupOffset(one[0], one[1])).metadata
    return wrap(GROUP_NOTES, {"partitions": body["partitions"]}, version=SHORTENED)


def _unanswered(commits: Iterable[tuple[int, str, int]]) -> tuple[UnansweredCommit, ...]:
    return tuple(UnansweredCommit(GroupOffset(offset, metadata), until_ms) for offset, metadata, until_ms in commits)


def _number(key: bytes) -> int:
    """Return the number that a key has."""
    return int(json.loads(key)[2])


def _whose(key: bytes, body: Mapping[str, Any]) -> GroupTopic:
    """Say of whom a record is, which can be decoded. Raises NotOurs."""
    try:
        group, topic, *numbers = json.loads(key)
        if not (type(group) is type(topic) is str and [type(it) for it in numbers] in ([int], [int, int])):
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

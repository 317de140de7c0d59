"""OffsetCommit for a group without members: writes its requests, reads its responses. Pure. Used by `group_questions`.

It is made as a client without a member makes it: the broker refuses it for a group that has members, in both group
protocols, which a commit in a transaction is not (KIP-447). Written by hand, because all offsets of all groups may be
committed in a round: kio makes an object of each. Version 8 (Kafka 2.4; 10 has topic ids), as
org.apache.kafka.common.message has it:

    group | generation i32 | member | instance | topics [name, partitions [index i32, offset i64, leader epoch i32,
    metadata]]
    throttle i32 | topics [name, partitions [index i32, error i16]]

Strings and arrays are preceded by an unsigned varint of their length + 1; behind each structure stand tagged fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError

from replicator.groups.decision import OffsetToCommit
from replicator.wire.compact import count, header, skip_tagged, string, uvarint, written
from replicator.wire.response_limits import BadResponse

API, _KEY, VERSION = "offset_commit", 8, 8
_NOBODY = (-1).to_bytes(4, "big", signed=True) + b"\1\0"  # no generation, an empty member, no instance
_ASKED, _SHORT = Struct(">iqi"), Struct(">iqiBB")
"""A partition; and one without metadata, whose length is one byte, and its tagged fields, of which there are none."""
_HEAD, _ANSWERED = Struct(">ih"), Struct(">ihB")
_TAGS_AT = 6


def request(client_id: str, group: str, offsets: Mapping[str, Mapping[int, OffsetToCommit]]) -> bytes:
    """Make a request without its size, as `Connection.send` takes it. `offsets`: by topic and partition."""
    parts = [header(_KEY, VERSION, client_id), written(group), _NOBODY, uvarint(len(offsets) + 1)]
    for topic, values in offsets.items():
        parts += (written(topic), uvarint(len(values) + 1))
        for number, (offset, metadata, epoch) in values.items():
            if metadata:
                parts += (_ASKED.pack(number, offset, epoch), written(metadata), b"\0")
            else:
                parts.append(_SHORT.pack(number, offset, epoch, 1, 0))
        parts.append(b"\0")
    parts.append(b"\0")
    return b"".join(parts)


def read(data: bytes, at: int) -> dict[str, dict[int, int]]:
    """Read a response from its topics on, which stand at `at`: the error code of each partition; 0: it is committed.

    Raises BadResponse.
    """
    try:
        return _read(data, at)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise BadResponse(f"no OffsetCommitResponse: {type(error).__name__}: {error}") from error


def _read(data: bytes, at: int) -> dict[str, dict[int, int]]:
    found = dict[str, dict[int, int]]()
    topics, at = count(data, at)
    for _ in range(topics):
        topic, at = string(data, at)
        partitions, at = count(data, at)
        end = at + partitions * _ANSWERED.size
        if end <= len(data) and not data[at + _TAGS_AT : end : _ANSWERED.size].strip(b"\0"):
            codes = {index: code for index, code, _ in _ANSWERED.iter_unpack(data[at:end])}
        else:
            codes, end = _with_tags(data, at, partitions)
        found[topic], at = codes, skip_tagged(data, end)
    at = skip_tagged(data, at)
    if at != len(data):
        raise BadResponse(f"{len(data) - at} bytes follow an OffsetCommitResponse")
    return found


def _with_tags(data: bytes, at: int, partitions: int) -> tuple[dict[int, int], int]:
    codes = dict[int, int]()
    for _ in range(partitions):
        index, code = _HEAD.unpack_from(data, at)
        codes[index], at = code, skip_tagged(data, at + _HEAD.size)
    return codes, at

"""OffsetFetch of many groups at once: writes its requests, reads its responses. Pure. Used by `group_questions`.

Written by hand, because all groups of a cluster are asked about again and again: kio makes an object of each offset.
librdkafka asks for one group at a time. Version 8 (KIP-709, Kafka 3.0; 9 has member epochs, 10 topic ids), as
org.apache.kafka.common.message has it:

    groups [id, topics [name, partitions [index i32]]] | require stable i8
    throttle i32 | groups [id, topics [name, partitions [index i32, offset i64, leader epoch i32, metadata, error i16]],
    error i16]

Strings and arrays are preceded by an unsigned varint of their length + 1; behind each structure stand tagged fields.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from struct import Struct
from struct import error as StructError
from sys import byteorder

from replicator.groups.ownership import GroupOffset
from replicator.wire.compact import count, header, skip_tagged, string, uvarint, written
from replicator.wire.response_limits import BadResponse

API, _KEY, VERSION = "offset_fetch", 9, 8
_HEAD, _INT16 = Struct(">iqi"), Struct(">h")  # index, offset, leader epoch
_SHORT = Struct(">iqiBhB")
"""A partition without metadata: its length is one byte, and there are no tagged fields."""
_LENGTH_AT, _TAGS_AT = 16, 19
_offset = partial(tuple.__new__, GroupOffset)
"""What `GroupOffset` itself calls, in a function of Python's."""

Wanted = Mapping[str, Collection[int]] | None
"""Partitions by topic; None: all that the group has an offset in."""
PartitionValue = GroupOffset | int | None
"""What is committed in a partition; None: nothing; a number: the error code there is instead."""


class GroupValues:
    """What one group has committed: an error of the group (0: none), or its partitions. They are kept as they came, of
    which there may be millions, and decoded when they are asked for."""

    __slots__ = ("_topics", "code")

    def __init__(self, code: int, topics: bytes) -> None:
        """`topics`: from their number on, as `read` has checked them."""
        self.code, self._topics = code, topics

    def topics(self) -> dict[str, dict[int, PartitionValue]]:
        """Decode what there is, by topic and partition."""
        data, found = self._topics, dict[str, dict[int, PartitionValue]]()
        number, at = count(data, 0)
        for _ in range(number):
            topic, at = string(data, at)
            values, at = _values(data, at)
            found[topic] = found[topic] | values if topic in found else values
        return found

    @classmethod
    def joined(cls, parts: Iterable[GroupValues]) -> GroupValues:
        """Return what several answers about one group say together; none of them is an error."""
        topics, bodies = 0, list[bytes]()
        for one in parts:
            number, at = count(one._topics, 0)
            topics += number
            bodies.append(one._topics[at:])
        return cls(0, uvarint(topics + 1) + b"".join(bodies))


def request(client_id: str, groups: Mapping[str, Wanted], *, stable: bool) -> bytes:
    """Make a request without its size, as `Connection.send` takes it.

    Args:
        groups: which partitions of each.
        stable: an offset that an open transaction may replace is answered with an error (KIP-447).
    """
    parts = [header(_KEY, VERSION, client_id), uvarint(len(groups) + 1)]
    for group, topics in groups.items():
        parts.append(written(group))
        if topics is None:
            parts.append(b"\0")
        else:
            parts.append(uvarint(len(topics) + 1))
            for topic, numbers in topics.items():
                indexes = array("i", numbers)
                if byteorder == "little":
                    indexes.byteswap()
                parts += (written(topic), uvarint(len(indexes) + 1), indexes.tobytes(), b"\0")
        parts.append(b"\0")
    parts.append(b"\1\0" if stable else b"\0\0")
    return b"".join(parts)


def read(data: bytes, at: int) -> dict[str, GroupValues]:
    """Read a response from its groups on, which stand at `at`. Raises BadResponse."""
    try:
        return _read(data, at)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise BadResponse(f"no OffsetFetchResponse: {type(error).__name__}: {error}") from error


def _read(data: bytes, at: int) -> dict[str, GroupValues]:
    found = dict[str, GroupValues]()
    groups, at = count(data, at)
    for _ in range(groups):
        group, begin = string(data, at)
        topics, at = count(data, begin)
        for _ in range(topics):
            _, at = string(data, at)
            at = _end_of_partitions(data, at)
        end = at
        (code,) = _INT16.unpack_from(data, end)
        at = skip_tagged(data, end + 2)
        found[group] = GroupValues(code, data[begin:end])
    at = skip_tagged(data, at)
    if at != len(data):
        raise BadResponse(f"{len(data) - at} bytes follow an OffsetFetchResponse")
    return found


def _all_short(data: bytes, at: int, partitions: int) -> bool:
    """Return whether all of these partitions have neither metadata nor tagged fields: then they are equally long."""
    end = at + partitions * _SHORT.size
    lengths, tags = data[at + _LENGTH_AT : end : _SHORT.size], data[at + _TAGS_AT : end : _SHORT.size]
    return end <= len(data) and not lengths.strip(b"\0\1") and not tags.strip(b"\0")


def _end_of_partitions(data: bytes, at: int) -> int:
    """Return where a topic ends."""
    partitions, at = count(data, at)
    if _all_short(data, at, partitions):
        return skip_tagged(data, at + partitions * _SHORT.size)
    for _ in range(partitions):
        _, at = string(data, at + _HEAD.size)
        at = skip_tagged(data, at + 2)
    return skip_tagged(data, at)


def _values(data: bytes, at: int) -> tuple[dict[int, PartitionValue], int]:
    partitions, at = count(data, at)
    if _all_short(data, at, partitions):
        end = at + partitions * _SHORT.size
        rows = _SHORT.iter_unpack(data[at:end])
        found: dict[int, PartitionValue] = {
            index: code or (_offset((offset, "")) if offset >= 0 else None) for index, offset, _, _, code, _ in rows
        }
        return found, skip_tagged(data, end)
    found = {}
    for _ in range(partitions):
        index, offset, _ = _HEAD.unpack_from(data, at)
        metadata, at = string(data, at + _HEAD.size)
        (code,) = _INT16.unpack_from(data, at)
        at = skip_tagged(data, at + 2)
        found[index] = code or (GroupOffset(offset, metadata) if offset >= 0 else None)
    return found, skip_tagged(data, at)

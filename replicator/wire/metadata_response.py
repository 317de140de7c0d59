"""Reads a Metadata response for the topics in it: ids, partitions, missing replicas, rights. Pure. Used by `topics`.


Written by hand, because one is read before each commit and may have 100,000 partitions: kio makes an object of each.
Versions 10 to 12 (10: topic ids, KIP-516), as org.apache.kafka.common.message has them:

    throttle i32 | brokers [id i32, host, port i32, rack] | cluster id | controller i32 |
    topics [error i16, name, id 16 bytes, internal i8, partitions [...], rights i32] | rights on the cluster i32 (v10)

Strings and arrays are preceded by an unsigned varint of their length + 1; behind each structure stand tagged fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from replicator.wire.response_limits import BadResponse

VERSIONS = (10, 12)
_INT16, _INT32 = Struct(">h"), Struct(">i")
_PARTITION_HEAD = Struct(">hiii")  # error, index, leader, leader epoch
_REPLICA_LISTS = 3  # replicas, in sync, offline
_NULL_RIGHTS = -(2**31)


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic. `rights`: a bit for each operation (org.apache.kafka.common.acl.AclOperation); None when not asked.
    `short`: leader (-1: none), replicas in sync, and replicas, of partitions that lack one of them."""

    error: int
    name: str
    topic_id: bytes
    partitions: int
    rights: int | None
    short: dict[int, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Metadata:
    """What one broker says of brokers (host, port) and topics."""

    brokers: list[tuple[str, int]]
    topics: list[TopicMetadata]


def read(data: bytes, at: int, version: int) -> Metadata:
    """Reads a response from its brokers on, which stand at `at`. Raises BadResponse."""
    try:
        return _read(data, at, version)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise BadResponse(f"no MetadataResponse of version {version}: {type(error).__name__}: {error}") from error


def _read(data: bytes, at: int, version: int) -> Metadata:
    brokers, topics = list[tuple[str, int]](), list[TopicMetadata]()
    count, at = _count(data, at)
    for _ in range(count):
        host, at = _string(data, at + 4)
        (port,) = _INT32.unpack_from(data, at)
        _, at = _string(data, at + 4)
        at = _tagged(data, at)
        brokers.append((host, port))
    _, at = _string(data, at)  # cluster id
    count, at = _count(data, at + 4)  # behind the controller
    for _ in range(count):
        topic, at = _topic(data, at)
        topics.append(topic)
    at = _tagged(data, at + (4 if version == VERSIONS[0] else 0))
    if at != len(data):
        raise BadResponse(f"{len(data) - at} bytes follow a MetadataResponse")
    return Metadata(brokers, topics)


def _topic(data: bytes, at: int) -> tuple[TopicMetadata, int]:
    (error,) = _INT16.unpack_from(data, at)
    name, at = _string(data, at + 2)
    topic_id = data[at : at + 16]
    partitions, at = _count(data, at + 17)
    short = dict[int, tuple[int, int, int]]()
    for _ in range(partitions):
        _, index, leader, _ = _PARTITION_HEAD.unpack_from(data, at)
        at += _PARTITION_HEAD.size
        whole = in_sync = 0
        for kind in range(_REPLICA_LISTS):
            replicas = data[at]
            if replicas < 0x80:
                at += 1
            else:
                replicas, at = _uvarint(data, at)
            at += 4 * max(0, replicas - 1)
            if kind == 0:
                whole = replicas
            elif kind == 1:
                in_sync = replicas
        if leader < 0 or in_sync != whole:
            short[index] = leader, max(0, in_sync - 1), max(0, whole - 1)
        at = at + 1 if data[at] == 0 else _tagged(data, at)
    (rights,) = _INT32.unpack_from(data, at)
    at = _tagged(data, at + 4)
    return TopicMetadata(error, name, topic_id, partitions, None if rights == _NULL_RIGHTS else rights, short), at


def _count(data: bytes, at: int) -> tuple[int, int]:
    """How many items an array has; each takes a byte at least."""
    length, at = _uvarint(data, at)
    if length - 1 > len(data) - at:
        raise BadResponse(f"{length - 1} items are claimed where {len(data) - at} bytes are left")
    return max(0, length - 1), at


def _string(data: bytes, at: int) -> tuple[str, int]:
    length, at = _uvarint(data, at)
    end = at + max(0, length - 1)
    if end > len(data):
        raise BadResponse("a string ends behind it")
    return data[at:end].decode(), end


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise BadResponse("a number of more than 5 bytes")


def _tagged(data: bytes, at: int) -> int:
    """Where tagged fields end; a client ignores those that it doesn't know (KIP-482)."""
    count, at = _uvarint(data, at)
    for _ in range(count):
        _, at = _uvarint(data, at)
        size, at = _uvarint(data, at)
        at += size
    return at

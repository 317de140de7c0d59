"""Reads a Metadata response for the topics in it: ids, partitions, missing replicas, rights. Pure. Used by `topics` and
`offsets`.

Written by hand, because one is read before each commit and may have 100,000 partitions: kio makes an object of each.
Versions 10 to 12 (10: topic ids, KIP-516), as org.apache.kafka.common.message has them:

    throttle i32 | brokers [id i32, host, port i32, rack] | cluster id | controller i32 |
    topics [error i16, name, id 16 bytes, internal i8, partitions [...], rights i32] | rights on the cluster i32 (v10)

Strings and arrays are preceded by an unsigned varint of their length + 1; behind each structure stand tagged fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError

from replicator.wire.compact import count, read_uvarint, skip_tagged, string
from replicator.wire.response_limits import BadResponse

VERSIONS = (10, 12)
_INT16, _INT32 = Struct(">h"), Struct(">i")
_PARTITION_HEAD = Struct(">hiii")  # error, index, leader, leader epoch
_REPLICA_LISTS = 3  # replicas, in sync, offline
NULL_RIGHTS = -(2**31)


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic. `rights`: a bit for each operation (org.apache.kafka.common.acl.AclOperation); None when not asked.
    `short`: leader (-1: none), replicas in sync, and replicas, of partitions that lack one of them. `leaders`: error,
    leader and its epoch of each partition, where they were asked for."""

    error: int
    name: str
    topic_id: bytes
    partitions: int
    rights: int | None
    short: dict[int, tuple[int, int, int]]
    leaders: dict[int, tuple[int, int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What one broker says of brokers (host and port by id) and topics."""

    brokers: dict[int, tuple[str, int]]
    topics: list[TopicMetadata]


def read(data: bytes, at: int, version: int, *, leaders: bool = False) -> Metadata:
    """Read a response from its brokers on, which stand at `at`. `leaders`: of all partitions. Raises BadResponse."""
    try:
        return _read(data, at, version, leaders)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise BadResponse(f"no MetadataResponse of version {version}: {type(error).__name__}: {error}") from error


def _read(data: bytes, at: int, version: int, leaders: bool) -> Metadata:
    brokers, topics = dict[int, tuple[str, int]](), list[TopicMetadata]()
    nodes, at = count(data, at)
    for _ in range(nodes):
        (node,) = _INT32.unpack_from(data, at)
        host, at = string(data, at + 4)
        (port,) = _INT32.unpack_from(data, at)
        _, at = string(data, at + 4)
        at = skip_tagged(data, at)
        brokers[node] = host, port
    _, at = string(data, at)  # cluster id
    described, at = count(data, at + 4)  # behind the controller
    for _ in range(described):
        topic, at = _topic(data, at, leaders)
        topics.append(topic)
    at = skip_tagged(data, at + (4 if version == VERSIONS[0] else 0))
    if at != len(data):
        raise BadResponse(f"{len(data) - at} bytes follow a MetadataResponse")
    return Metadata(brokers, topics)


def _topic(data: bytes, at: int, leaders: bool) -> tuple[TopicMetadata, int]:
    (error,) = _INT16.unpack_from(data, at)
    name, at = string(data, at + 2)
    topic_id = data[at : at + 16]
    partitions, at = count(data, at + 17)
    short, led = dict[int, tuple[int, int, int]](), dict[int, tuple[int, int, int]]()
    for _ in range(partitions):
        failed, index, leader, epoch = _PARTITION_HEAD.unpack_from(data, at)
        if leaders:
            led[index] = failed, leader, epoch
        at += _PARTITION_HEAD.size
        whole = in_sync = 0
        for kind in range(_REPLICA_LISTS):
            replicas = data[at]
            if replicas < 0x80:
                at += 1
            else:
                replicas, at = read_uvarint(data, at)
            at += 4 * max(0, replicas - 1)
            if kind == 0:
                whole = replicas
            elif kind == 1:
                in_sync = replicas
        if leader < 0 or in_sync != whole:
            short[index] = leader, max(0, in_sync - 1), max(0, whole - 1)
        at = at + 1 if data[at] == 0 else skip_tagged(data, at)
    (rights,) = _INT32.unpack_from(data, at)
    at = skip_tagged(data, at + 4)
    known = None if rights == NULL_RIGHTS else rights
    return TopicMetadata(error, name, topic_id, partitions, known, short, led), at

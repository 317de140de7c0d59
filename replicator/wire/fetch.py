"""Fetch: writes its requests, reads its responses. Sans-I/O.

Written by hand, because the records of a response are megabytes, and kio copies them. Versions 13 to 17 (13: Kafka 3.1,
topic ids; 15: no replica id; 16: addresses of new leaders, which are looked up here), as
org.apache.kafka.common.message has them, behind the header:

    replica i32 (to v14) | max wait i32 | min bytes i32 | max bytes i32 | isolation i8 | session i32, epoch i32 |
    topics [id, partitions [index i32, leader epoch i32, offset i64, last fetched epoch i32, log start i64, max i32]] |
    forgotten [id, partitions [i32]] | rack
    error i16 | session i32 | topics [id, partitions [index i32, error i16, high watermark i64, last stable i64,
    log start i64, aborted [producer i64, first i64], preferred i32, records]]

Strings, arrays and records are preceded by an unsigned varint of their length + 1; behind each structure stand tagged
fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from replicator.model.fetches import FetchAnswer, FetchAsk, FetchedPart, FetchKey
from replicator.wire.compact import count, read_uvarint, skip_tagged, uvarint
from replicator.wire.response_limits import BadResponse

API, _KEY = "fetch", 1
VERSIONS = (13, 17)
_REPLICA_UNTIL = 14
_CONSUMER, _READ_COMMITTED = -1, 1
_HEADER, _INT32, _INT64 = Struct(">hhih"), Struct(">i"), Struct(">q")
_HEAD = Struct(">iiibii")  # max wait, min bytes, max bytes, isolation, session, its epoch
_ASKED = Struct(">iiqiqix")
_ANSWERED, _ABORTED, _LEADER = Struct(">ihqqq"), Struct(">qq"), Struct(">ii")
_ANSWER = Struct(">hi")
_ID_BYTES = 16
_CURRENT_LEADER = 1  # a tagged field
_NONE = -1


class FetchLimits(NamedTuple):
    """How much one request wants, and how long a broker that has nothing yet may wait for something. `rack`: where the
    client is (KIP-392)."""

    bytes_max: int
    wait_ms: int
    rack: str = ""


def request(client_id: str, version: int, ask: FetchAsk, limits: FetchLimits) -> bytes:
    """Make a request without its size, as `Connection.send` takes it, for a read_committed consumer."""
    client, rack = client_id.encode(), limits.rack.encode()
    parts = [_HEADER.pack(_KEY, version, 0, len(client)), client, b"\0"]
    if version <= _REPLICA_UNTIL:
        parts.append(_INT32.pack(_CONSUMER))
    head = _HEAD.pack(limits.wait_ms, 1, limits.bytes_max, _READ_COMMITTED, ask.session_id, ask.session_epoch)
    asked = _by_topic(
        (key, _ASKED.pack(key[1], each.leader_epoch, each.offset, _NONE, _NONE, each.bytes_max))
        for key, each in ask.parts
    )
    forgotten = _by_topic((key, _INT32.pack(key[1])) for key in ask.forgotten)
    parts += (head, *asked, *forgotten, uvarint(len(rack) + 1), rack, b"\0")
    return b"".join(parts)


def _by_topic(rows: Iterable[tuple[FetchKey, bytes]]) -> list[bytes]:
    """Write an array of topics, each with its partitions."""
    topics: dict[bytes, list[bytes]] = {}
    for (topic_id, _), row in rows:
        topics.setdefault(topic_id, []).append(row)
    found = [uvarint(len(topics) + 1)]
    for topic_id, of_topic in topics.items():
        found += (topic_id, uvarint(len(of_topic) + 1), *of_topic, b"\0")
    return found


def read(data: bytes | bytearray, at: int, throttled_s: float = 0.0) -> FetchAnswer:
    """Read a response from its error on, which stands at `at`. Records stay where they are. Raises BadResponse."""
    try:
        return _read(data, at, throttled_s)
    except (IndexError, StructError) as error:
        raise BadResponse(f"no FetchResponse: {type(error).__name__}: {error}") from error


def _read(data: bytes | bytearray, at: int, throttled_s: float) -> FetchAnswer:
    code, session_id = _ANSWER.unpack_from(data, at)
    topics, at = count(data, at + _ANSWER.size)
    view, found = memoryview(data), list[FetchedPart]()
    for _ in range(topics):
        topic_id = bytes(data[at : at + _ID_BYTES])
        partitions, at = count(data, at + _ID_BYTES)
        for _ in range(partitions):
            part, at = _part(data, view, topic_id, at)
            found.append(part)
        at = skip_tagged(data, at)
    at = skip_tagged(data, at)
    if at != len(data):
        raise BadResponse(f"{len(data) - at} bytes follow a FetchResponse")
    return FetchAnswer(code, session_id, tuple(found), throttled_s)


def _part(data: bytes | bytearray, view: memoryview, topic_id: bytes, at: int) -> tuple[FetchedPart, int]:
    index, code, high_watermark, last_stable, log_start = _ANSWERED.unpack_from(data, at)
    aborted, at = count(data, at + _ANSWERED.size)
    ended = list[tuple[int, int]]()
    for _ in range(aborted):
        ended.append(_ABORTED.unpack_from(data, at))
        at = skip_tagged(data, at + _ABORTED.size)
    (preferred,) = _INT32.unpack_from(data, at)
    size, at = read_uvarint(data, at + _INT32.size)
    end = at + max(0, size - 1)
    records = view[at:end]
    leader, leader_epoch, at = _leader(data, end)  # IndexError where fewer bytes are left than the records claim
    part = FetchedPart(
        (topic_id, index), code, high_watermark, last_stable, log_start, preferred, leader, leader_epoch,
        tuple(ended), records,
    )  # fmt: skip
    return part, at


def _leader(data: bytes | bytearray, at: int) -> tuple[int, int, int]:
    """Read what the tagged fields of a partition say of its leader, its epoch, and where they end."""
    leader = epoch = _NONE
    tags, at = read_uvarint(data, at)
    for _ in range(tags):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if tag == _CURRENT_LEADER and size >= _LEADER.size:
            leader, epoch = _LEADER.unpack_from(data, at)
        at += size
    return leader, epoch, at

"""Produce: writes its requests, reads its responses. Sans-I/O.

Written by hand, because the records of a request are megabytes, and kio copies them: a request is a list of pieces, for
`socket.sendmsg`, of which the batches are those that were given. Versions 9 to 12 (9: Kafka 2.8; 12: the second
transaction protocol, KIP-890), by topic names, as org.apache.kafka.common.message has them, behind the header:

    transactional id | acks i16 | timeout i32 | topics [name, partitions [index i32, records]]
    topics [name, partitions [index i32, error i16, base offset i64, append time i64, log start i64,
    record errors [index i32, text], text]] | throttle i32

Strings, arrays and records are preceded by an unsigned varint of their length + 1; behind each structure stand tagged
fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from replicator.model.partition import Partition
from replicator.wire.compact import count, skip_tagged, string, uvarint
from replicator.wire.response_limits import BadResponse

API, _KEY = "produce", 0
VERSIONS = (9, 12)
_ALL_REPLICAS = -1
_HEADER, _HEAD, _INT32 = Struct(">hhih"), Struct(">hi"), Struct(">i")
_ANSWERED = Struct(">ihqqq")


class ProducedPart(NamedTuple):
    """What a broker says of one partition. `append_time_ms` -1: the records keep their times. `bad_records`: numbers
    within the batch of records that were refused, where the broker names them (KIP-467); `detail`: its text."""

    code: int
    base_offset: int
    append_time_ms: int
    bad_records: tuple[int, ...] = ()
    detail: str = ""


class Produced(NamedTuple):
    """A response, by partition, and how long this client is to be quiet (KIP-219)."""

    parts: Mapping[Partition, ProducedPart]
    throttled_s: float


def request(
    number: int, client_id: str, version: int, transactional_id: str, timeout_ms: int,
    batches: Iterable[tuple[Partition, tuple[bytes, memoryview]]],
) -> list[bytes | memoryview]:  # fmt: skip
    """Make a request, its size first, as pieces to send one behind the other: the records of each batch are a piece of
    their own, not copied.

    Args:
        number: its correlation id.
        client_id, transactional_id: as they are called.
        version: one of `VERSIONS`.
        timeout_ms: how long the leader may wait for other replicas; it answers REQUEST_TIMED_OUT then.
        batches: one of each partition: its header, with the CRC, and its records.
    """
    client, transactional = client_id.encode(), transactional_id.encode()
    head = _HEADER.pack(_KEY, version, number, len(client)) + client + b"\0"
    head += uvarint(len(transactional) + 1) + transactional + _HEAD.pack(_ALL_REPLICAS, timeout_ms)
    topics: dict[str, list[tuple[int, tuple[bytes, memoryview]]]] = {}
    for at, batch in batches:
        topics.setdefault(at.topic, []).append((at.partition, batch))
    between, pieces = head + uvarint(len(topics) + 1), list[bytes | memoryview]()
    for topic, of_topic in topics.items():
        name = topic.encode()
        between += uvarint(len(name) + 1) + name + uvarint(len(of_topic) + 1)
        for index, (header, records) in of_topic:
            size = len(header) + len(records)
            pieces += (between + _INT32.pack(index) + uvarint(size + 1) + header, records)
            between = b"\0"
        between += b"\0"
    pieces.append(between + b"\0")
    return [_INT32.pack(sum(map(len, pieces))), *pieces]


def read(data: bytes) -> Produced:
    """Read a response, behind its correlation id. Raises BadResponse."""
    try:
        return _read(data)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise BadResponse(f"no ProduceResponse: {type(error).__name__}: {error}") from error


def _read(data: bytes) -> Produced:
    topics, at = count(data, skip_tagged(data, 0))
    found: dict[Partition, ProducedPart] = {}
    for _ in range(topics):
        topic, at = string(data, at)
        partitions, at = count(data, at)
        for _ in range(partitions):
            index, part, at = _part(data, at)
            found[Partition(topic, index)] = part
        at = skip_tagged(data, at)
    (throttled_ms,) = _INT32.unpack_from(data, at)
    at = skip_tagged(data, at + _INT32.size)
    if at != len(data):
        raise BadResponse(f"{len(data) - at} bytes follow a ProduceResponse")
    return Produced(found, throttled_ms / 1000)


def _part(data: bytes, at: int) -> tuple[int, ProducedPart, int]:
    index, code, base_offset, append_time_ms, _ = _ANSWERED.unpack_from(data, at)
    errors, at = count(data, at + _ANSWERED.size)
    bad, said = list[int](), ""
    for _ in range(errors):
        bad.append(_INT32.unpack_from(data, at)[0])
        text, at = string(data, at + _INT32.size)
        said, at = said or text, skip_tagged(data, at)
    detail, at = string(data, at)
    return index, ProducedPart(code, base_offset, append_time_ms, tuple(bad), detail or said), skip_tagged(data, at)

"""ListOffsets: writes its requests, reads its responses. Pure. Used by `offset_search`.

Written by hand, because 100,000 partitions may be asked for: kio makes an object of each. Versions 6 to 10 (6: Kafka
2.8; 7: the largest timestamp, KIP-734; 8: the first local offset, KIP-405; 10: a timeout for tiered logs), as
org.apache.kafka.common.message has them:

    replica i32 | isolation i8 | topics [name, partitions [index i32, leader epoch i32, timestamp i64]] |
    timeout i32 (from v10 on)
    throttle i32 | topics [name, partitions [index i32, error i16, timestamp i64, offset i64, leader epoch i32]]

Strings and arrays are preceded by an unsigned varint of their length + 1; behind each structure stand tagged fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from struct import error as StructError

from replicator.wire.compact import count, header, skip_tagged, string, uvarint, written
from replicator.wire.response_limits import BadResponse

API, _KEY = "list_offsets", 2
VERSIONS = (6, 10)
SINCE = {-3: 7, -4: 8}
"""By special timestamp: the version that brings it, where that isn't any of these."""
_TIMEOUT_SINCE, _TIMEOUT_MS = 10, 5_000
_CONSUMER = -1
_HEAD = Struct(">ib")
_ASKED, _ANSWERED = Struct(">iiqx"), Struct(">ihqqi")
_INT32 = Struct(">i")

AskedTimes = Mapping[str, Iterable[tuple[int, int]]]
"""Partition and leader epoch, by topic."""
Answer = tuple[str, int, int, int, int]
"""Topic, partition, error, timestamp, offset."""


def request(client_id: str, version: int, asked: AskedTimes, timestamp: int, *, stable: bool) -> bytes:
    """Make a request without its size, as `Connection.send` takes it."""
    parts = [header(_KEY, version, client_id), _HEAD.pack(_CONSUMER, int(stable)), uvarint(len(asked) + 1)]
    for topic, partitions in asked.items():
        rows = [_ASKED.pack(index, epoch, timestamp) for index, epoch in partitions]
        parts += (written(topic), uvarint(len(rows) + 1), *rows, b"\0")
    if version >= _TIMEOUT_SINCE:
        parts.append(_INT32.pack(_TIMEOUT_MS))
    parts.append(b"\0")
    return b"".join(parts)


def read(data: bytes, at: int) -> list[Answer]:
    """Read a response from its topics on, which stand at `at`. Raises BadResponse."""
    try:
        return _read(data, at)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise BadResponse(f"no ListOffsetsResponse: {type(error).__name__}: {error}") from error


def _read(data: bytes, at: int) -> list[Answer]:
    found = list[Answer]()
    topics, at = count(data, at)
    for _ in range(topics):
        topic, at = string(data, at)
        partitions, at = count(data, at)
        for _ in range(partitions):
            index, error, timestamp, offset, _ = _ANSWERED.unpack_from(data, at)
            at += _ANSWERED.size
            at = at + 1 if data[at] == 0 else skip_tagged(data, at)
            found.append((topic, index, error, timestamp, offset))
        at = skip_tagged(data, at)
    at = skip_tagged(data, at)
    if at != len(data):
        raise BadResponse(f"{len(data) - at} bytes follow a ListOffsetsResponse")
    return found

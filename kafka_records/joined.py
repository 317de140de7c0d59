"""Records of several batches as the body of one, without decoding them: of each only the first three numbers are
written anew. Sans-I/O.

    length varint | attributes i8 | timestamp_delta varlong | offset_delta varint | all else, which stays as it is

A third of what decoding and encoding cost. What isn't as producers write it is left to `records.decode`, which says
what is wrong with it, if anything is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_records.batch import TIMESTAMP_TYPE, BatchHeader, CorruptBatch
from kafka_records.lengths import RECORD_BYTES_MIN
from kafka_records.rebuild import DELETE_HORIZON
from kafka_records.records import Body
from kafka_records.varints import Cursor, varint

RECORDS_MAX = 64
"""Of a batch: offsets up to there have one byte in it."""
_OTHER_TIMES = TIMESTAMP_TYPE | DELETE_HORIZON
_TIME_MAX = 1 << 62
"""Of times from 0 to here any two are near enough to each other for one batch."""
_REST_BYTES_MIN = 3
"""Of a record behind its first three numbers: lengths of key and value, number of headers."""
_KNOWN_MAX = 1 << 14
_known: list[bytes] = []
"""Numbers from 0 on as records have them; made when they are needed first."""


class Joined(NamedTuple):
    """The body of a batch with the base timestamp of the first one, and the latest time of a record in it."""

    body: bytes
    max_timestamp: int


def joined(parts: Sequence[tuple[BatchHeader, Body]]) -> Joined | None:
    """Join the records of batches, each with its header and its decompressed body; offsets count from 0.

    None: something in them isn't as usual. One has more than RECORDS_MAX records, gaps, times that its broker gave or
    before 1970, a delete horizon, or isn't sound.
    """
    if not parts:
        return None
    out: list[Body] = []
    place, latest_ms, first_ms = 0, 0, parts[0][0].base_timestamp
    try:
        for header, body in parts:
            base_ms, count = header.base_timestamp, header.record_count
            if count != header.last_offset_delta + 1 or header.attributes & _OTHER_TIMES:
                return None
            if count > RECORDS_MAX or count * RECORD_BYTES_MIN > len(body) or not 0 <= base_ms < _TIME_MAX:
                return None
            latest_ms = max(latest_ms, _add(out, body, _numbers(place, place + count), (first_ms, base_ms)))
            place += count
    except (IndexError, CorruptBatch):
        return None
    return Joined(b"".join(out), latest_ms)


def _add(out: list[Body], body: Body, offsets: Sequence[bytes], times: tuple[int, int]) -> int:
    """Add the records of a batch with these offsets; return the latest time. `times`: the base timestamp that they get,
    and theirs.

    Raises CorruptBatch or IndexError where they aren't as usual. What is read of a record before its offset is read
    once for all that follow it and begin with the same bytes: they have the same length and the same time.
    """
    (first_ms, base_ms), known = times, _known
    at, latest_ms, delta, time = 0, 0, -1, b""
    head, width, stride, offset_bytes = b"", 0, 0, 0
    begins: Body = b"-"
    for place, offset in enumerate(offsets):
        if body[at : at + width] != begins or len(offset) != offset_bytes:
            length, begin = body[at], at + 1
            if length >= 0x80 and body[begin] < 0x80:
                length, begin = length & 0x7F | body[begin] << 7, at + 2
            elif length >= 0x80:
                length, begin = _zigzag(body, at)
            read, end = body[begin + 1], begin + 2  # behind the attributes, which are unused
            if read >= 0x80:
                read, end = _zigzag(body, begin + 1)
            if read != delta:
                delta, time_ms = read, base_ms + (read >> 1 ^ -(read & 1))
                if not 0 <= time_ms < _TIME_MAX:
                    raise CorruptBatch(f"a record has the time {time_ms}")
                after_ms, latest_ms = time_ms - first_ms, max(latest_ms, time_ms)
                time = b"\0" + (known[after_ms] if 0 <= after_ms < _KNOWN_MAX else varint(after_ms))
            width, stride, offset_bytes = end - at, begin - at + (length >> 1), len(offset)
            if length & 1 or width + 1 + _REST_BYTES_MIN > stride:
                raise CorruptBatch(f"a record of {stride} bytes")
            length = len(time) + offset_bytes + stride - width - 1
            begins, head = body[at:end], (known[length] if length < _KNOWN_MAX else varint(length)) + time
        if body[at + width] != 2 * place:
            raise CorruptBatch(f"not the offset that follows {place}")
        out += head, offset, body[at + width + 1 : at + stride]
        at += stride
    if at != len(body):
        raise CorruptBatch(f"its records end at {at} of {len(body)} bytes")
    return latest_ms


def _zigzag(body: Body, at: int) -> tuple[int, int]:
    """Read a number as it stands, zigzag-encoded; and where it ends."""
    cursor = Cursor(body, at)
    value = cursor.varint()
    return value << 1 ^ value >> 63, cursor.at


def _numbers(first: int, end: int) -> Sequence[bytes]:
    """Return the numbers [first, end) as records have them."""
    if not _known:
        _known.extend(varint(number) for number in range(_KNOWN_MAX))
    return _known[first:end] if end <= _KNOWN_MAX else [varint(number) for number in range(first, end)]

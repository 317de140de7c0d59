"""Records of several batches as those of one, without decoding them: of each only the first three numbers are
written anew. Sans-I/O.

    length varint | attributes i8 | timestamp_delta varlong | offset_delta varint | all else, which stays as it is

A tenth of what decoding and encoding cost. What isn't as producers write it is left to `records.decode`, which says
what is wrong with it, if anything is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from kafka_records.batch import (
    HEADER_BYTES,
    TIMESTAMP_TYPE,
    BatchHeader,
    CorruptBatch,
    write_header,
)
from kafka_records.lengths import RECORD_BYTES_MIN
from kafka_records.rebuild import DELETE_HORIZON
from kafka_records.records import Body
from kafka_records.small_batches import RECORDS_MAX, BatchRow
from kafka_records.varints import Cursor, varint

_OTHER_TIMES = TIMESTAMP_TYPE | DELETE_HORIZON
_TIME_MAX = 1 << 62
"""Of times from 0 to here any two are near enough to each other for one batch."""
_REST_BYTES_MIN = 3
"""Of a record behind its first three numbers: lengths of key and value, number of headers."""
_KNOWN_MAX = 1 << 14
"""Numbers from 0 up to here are encoded once, see `_numbers`."""


class JoinPart(NamedTuple):
    """Records of batches: those of each one stand in `data` as its row says."""

    data: Body
    rows: Sequence[BatchRow]


def join_part(header: BatchHeader, body: Body) -> JoinPart | None:
    """Return the decompressed body of a batch as a part of a joined one. None: it has more than RECORDS_MAX records,
    gaps, times that its broker gave, or a delete horizon."""
    count = header.record_count
    if count != header.last_offset_delta + 1 or header.attributes & _OTHER_TIMES or count > RECORDS_MAX:
        return None
    return JoinPart(body, ((count, header.base_timestamp, 0, len(body)),))


def joined(parts: Sequence[JoinPart]) -> bytearray | None:
    """Join the records of batches as a plain one, whose offsets count from 0; its base timestamp is that of the first.

    None: something in them isn't as usual. One has times before 1970, or isn't sound.
    """
    if not parts:
        return None
    first_ms = parts[0].rows[0][1]
    joining = _Joining(first_ms)
    try:
        for part in parts:
            joining.add(part)
    except (IndexError, CorruptBatch):
        return None
    return joining.batch()


class _Joining:
    def __init__(self, first_ms: int) -> None:
        self._out: list[Body] = [bytes(HEADER_BYTES)]
        self._latest_ms = self._count = 0
        self._first_ms = first_ms

    def add(self, part: JoinPart) -> None:
        """Add the records of a part.

        Raises CorruptBatch or IndexError where they aren't as usual. What is read of a record before its offset is read
        once for all that follow it and begin with the same bytes: they have the same length and the same time.
        """
        body, out, known, place = part.data, self._out, _numbers(), self._count
        head, width, stride, offset_bytes, base_ms = b"", 0, 0, 0, -1
        begins: Body = b"-"
        times: dict[int, bytes] = {}
        for count, batch_ms, at, end in part.rows:
            if batch_ms != base_ms:
                base_ms, begins, times = batch_ms, b"-", {}
            if count * RECORD_BYTES_MIN > end - at or not 0 <= base_ms < _TIME_MAX:
                raise CorruptBatch(f"{count} records from {base_ms} in {end - at} bytes")
            until, delta = place + count, 0
            for offset in known[place:until] if until <= _KNOWN_MAX else map(varint, range(place, until)):
                if body[at : at + width] != begins or len(offset) != offset_bytes:
                    length, begin = body[at], at + 1
                    if length >= 0x80 and body[begin] < 0x80:
                        length, begin = length & 0x7F | body[begin] << 7, at + 2
                    elif length >= 0x80:
                        length, begin = _zigzag(body, at)
                    after, behind = body[begin + 1], begin + 2  # behind the attributes, which are unused
                    if after >= 0x80:
                        after, behind = _zigzag(body, begin + 1)
                    if (time := times.get(after)) is None:
                        time = times[after] = self._time(base_ms + (after >> 1 ^ -(after & 1)))
                    width, stride, offset_bytes = behind - at, begin - at + (length >> 1), len(offset)
                    if length & 1 or width + 1 + _REST_BYTES_MIN > stride:
                        raise CorruptBatch(f"a record of {stride} bytes")
                    length = len(time) + offset_bytes + stride - width - 1
                    begins, head = body[at:behind], (known[length] if length < _KNOWN_MAX else varint(length)) + time
                if body[at + width] != delta:
                    raise CorruptBatch(f"not the offset that follows {delta}")
                behind = at + stride
                out += head, offset, body[at + width + 1 : behind]
                at, delta = behind, delta + 2
            if at != end:
                raise CorruptBatch(f"its records end at {at}, not {end}")
            place = until
        self._count = place

    def batch(self) -> bytearray:
        """Return the batch, with its CRC."""
        batch = bytearray().join(self._out)
        write_header(batch, self._count, self._first_ms, self._latest_ms)
        return batch

    def _time(self, time_ms: int) -> bytes:
        """Return what stands between a record's length and its offset."""
        if not 0 <= time_ms < _TIME_MAX:
            raise CorruptBatch(f"a record has the time {time_ms}")
        self._latest_ms = max(self._latest_ms, time_ms)
        after_ms = time_ms - self._first_ms
        return b"\0" + (_numbers()[after_ms] if 0 <= after_ms < _KNOWN_MAX else varint(after_ms))


def _zigzag(body: Body, at: int) -> tuple[int, int]:
    """Read a number as it stands, zigzag-encoded; and where it ends."""
    cursor = Cursor(body, at)
    value = cursor.varint()
    return value << 1 ^ value >> 63, cursor.at


@cache
def _numbers() -> Sequence[bytes]:
    """Return how the smallest numbers are encoded. Built at the first use, by each thread that comes meanwhile for
    itself: none sees what another one has done in part."""
    return tuple(varint(number) for number in range(_KNOWN_MAX))

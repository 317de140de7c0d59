"""Logs with transactions, markers and compaction, and what a read_committed reader gets of them: the oracle."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from integration_tests.harness import batches as raw
from kafka_records.batch import read_header, stamp
from kafka_records.control import marker
from kafka_records.rebuild import rebuild
from kafka_records.records import Record, decode
from kafka_records.small_batches import SmallBatches
from replicator.planes.batches.committed import AbortedRange, Selected, SelectedBatch, one_by_one
from tests.kafka_records.batches import by_aiokafka

EPOCH = 7
HEADERS = st.lists(st.tuples(st.text(max_size=5).map(str.encode), st.none() | st.binary(max_size=9)), max_size=3)
RECORD = st.builds(
    Record,
    st.just(0),
    st.integers(-1, 2**43),
    st.none() | st.binary(max_size=12),
    st.none() | st.binary(max_size=40),
    HEADERS.map(tuple),
)


@dataclass
class Step:
    """What happens next in a log. `kept`: of a data batch, which records compaction left; `end`: how it ends."""

    kind: str
    producer: int = 0
    records: Sequence[Record] = ()
    codec: int = 0
    append_time_ms: int | None = None
    kept: Sequence[bool] = ()
    horizon_ms: int | None = None
    commit: bool = True


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["plain", "data", "data", "end", "other"]),
        st.integers(1, 3),
        st.lists(RECORD, min_size=1, max_size=5),
        st.integers(0, 4),
        st.none() | st.none() | st.integers(0, 2**42),
        st.lists(st.booleans(), max_size=5) | st.just([]),
        st.none() | st.none() | st.integers(1, 2**41),
        st.booleans(),
    ),
    min_size=1,
    max_size=9,
)


@dataclass
class Log:
    """`batches` are (first offset, last offset, bytes); `committed` what a reader gets; `aborted` with the offset of
    the marker."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    committed: list[Record] = field(default_factory=list)
    aborted: list[tuple[AbortedRange, int]] = field(default_factory=list)
    stable: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else 0

    def aborted_from(self, start: int) -> list[AbortedRange]:
        return [found for found, ended in self.aborted if ended >= start]

    def fetch(self, start: int) -> bytes:
        return b"".join(data for _, last, data in self.batches if last >= start)


def built(steps: Sequence[Step], first: int = 0) -> Log:
    """The log in which `steps` happened, from offset `first` on."""
    log, offset = Log(), first
    opened: dict[int, tuple[int, list[Record]]] = {}
    for step in steps:
        if step.kind in ("plain", "data"):
            transactional = step.kind == "data"
            made = by_aiokafka(
                step.records,
                step.codec,
                is_transactional=int(transactional),
                producer_id=step.producer if transactional else -1,
                producer_epoch=0 if transactional else -1,
                base_sequence=0 if transactional else -1,
            )
            stamp(made, offset, EPOCH, step.append_time_ms)
            data, records = bytes(made), decode(made)
            if step.kept or step.horizon_ms is not None:
                kept = [r for r, keep in zip(records, [*step.kept, True, True, True, True, True], strict=False) if keep]
                data, records = rebuild(read_header(made), kept, step.horizon_ms), kept
            if transactional:
                opened.setdefault(step.producer, (offset, []))[1].extend(records)
            else:
                log.committed += records
            log.batches.append((offset, offset + len(step.records) - 1, data))
            offset += len(step.records)
        else:
            data = bytes(marker(step.producer, 0, commit=step.commit, timestamp_ms=5))
            if step.kind == "other":  # of a type that isn't known here
                data = raw.batch(
                    [raw.record(b"\0\0", b"\0\0\0\x05")], attributes=raw.TRANSACTIONAL | raw.CONTROL,
                    producer=(step.producer, 0), timestamp_ms=5,
                )  # fmt: skip
            elif step.producer in opened:
                begun, records = opened.pop(step.producer)
                if step.commit:
                    log.committed += records
                else:
                    log.aborted.append((AbortedRange(step.producer, begun), offset))
            made = bytearray(data)
            stamp(made, offset, EPOCH)
            log.batches.append((offset, offset, bytes(made)))
            offset += 1
    log.stable = min((begun for begun, _ in opened.values()), default=log.end or first)
    log.committed = sorted(record for record in log.committed if record.offset < log.stable)
    return log


def singly(batches: Iterable[Selected]) -> list[SelectedBatch]:
    """Each batch for itself."""
    found: list[SelectedBatch] = []
    for each in batches:
        found += one_by_one(each) if isinstance(each, SmallBatches) else [each]
    return found


def content(records: Sequence[Record]) -> list[tuple[object, ...]]:
    """All of records but their offsets."""
    return [record[1:] for record in records]


def old_message(
    offset: int, magic: int, value: bytes | None, *, key: bytes | None = None, time_ms: int = -1, attributes: int = 0
) -> bytes:
    """A message of format v0 or v1, with its CRC."""
    fields = [struct.pack(">i", -1) if each is None else struct.pack(">i", len(each)) + each for each in (key, value)]
    body = bytes([magic, attributes]) + (struct.pack(">q", time_ms) if magic else b"") + b"".join(fields)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body

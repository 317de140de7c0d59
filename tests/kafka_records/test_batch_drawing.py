"""The drawing and the figures of docs/how-exactly-once-works.md, made of batches that other people's code built."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import calcsize

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from kafka_records.batch import HEADER, HEADER_BYTES, BatchHeader, iter_batches, read_header, stamp
from kafka_records.records import Record
from tests.kafka_records.batches import by_aiokafka, by_librdkafka

TEXT = (Path(__file__).parents[2] / "docs/how-exactly-once-works.md").read_text()
TIME_MS = 1_700_000_000_000
COUNTS = (1, 3, 10, 50)
RECORD_BYTES, KEY_BYTES, APART_MS = 1024, 100, 100


class Drawing:
    """Goes over a batch from the first byte to the last and writes a line for each field."""

    def __init__(self, batch: bytes) -> None:
        self.batch, self.at, self.lines = batch, 0, list[str]()

    def line(self, size: int, text: str) -> None:
        """The next `size` bytes are this."""
        self.lines.append(f"{self.at:>3}  {self.batch[self.at : self.at + size].hex(' '):<23}  {text}")
        self.at += size

    def varint(self, name: str, none: str = "") -> int:
        """The next field is a varint: its value."""
        size = next(size for size in range(1, 11) if self.batch[self.at + size - 1] < 0x80)
        zigzag = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(self.batch[self.at : self.at + size]))
        value = (zigzag >> 1) ^ -(zigzag & 1)
        self.line(size, f"{name} {value}{none if value < 0 else ''}")
        return value

    def text(self, name: str) -> None:
        """The next field has its length in front."""
        if (length := self.varint(f"{name} length", ": none")) > 0:
            self.line(length, f'{name} "{self.batch[self.at : self.at + length].decode()}"')

    def header(self) -> BatchHeader:
        """The header's fields."""
        header = read_header(self.batch)
        for name, value, code in zip(header._fields, header, HEADER.format[1:], strict=True):
            self.line(calcsize(f">{code}"), f"{name.replace('_', ' ')} {f'{value:08x}' if name == 'crc' else value}")
        return header

    def record(self, number: int) -> None:
        """The next record's fields."""
        length = self.varint(f"record {number}: length")
        end = self.at + length
        self.line(1, "  attributes 0")
        self.varint("  timestamp delta")
        self.varint("  offset delta")
        self.text("  key")
        self.text("  value")
        for _ in range(self.varint("  headers")):
            self.text("  header key")
            self.text("  header value")
        assert self.at == end


def drawn(batch: bytes) -> str:
    """The whole batch."""
    drawing = Drawing(batch)
    header = drawing.header()
    assert drawing.at == HEADER_BYTES
    for number in range(header.record_count):
        drawing.record(number)
    assert drawing.at == len(batch)
    return "\n".join(drawing.lines)


def test_the_drawn_batch() -> None:
    records = [Record(0, TIME_MS, b"k", b"hello"), Record(1, TIME_MS + 5, None, b"you", ((b"h", b"1"),))]
    batch = by_aiokafka(records, producer_id=7, producer_epoch=3, base_sequence=12)
    stamp(batch, 42, 2)
    shown = TEXT.partition("```text drawn\n")[2].partition("\n```")[0]
    assert shown == drawn(bytes(batch))


def measured(count: int) -> list[Record]:
    """Records of the size that the table speaks of."""
    value = bytes(RECORD_BYTES - KEY_BYTES)
    return [Record(number, TIME_MS + number * APART_MS, bytes(KEY_BYTES), value) for number in range(count)]


def beside_content(batch: bytes | bytearray, records: Sequence[Record]) -> int:
    """Bytes that are neither key nor value."""
    return len(batch) - sum(len(record.key or b"") + len(record.value or b"") for record in records)


def old_format(records: Sequence[Record]) -> bytearray:
    """The records as a message set of magic 1."""
    builder = LegacyRecordBatchBuilder(magic=1, compression_type=0, batch_size=1 << 30)
    for record in records:
        assert builder.append(record.offset, record.timestamp_ms, record.key, record.value) is not None
    return bytearray(builder.build())


@pytest.mark.parametrize("count", COUNTS)
def test_what_a_batch_costs(count: int) -> None:
    records = measured(count)
    batch = by_librdkafka(records, "none")
    (only,) = iter_batches(batch)
    assert only[0].record_count == count
    new, old = beside_content(batch, records), beside_content(old_format(records), records)
    assert new == beside_content(by_aiokafka(records), records)
    proposed = 53 + 7 * count
    assert new == proposed + 8 + 4 * count - 1, "what the document says about the difference"
    assert f"| {count} | {new} | {old:,} | {proposed} |\n" in TEXT


def test_the_old_format_costs_the_same_for_each_record() -> None:
    costs = [beside_content(old_format(measured(count)), measured(count)) for count in COUNTS]
    assert costs == [34 * count for count in COUNTS]

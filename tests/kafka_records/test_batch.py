"""Batch headers: read, walked, checked and stamped in place."""

from __future__ import annotations

import contextlib

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from kafka_records.batch import (
    HEADER_BYTES,
    CorruptBatch,
    UnsupportedMagic,
    check_crc,
    iter_batches,
    read_header,
    stamp,
)
from kafka_records.control import marker
from kafka_records.records import Record, decode
from tests.kafka_records.batches import by_aiokafka

RECORDS = [Record(0, 1_000, b"a", b"1"), Record(1, 3_000, b"b", None), Record(2, 2_000, None, b"")]


def test_a_clients_header_is_read_field_by_field() -> None:
    batch = by_aiokafka(RECORDS, 2, is_transactional=1, producer_id=77, producer_epoch=3, base_sequence=9)
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 3_000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (77, 3, 9, 11)
    assert (header.is_transactional, header.is_control, header.is_log_append_time) == (True, False, False)
    assert header.compression == 2


@pytest.mark.parametrize(
    ("base", "count", "last"), [(0, 1, 0), (2**31 - 1, 1, 2**31 - 1), (2**31 - 1, 2, 0), (2**31 - 3, 5, 1)]
)
def test_sequences_wrap_to_zero(base: int, count: int, last: int) -> None:
    header = read_header(by_aiokafka(RECORDS))._replace(base_sequence=base, last_offset_delta=count - 1)
    assert header.last_sequence == last


@given(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1))
def test_stamping_changes_offset_and_epoch_alone(base_offset: int, leader_epoch: int) -> None:
    before = by_aiokafka(RECORDS, 1)
    batch = bytearray(before)
    stamp(batch, base_offset, leader_epoch)
    check_crc(batch)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (base_offset, leader_epoch)
    assert (batch[8:12], batch[16:]) == (before[8:12], before[16:])


def test_log_append_time_holds_for_every_record_and_other_readers_agree() -> None:
    batch = by_aiokafka(RECORDS, 3)
    stamp(batch, 40, 5, append_time_ms=9_999)
    check_crc(batch)
    assert read_header(batch).is_log_append_time
    assert [(record.offset, record.timestamp_ms) for record in decode(batch)] == [(40, 9999), (41, 9999), (42, 9999)]
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert [(record.offset, record.timestamp) for record in theirs] == [(40, 9999), (41, 9999), (42, 9999)]


def test_every_flipped_bit_behind_the_crc_is_noticed() -> None:
    sound = by_aiokafka(RECORDS)
    for at in range(17, len(sound)):
        batch = bytearray(sound)
        batch[at] ^= 0x10
        with pytest.raises(CorruptBatch, match="CRC"):
            check_crc(batch)


def test_batches_are_walked_and_a_torn_end_is_refused_at_every_byte() -> None:
    parts = [by_aiokafka(RECORDS, codec) for codec in range(5)]
    whole = b"".join(parts)
    assert [bytes(view) for _, view in iter_batches(whole)] == [bytes(part) for part in parts]
    ends = {sum(map(len, parts[:count])) for count in range(6)}
    for size in range(len(whole) + 1):
        if size in ends:
            assert sum(len(view) for _, view in iter_batches(whole[:size])) == size
        else:
            with pytest.raises(CorruptBatch):
                list(iter_batches(whole[:size]))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, HEADER_BYTES - 13])
def test_impossible_lengths_are_refused(length: int) -> None:
    batch = by_aiokafka(RECORDS)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match="length"):
        read_header(batch)


def test_older_formats_have_an_error_of_their_own() -> None:
    batch = by_aiokafka(RECORDS)
    for magic, error in ((0, UnsupportedMagic), (1, UnsupportedMagic), (3, CorruptBatch)):
        batch[16] = magic
        with pytest.raises(error):
            read_header(batch)


@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_refused(data: bytes) -> None:
    with contextlib.suppress(CorruptBatch, UnsupportedMagic):
        assert sum(len(view) for _, view in iter_batches(data)) == len(data)


def test_markers_are_control_batches_to_other_readers() -> None:
    batch = marker(77, 3, commit=True, timestamp_ms=5)
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert theirs.is_control_batch
    assert theirs.is_transactional
    assert (theirs.producer_id, theirs.base_offset, theirs.next_offset) == (77, 0, 1)
    assert [record.key for record in theirs] == [b"\x00\x00\x00\x01"]

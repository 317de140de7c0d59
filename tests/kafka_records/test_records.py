"""Records inside batches: against other people's encoders and decoders, and against broken input."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_records.batch import CorruptBatch, check_crc, iter_batches, read_header
from kafka_records.control import marker, marker_commits
from kafka_records.lengths import check_lengths, lengths
from kafka_records.records import Record, decode, encode
from kafka_records.varints import varint
from tests.budget import budget
from tests.kafka_records.batches import CODECS, by_aiokafka, by_librdkafka
from tests.kafka_records.sealed import seal

HEADERS = st.lists(st.tuples(st.text(max_size=9).map(str.encode), st.none() | st.binary(max_size=20)), max_size=4)
TIMES = st.integers(0, 2**43)
RECORD = st.builds(
    Record,
    st.just(0),
    TIMES,
    st.none() | st.binary(max_size=100),
    st.none() | st.binary(max_size=300),
    HEADERS.map(tuple),
)


def numbered(records: Sequence[Record], base: int = 0) -> list[Record]:
    return [record._replace(offset=base + number) for number, record in enumerate(records)]


@pytest.mark.tier("default")
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(RECORD, min_size=1, max_size=30))
def test_what_aiokafka_encodes_is_decoded(records: list[Record], codec: int) -> None:
    batch = by_aiokafka(records, codec)
    check_crc(batch)
    assert decode(batch) == numbered(records)


@pytest.mark.tier("default")
@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_encodes_is_decoded(codec: str) -> None:
    records = [
        Record(0, 1_700_000_000_000, None, None),
        Record(0, 1_700_000_000_500, b"", b""),
        Record(0, 1_600_000_000_000, b"k" * 300, None, ((b"h", None), (b"h", b""), (b"", b"x" * 200))),
        *(Record(0, 1_700_000_000_000 + n, b"%d" % n, b"value " * (n % 97)) for n in range(5_000)),
        Record(0, 1_700_000_000_000, b"big", bytes(range(256)) * 2_000),
    ]
    data = by_librdkafka(records, codec)
    found: list[Record] = []
    for header, view in iter_batches(data):
        check_crc(view)
        assert header.compression in (CODECS[codec], 0)  # what doesn't get smaller is sent as it is
        found += decode(view)
    assert found == numbered(records)


@given(st.lists(st.tuples(st.none() | st.binary(), st.none() | st.binary()), min_size=1, max_size=20), TIMES)
def test_what_is_encoded_here_is_read_by_aiokafka(pairs: list[tuple[bytes | None, bytes | None]], time_ms: int) -> None:
    batch = encode(pairs, time_ms, producer_id=4, producer_epoch=1, base_sequence=7)
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (4, 1, 7)
    found = [(record.offset, record.timestamp, record.key, record.value) for record in theirs]
    assert found == [(offset, time_ms, key, value) for offset, (key, value) in enumerate(pairs)]
    assert [record[2:4] for record in decode(batch)] == pairs


def test_a_marker_takes_as_many_bytes_as_sizing_says() -> None:
    said = (Path(__file__).parents[2] / "docs" / "operate" / "sizing.md").read_text()
    sizes = {len(marker(2**40, 30_000, commit=commit, timestamp_ms=2**40)) for commit in (True, False)}
    assert sizes == {int(re.findall(r"a batch of (\d+) bytes", said)[0])}


@pytest.mark.parametrize("commit", [True, False])
def test_markers_say_how_the_transaction_ended(commit: bool) -> None:
    batch = marker(5, 2, commit=commit, timestamp_ms=8)
    assert marker_commits(batch) is commit
    header = read_header(batch)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_body_cut_short_is_refused_at_every_byte(codec: int) -> None:
    whole = by_aiokafka([Record(0, 5, b"k%d" % n, b"value", ((b"h", b"x"),)) for n in range(6)], codec)
    for size in range(61, len(whole)):
        batch = whole[:size]
        batch[8:12] = (size - 12).to_bytes(4, "big")
        with pytest.raises(CorruptBatch):
            decode(batch)


@pytest.mark.tier("default")
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@settings(max_examples=budget(60, 1_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bodies_are_refused_or_decoded_but_nothing_else(codec: int, data: st.DataObject) -> None:
    """The CRC can be right and the body wrong: a client computed it over nonsense."""
    batch = by_aiokafka([Record(0, 5, b"k%d" % n, b"value" * 9, ((b"h", b"x"),)) for n in range(9)], codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch):
        assert len(decode(batch, 1_000_000)) == 9


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=list(CODECS)[1:])
def test_decompression_is_capped(codec: int) -> None:
    batch = by_aiokafka([Record(0, 5, None, bytes(3_000_000))], codec)
    assert len(batch) < 200_000
    assert decode(batch, 3_100_000)[0].value == bytes(3_000_000)
    with pytest.raises(CorruptBatch):
        decode(batch, 2_900_000)


def body(*parts: bytes) -> bytearray:
    return seal(b"".join(parts), count=1, base_timestamp=0, max_timestamp=0)


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (b"\x0e\x00\x00\x00\x01\x01\x02\x01\x01", "header without a key"),
        (b"\x0e\x00\x00\x00\x01\x01\x00", "record of 7 bytes in 6"),
        (b"\x0e\x00\x00\x00\x01\x01\x00z", "length does not fit"),
        (b"\x0a\x00\x00\x00\x01\x01\x00", "length does not fit"),
        (b"\x0c\x00\x00\x00\x01\x01\x00zz", "2 bytes after the last"),
        (b"\x0c\x00\x00\x00\x7f\x01\x00", "field of"),
        (b"\x0c\x00\x00\x00\x05\x01\x00", "field of -3"),
        (b"\x0c\x00\x00\x00\x01\x01\x7e", "headers in"),
        (b"\x80" * 100_000, "longer than 64 bits"),
        (b"\x01", "record of -1 bytes"),
        (b"\x00", "record of 0 bytes"),
    ],
)
def test_each_broken_field_is_named(records: bytes, why: str) -> None:
    with pytest.raises(CorruptBatch, match=why):
        decode(body(records))


def test_a_claimed_count_allocates_nothing() -> None:
    batch = seal(b"\x0c\x00", count=2**31 - 1, base_timestamp=0, max_timestamp=0)
    with pytest.raises(CorruptBatch, match="2147483647 records in 2 bytes"):
        decode(batch)


def test_negative_timestamps_and_deltas() -> None:
    records = [Record(0, 10**12, b"", b""), Record(1, 5, b"", b""), Record(2, 10**13, b"", b"")]
    assert decode(by_aiokafka(records)) == records
    assert decode(encode([(b"", b"")], -1))[0].timestamp_ms == -1


SIZES = st.lists(st.tuples(st.integers(6, 300), st.integers(1, 400)), min_size=1, max_size=6)
"""Runs: length of a record, and how many there are of it."""


@pytest.mark.tier("default")
@settings(max_examples=budget(200, 5_000), deadline=None)
@given(runs=SIZES, change=st.sampled_from([-1, 0, 1]), extra=st.sampled_from([b"", b"\x00", b"\x02"]))
def test_records_are_counted_by_their_lengths(runs: list[tuple[int, int]], change: int, extra: bytes) -> None:
    data = b"".join((varint(size) + b"\x01" * size) * times for size, times in runs) + extra
    count = sum(times for _, times in runs) + change
    if change == 0 and not extra:
        check_lengths(data, count)
        return
    with pytest.raises(CorruptBatch):
        check_lengths(data, count)


@given(st.binary(max_size=60), st.integers(1, 2**31 - 1))
def test_any_bytes_are_told_from_records(data: bytes, count: int) -> None:
    with contextlib.suppress(CorruptBatch):
        check_lengths(data, count)
        assert count <= len(data)


def test_alternating_lengths_cost_no_more_than_they_must() -> None:
    data = (varint(6) + b"x" * 6 + varint(7) + b"x" * 7) * 100_000
    assert sum(lengths(data, 200_000)) == 200_000
    assert sum(lengths((varint(6) + b"x" * 6) * 200_000, 200_000)) <= 1_000

"""A batch under another producer: what other people's readers and a broker's checks say of it."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_tests.harness import batches as raw
from kafka_records.batch import check_crc, read_header, stamp
from kafka_records.rebuild import rebuild
from kafka_records.records import Record, decode
from replicator.planes.batches.rewrite import ProducerIdentity, WhyDecoded, rewritten, why_decoded
from tests.budget import budget
from tests.kafka_records.batches import CODECS, by_aiokafka, by_librdkafka
from tests.replicator.planes.batches.logs import RECORD, content

pytestmark = pytest.mark.tier("default")

OURS = ProducerIdentity(2**40, 2**15 - 2)
RECORDS = [Record(0, 1_000, b"a", b"1"), Record(1, 3_000, b"b", None), Record(2, 2_000, None, b"")]


@settings(max_examples=budget(40, 5_000), deadline=None)
@given(
    st.lists(RECORD, min_size=1, max_size=20),
    st.sampled_from(sorted(CODECS.values())),
    st.integers(0, 2**62),
    st.integers(0, 2**31 - 1),
    st.booleans(),
)
def test_records_stay_and_all_else_is_ours(
    records: list[Record], codec: int, base_offset: int, sequence: int, transactional: bool
) -> None:
    source = by_aiokafka(
        records, codec, is_transactional=int(transactional), producer_id=9, producer_epoch=1, base_sequence=77
    )
    stamp(source, base_offset, 12)
    before, records = bytes(source), decode(source)  # for a time of -1 aiokafka's builder writes another
    made = b"".join(rewritten(read_header(source), memoryview(source), OURS, sequence))
    assert source == before
    check_crc(made)
    header, old = read_header(made), read_header(source)
    assert (header.base_offset, header.leader_epoch) == (0, -1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*OURS, sequence)
    assert (header.is_transactional, header.is_control, header.attributes & ~0x17) == (True, False, 0)
    assert (header.record_count, header.last_offset_delta) == (len(records), len(records) - 1)
    assert (header.base_timestamp, header.max_timestamp) == (old.base_timestamp, old.max_timestamp)
    assert made[61:] == before[61:]
    assert content(decode(made)) == content(records)
    theirs = DefaultRecordBatch(bytes(made))
    assert theirs.validate_crc()
    assert (theirs.is_transactional, theirs.producer_id, theirs.base_sequence) == (True, OURS.producer_id, sequence)
    assert [(each.key, each.value, each.timestamp) for each in theirs] == [
        (r.key, r.value, r.timestamp_ms) for r in records
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_large_batches_of_librdkafka_are_passed_on(codec: str) -> None:
    records = [Record(0, 1_700_000_000_000 + n, b"%d" % n, b"value " * (n % 97)) for n in range(500)]
    source = by_librdkafka(records, codec)
    header = read_header(source)
    assert why_decoded(header, header.size_bytes) is None
    made = b"".join(rewritten(header, memoryview(source)[: header.size_bytes], OURS, 0))
    assert content(decode(made)) == content(records[: header.record_count])


def test_records_are_not_copied() -> None:
    source = bytearray(raw.batch([raw.record()], timestamp_ms=0))
    made = rewritten(read_header(source), source, OURS, 0)
    assert made.records.obj is source


def test_attributes_that_are_the_brokers_own_are_taken_off() -> None:
    source = raw.batch([raw.record()], attributes=0x7FC0 | raw.TRANSACTIONAL, timestamp_ms=0)
    assert read_header(rewritten(read_header(source), source, OURS, 0).head).attributes == raw.TRANSACTIONAL


def test_what_cannot_be_passed_on() -> None:
    sound = by_aiokafka(RECORDS)
    header = read_header(sound)
    assert why_decoded(header, len(sound)) is None
    assert why_decoded(header, len(sound) - 1) is WhyDecoded.TOO_LARGE
    stamped = bytearray(sound)
    stamp(stamped, 0, 1, append_time_ms=5)
    assert why_decoded(read_header(stamped), 10_000) is WhyDecoded.LOG_APPEND_TIME
    assert why_decoded(read_header(rebuild(header, RECORDS[1:])), 10_000) is WhyDecoded.GAPS
    assert why_decoded(read_header(rebuild(header, RECORDS, 99)), 10_000) is WhyDecoded.DELETE_HORIZON

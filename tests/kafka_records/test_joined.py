"""Batches that are joined have the records that they had, by other people's encoder; what isn't as usual is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integration_tests.harness import batches as raw
from kafka_records.batch import BatchHeader, read_header, stamp
from kafka_records.joined import Joined, joined
from kafka_records.rebuild import recompressed
from kafka_records.records import Record, body_of, decode
from tests.budget import budget
from tests.kafka_records.batches import by_aiokafka
from tests.kafka_records.test_records import RECORD, numbered

pytestmark = pytest.mark.tier("default")

BATCH = st.lists(RECORD, min_size=1, max_size=9)


def join(batches: Sequence[bytes | bytearray]) -> Joined | None:
    return joined([(read_header(batch), body_of(read_header(batch), batch)) for batch in batches])


def as_batch(found: Joined, first_ms: int, count: int) -> bytes:
    plain = BatchHeader(0, 0, -1, 2, 0, 0, count - 1, first_ms, found.max_timestamp, -1, -1, -1, count)
    return recompressed(plain, found.body, 0)


@settings(max_examples=budget(100, 20_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(BATCH, min_size=1, max_size=9), st.sampled_from([0, 2, 3, 4]))
def test_joined_batches_have_all_their_records(batches: list[list[Record]], codec: int) -> None:
    made = [by_aiokafka(records, codec) for records in batches]
    for number, batch in enumerate(made):
        stamp(batch, 7_000 * number, 3)
    records = [record for one in batches for record in one]
    found = join(made)
    assert found is not None
    assert found.max_timestamp == max(record.timestamp_ms for record in records)
    assert decode(as_batch(found, batches[0][0].timestamp_ms, len(records))) == numbered(records)


def test_numbers_of_records_and_lengths_beyond_those_known() -> None:
    batches = [[Record(0, 5, None, b"x" * (100 if n % 3_000 else 20_000))] * 9 for n in range(2_200)]
    found = join([by_aiokafka(records) for records in batches])
    assert found is not None
    assert decode(as_batch(found, 5, 9 * 2_200)) == numbered([record for one in batches for record in one])


GOOD = raw.record(), raw.record(offset=1)
UNUSUAL = {
    "gap": raw.batch(GOOD, last_delta=4),
    "append time": raw.batch(GOOD, attributes=raw.LOG_APPEND_TIME),
    "time before 1970": raw.batch([raw.record(after_ms=-9)], timestamp_ms=5),
    "base time before 1970": raw.batch([raw.record(after_ms=9)], timestamp_ms=-5),
    "too late": raw.batch([raw.record(after_ms=2**62)], timestamp_ms=2**61),
    "offset twice": raw.batch([raw.record()] * 2, last_delta=1),
    "length too large": raw.batch([raw.record(length=1)]),
    "length too small": raw.batch([raw.record(length=-1)]),
    "ends in its numbers": raw.batch(body=b"\x08\x00\x00\x00\x00\x00\x00", count=1),
    "negative length": raw.batch(body=b"\x0d\x00\x00\x00\x00\x02v\x00", count=1),
    "more bytes": raw.batch(body=raw.record() + b"\x00", count=1),
    "fewer records": raw.batch([raw.record()], count=2, last_delta=1),
    "cut": raw.batch(body=raw.record()[:-1], count=1),
}


@pytest.mark.parametrize("batch", UNUSUAL.values(), ids=UNUSUAL)
def test_what_is_not_as_usual_is_refused(batch: bytes) -> None:
    usual = raw.batch(GOOD)
    assert join([usual, usual]) is not None
    assert join([usual, batch]) is None
    assert join([batch, usual]) is None


def test_nothing_is_not_joined() -> None:
    assert joined([]) is None

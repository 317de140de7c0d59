"""Batches that are joined have the records that they had, by other people's encoder; what isn't as usual is refused."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from threading import Event, Thread, current_thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integration_tests.harness import batches as raw
from kafka_records import joined as joining
from kafka_records.batch import check_crc, read_header, stamp
from kafka_records.joined import JoinPart, join_part, joined
from kafka_records.records import Record, body_of, decode
from kafka_records.small_batches import read_small
from kafka_records.varints import varint
from tests.budget import budget
from tests.kafka_records.batches import by_aiokafka
from tests.kafka_records.test_records import RECORD, numbered

pytestmark = pytest.mark.tier("default")

BATCH = st.lists(RECORD, min_size=1, max_size=9)


def join(batches: Sequence[bytes | bytearray]) -> bytearray | None:
    parts = [join_part(read_header(batch), body_of(read_header(batch), batch)) for batch in batches]
    return None if None in parts else joined([part for part in parts if part is not None])


@settings(max_examples=budget(100, 20_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(BATCH, min_size=1, max_size=9), st.sampled_from([0, 2, 3, 4]))
def test_joined_batches_have_all_their_records(batches: list[list[Record]], codec: int) -> None:
    made = [by_aiokafka(records, codec) for records in batches]
    for number, batch in enumerate(made):
        stamp(batch, 7_000 * number, 3)
    records = [record for one in batches for record in one]
    found = join(made)
    assert found is not None
    check_crc(found)
    assert read_header(found).max_timestamp == max(record.timestamp_ms for record in records)
    assert decode(found) == numbered(records)


@settings(max_examples=budget(100, 20_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(BATCH, min_size=1, max_size=9))
def test_those_that_were_read_together_have_all_their_records(batches: list[list[Record]]) -> None:
    data, offset = b"", 0
    for records in batches:
        made = by_aiokafka(records)
        stamp(made, offset, 3)
        data, offset = data + bytes(made), offset + len(records)
    few = read_small(memoryview(data), 0, 0, 1_000)
    assert few is not None
    assert len(few.rows) == len(batches)
    found = joined([JoinPart(data, few.rows)])
    assert found is not None
    records = [record for one in batches for record in one]
    assert read_header(found).max_timestamp == max(record.timestamp_ms for record in records)
    assert decode(found) == numbered(records)


def test_equal_records_of_batches_with_other_times_keep_these() -> None:
    data = b""
    for number, time_ms in enumerate((5, 5, 9, 3_000_000, 9, 5)):
        made = by_aiokafka([Record(0, time_ms + after_ms, b"k", b"v") for after_ms in (0, 1, 0)])
        stamp(made, 3 * number, 3)
        data += bytes(made)
    few = read_small(memoryview(data), 0, 0, 1_000)
    assert few is not None
    found = joined([JoinPart(data, few.rows)] * 2)
    assert found is not None
    times = [time_ms + after_ms for time_ms in (5, 5, 9, 3_000_000, 9, 5) for after_ms in (0, 1, 0)]
    assert [record.timestamp_ms for record in decode(found)] == times * 2


def test_numbers_of_records_and_lengths_beyond_those_known() -> None:
    batches = [[Record(0, 5, None, b"x" * (100 if n % 3_000 else 20_000))] * 9 for n in range(2_200)]
    found = join([by_aiokafka(records) for records in batches])
    assert found is not None
    assert decode(found) == numbered([record for one in batches for record in one])


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


def test_two_threads_that_join_for_the_first_time_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec(joining.__name__)
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)  # in which nobody has joined anything
    spec.loader.exec_module(fresh)
    began, passed, ended = Event(), Event(), Event()

    def halting(number: int) -> bytes:
        if current_thread().name == "first" and number == 0:
            began.set()
            assert passed.wait(10)
        elif current_thread().name == "second" and number == 5:
            passed.set()
            assert ended.wait(10)
        return varint(number)

    monkeypatch.setattr(fresh, "varint", halting)
    made = [by_aiokafka([Record(0, time_ms, b"k", b"v", ())]) for time_ms in (1_000, 7_000)]
    parts = [join_part(read_header(batch), body_of(read_header(batch), batch)) for batch in made]

    def first() -> None:
        fresh.joined(parts)
        ended.set()

    threads = [Thread(target=first, name="first"), Thread(target=fresh.joined, args=(parts,), name="second")]
    threads[0].start()
    assert began.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join()
    found = fresh.joined(parts)
    assert found is not None
    assert [record.timestamp_ms for record in decode(found)] == [1_000, 7_000]

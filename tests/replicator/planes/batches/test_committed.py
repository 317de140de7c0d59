"""What is selected of Fetch responses, against a reader that knows how each transaction ended."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_tests.harness import batches as raw
from kafka_records.batch import stamp
from kafka_records.fetched import FetchedBatch
from kafka_records.records import Record, decode
from kafka_records.small_batches import SmallBatches
from replicator.model.partition import Partition, Span
from replicator.planes.batches.committed import AbortedRange, FetchedRange, Selection, select
from tests.budget import budget
from tests.kafka_records.batches import by_aiokafka
from tests.replicator.planes.batches.logs import EPOCH, STEPS, Log, Step, built, singly

pytestmark = pytest.mark.tier("default")

AT = Partition("orders", 3)


def read(log: Log, start: int, until: int | None = None, spans: tuple[Span, ...] = (), cut: int = 0) -> Selection:
    data = log.fetch(start)
    asked = FetchedRange(AT, start, until, spans)
    return select(asked, data[: len(data) - cut], log.aborted_from(start), log.stable)


def offsets(found: Selection) -> list[int]:
    """Those of the records that are wanted."""
    inside: list[int] = []
    for batch, wanted, whole in singly(found.batches):
        assert isinstance(batch, FetchedBatch)
        records = [record.offset for record in decode(batch.data)]
        taken = [offset for offset in records if any(first <= offset < end for first, end in wanted)]
        assert taken == records or not whole
        inside += taken
    return inside


@settings(max_examples=budget(50, 20_000), deadline=None)
@given(STEPS, st.data())
def test_a_read_committed_reader_gets_these(steps: list[Step], data: st.DataObject) -> None:
    log = built(steps, first=data.draw(st.sampled_from([0, 100])))
    start = data.draw(st.integers(log.batches[0][0], log.end))
    until = data.draw(st.none() | st.integers(start, log.end))
    spans = tuple(sorted(data.draw(st.lists(st.integers(start, log.end), max_size=4, unique=True))))
    pairs = tuple(zip(spans[::2], spans[1::2], strict=False))
    found = read(log, start, until, pairs)
    wanted = [
        record.offset
        for record in log.committed
        if record.offset >= start
        and (until is None or record.offset < until)
        and (not pairs or any(first <= record.offset < end for first, end in pairs))
    ]
    assert found.refused is None
    assert offsets(found) == wanted
    if start < log.stable:
        assert found.next_offset == (log.stable if until is None else min(until, log.stable))
    else:
        assert found.next_offset == start


@settings(max_examples=budget(20, 2_000), deadline=None)
@given(STEPS, st.data())
def test_responses_that_follow_each_other_give_everything_once(steps: list[Step], data: st.DataObject) -> None:
    log, got, position = built(steps), list[int](), 0
    while position < log.stable:
        content = log.fetch(position)
        sizes = [len(batch) for _, last, batch in log.batches if last >= position]
        found = read(log, position, cut=data.draw(st.integers(0, len(content) - sizes[0])))
        got += offsets(found)
        assert found.next_offset > position
        position = found.next_offset
    assert got == [record.offset for record in log.committed]


def data_of(producer: int = 1) -> Step:
    return Step("data", producer, [Record(0, 5, b"k", b"v")] * 2)


def test_a_later_transaction_of_the_same_producer_is_not_aborted_with_the_first() -> None:
    log = built([data_of(), Step("end", 1, commit=False), data_of(), Step("end", 1)])
    assert offsets(read(log, 0)) == [3, 4]


def test_what_the_producer_committed_before_stays() -> None:
    log = built([data_of(), Step("end", 1), data_of(), Step("end", 1, commit=False)])
    assert offsets(read(log, 0)) == [0, 1]


def test_records_outside_transactions_of_an_aborted_producer_stay() -> None:
    plain = by_aiokafka([Record(0, 5, None, b"v")], producer_id=1, producer_epoch=0, base_sequence=0)
    found = select(FetchedRange(AT, 0), bytes(plain), [AbortedRange(1, 0)], 1)
    assert offsets(found) == [0]


def test_a_marker_of_an_unknown_type_ends_nothing() -> None:
    log = built([data_of(), Step("other", 1), data_of(), Step("end", 1, commit=False)])
    assert offsets(read(log, 0)) == []


def test_a_marker_that_compaction_has_emptied_is_passed_over() -> None:
    emptied = raw.batch(attributes=raw.TRANSACTIONAL | raw.CONTROL, last_delta=0, producer=(1, 0))
    found = select(FetchedRange(AT, 0), emptied, [AbortedRange(1, 0)], 1)
    assert (found.batches, found.next_offset, found.refused) == ([], 1, None)


def test_what_is_not_stable_yet_is_left_for_the_next_fetch() -> None:
    log = built([Step("plain", records=[Record(0, 5, None, b"v")] * 3), data_of()])
    data = log.fetch(0)
    assert offsets(select(FetchedRange(AT, 0), data, [], 3)) == [0, 1, 2]
    assert select(FetchedRange(AT, 0), data, [], 3).next_offset == 3
    assert offsets(select(FetchedRange(AT, 0), data, [], -1)) == [0, 1, 2, 3, 4]


def test_the_leader_epoch_is_that_of_the_last_batch_also_of_a_marker() -> None:
    log = built([data_of(), Step("end", 1, commit=False)])
    found = read(log, 0)
    assert (found.leader_epoch, found.next_offset, found.batches) == (EPOCH, 3, [])


def sound(offset: int) -> bytearray:
    made = by_aiokafka([Record(0, 5, b"k", b"v"), Record(0, 6, None, b"w")])
    stamp(made, offset, EPOCH)
    return made


def broken(offset: int, at: int, value: bytes) -> bytes:
    made = sound(offset)
    made[at : at + len(value)] = value
    return bytes(made)


@pytest.mark.parametrize(
    ("data", "offset", "said"),
    [
        (broken(12, 64, b"\xff"), 12, "CRC"),
        (broken(12, 16, b"\x03"), 12, "magic 3"),
        (broken(12, 16, b"\xff"), 12, "magic -1"),
        (broken(12, 57, b"\x7f\xff\xff\xff"), 12, "CRC"),
        (broken(12, 8, b"\x00\x00\x00\x05"), 12, "5 bytes at offset 12"),
        (broken(12, 0, b"\xff" * 8), 12, "at offset -1"),
        (bytes(sound(11)), 12, "follows one that ends at offset 11"),
        (raw.batch(body=b"?" * 9, attributes=6, count=2, base_offset=12), 12, "unknown compression 6"),
        (raw.batch([b"\x02\x00"], attributes=raw.CONTROL, base_offset=12, producer=(1, 0)), 12, "number"),
    ],
    ids=["crc", "magic 3", "magic -1", "count", "length", "offset", "order", "codec", "marker"],
)
def test_a_batch_that_is_not_sound_stops_the_partition_there(data: bytes, offset: int, said: str) -> None:
    found = select(FetchedRange(AT, 10), bytes(sound(10)) + data + bytes(sound(20)), [AbortedRange(1, 0)], 90)
    assert offsets(found) == [10, 11]
    assert found.refused is not None
    assert (found.refused.name, found.refused.offset, found.next_offset) == ("source_corrupt", offset, 12)
    assert (found.refused.topic, found.refused.partition) == AT
    assert said in found.refused.detail


def test_a_corrupt_batch_around_the_position_is_told_at_the_position() -> None:
    found = select(FetchedRange(AT, 11), broken(10, 64, b"\xff"), [], 90)
    assert (found.refused.offset if found.refused else None, found.next_offset) == (11, 11)


def test_a_response_without_a_whole_batch_is_refused_and_an_empty_one_is_not() -> None:
    assert select(FetchedRange(AT, 10), bytes(sound(10))[:-1], [], 90).refused is not None
    assert select(FetchedRange(AT, 10), b"", [], 10) == Selection(10)


def test_small_batches_stay_together_where_all_of_them_are_committed_and_wanted() -> None:
    made = [by_aiokafka([Record(0, 5, None, b"v")] * 2) for _ in range(4)]
    for number, batch in enumerate(made):
        stamp(batch, 2 * number, EPOCH)
    data = b"".join(map(bytes, made))

    def counts(asked: FetchedRange, stable: int = 8, aborted: tuple[AbortedRange, ...] = ()) -> list[int]:
        found = select(asked, data, aborted, stable)
        assert (found.refused, found.leader_epoch) == (None, EPOCH)
        assert sum(each.size_bytes for each in found.batches) == sum(
            len(each.batch.data) for each in singly(found.batches)
        )
        return [each.records if isinstance(each, SmallBatches) else -1 for each in found.batches]

    assert counts(FetchedRange(AT, 0)) == counts(FetchedRange(AT, 0), -1) == [8]
    assert counts(FetchedRange(AT, 0), 7) == [6]
    assert counts(FetchedRange(AT, 1)) == [-1, 6]
    assert counts(FetchedRange(AT, 0, 5)) == [4, -1]
    assert counts(FetchedRange(AT, 0, 2)) == [-1]
    assert counts(FetchedRange(AT, 0, spans=((0, 8),))) == [-1] * 4
    assert counts(FetchedRange(AT, 0), aborted=(AbortedRange(1, 9),)) == [-1] * 4

"""From what was fetched to what is written: nothing is told of a partition before all that stands before it is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest

from kafka_records.batch import stamp
from kafka_records.compression import ZSTD
from kafka_records.records import Record, decode
from replicator.model.errors import Incident, ReplicatorError, TopicMissing
from replicator.model.partition import Partition, Seek
from replicator.model.timestamps import TimestampBounds
from replicator.planes.batches.committed import FetchedRange, Selected, SelectedBatch, select
from replicator.planes.batches.decoding import WritableBatch
from replicator.planes.batches.fetcher_terms import FetchedNews
from replicator.planes.batches.merge import MergeLimits
from replicator.planes.batches_io import intake
from replicator.planes.batches_io.budget import FetchBudget
from replicator.planes.batches_io.intake import Intake, Taken
from replicator.planes.contract import ReadPlan
from tests.kafka_records.batches import by_aiokafka
from tests.replicator.planes.batches.logs import singly

pytestmark = pytest.mark.tier("default")

ONE, TWO = Partition("orders", 0), Partition("orders", 1)
NOW_MS = int(time.time() * 1000)
MANY = 10**9
WHOLE = MergeLimits(1_000_000, enough_bytes=1)


def batches(at: Partition, first: int, *groups: Sequence[int]) -> list[SelectedBatch]:
    """A batch of each group of timestamps, one behind the other."""
    data = b""
    for times in groups:
        made = by_aiokafka([Record(0, time_ms, b"k", b"%d" % time_ms) for time_ms in times])
        stamp(made, first, 3)
        data, first = data + bytes(made), first + len(times)
    return singly(select(FetchedRange(at, 0), data, (), -1).batches)


def fetched(
    found: Mapping[Partition, Sequence[Selected]],
    ends: Mapping[Partition, Seek] | None = None,
    failed: Mapping[Partition, ReplicatorError] | None = None,
) -> FetchedNews:
    """What is new."""
    return FetchedNews({at: [*selected] for at, selected in found.items()}, dict(ends or {}), dict(failed or {}))


class Taking:
    """An intake and what it has written."""

    def __init__(self, limits: MergeLimits = WHOLE, bounds: TimestampBounds | None = None, **plan: int) -> None:
        self.intake = Intake(limits, {} if bounds is None else {ONE: bounds}, {ONE: ONE, TWO: TWO})
        self.intake.seek({at: ReadPlan(Seek(0, -1), **plan) for at in (ONE, TWO)})  # type: ignore[arg-type]
        self.written: list[tuple[Partition, WritableBatch]] = []
        self.flushed: list[int] = []

    def take(self, records_max: int = MANY, full: bool = False, whole_max: int | None = None) -> Taken:
        def flush() -> None:
            self.flushed.append(len(self.written))

        return self.intake.take(records_max, lambda *one: self.written.append(one), flush, lambda: full, whole_max)

    def runs(self, at: Partition) -> list[tuple[int, int]]:
        return [run for where, batch in self.written if where == at for run in batch.runs]


def test_partitions_are_taken_in_turn_up_to_a_number_of_records_and_ends_are_told_behind_them() -> None:
    taking = Taking()
    news = fetched({ONE: batches(ONE, 0, [1] * 5, [1] * 5), TWO: batches(TWO, 0, [1] * 3)}, {ONE: Seek(11, 3)})
    assert taking.intake.add(news) == {}
    assert taking.take(6).records == 8, "batches aren't divided"
    assert (taking.runs(ONE), taking.runs(TWO), taking.intake.ends) == ([(0, 5)], [(0, 3)], {})
    assert taking.intake.waiting
    assert taking.take(full=True) == Taken()
    assert taking.take(1).records == 5
    assert (taking.runs(ONE)[-1], taking.intake.ends, taking.intake.waiting) == ((5, 10), {ONE: Seek(11, 3)}, False)


def test_the_next_partition_is_taken_from_where_only_a_little_is_taken_at_a_time() -> None:
    taking = Taking()
    taking.intake.add(fetched({ONE: batches(ONE, 0, *[[1] * 2] * 4), TWO: batches(TWO, 0, *[[1] * 2] * 2)}))
    for _ in range(4):
        assert taking.take(1).records == 2
    assert [at for at, _ in taking.written] == [ONE, TWO, ONE, TWO]
    taking.take()
    assert taking.runs(ONE)[-1] == (6, 8)


def together(at: Partition, first: int, *groups: Sequence[int]) -> list[Selected]:
    """Small batches as they are fetched: what follows each other is one thing."""
    data = b"".join(bytes(each.batch.data) for each in batches(at, first, *groups))
    found = select(FetchedRange(at, first), data, (), -1).batches
    assert len(found) == 1
    return found


def test_of_small_batches_that_were_fetched_together_no_more_are_taken_than_are_wanted() -> None:
    taking = Taking(MergeLimits(1_000_000))
    found = {ONE: together(ONE, 0, *[[1] * 2] * 4), TWO: together(TWO, 0, *[[1] * 2] * 4)}
    size = sum(each.size_bytes for each in (*found[ONE], *found[TWO]))
    taking.intake.add(fetched(found, {ONE: Seek(8, 3)}))
    taken = [taking.take(records) for records in (3, 1, 5, 1)]
    assert [each.records for each in taken] == [4, 2, 6, 2], "a batch isn't divided"
    assert (taking.intake.waiting, taking.intake.ends) == (True, {ONE: Seek(8, 3)})
    last = taking.take()
    taking.intake.drain(lambda *one: taking.written.append(one))
    assert (last.records, sum(each.bytes for each in (*taken, last))) == (2, size)
    assert (taking.runs(ONE), taking.runs(TWO)) == ([(0, 8)], [(0, 8)])


def test_one_of_them_is_divided_where_a_transaction_is_to_be_small() -> None:
    taking = Taking()
    taking.intake.add(fetched({ONE: together(ONE, 0, [1] * 5, [1] * 2)}))
    assert [taking.take(2, whole_max=2).records for _ in range(3)] == [2, 2, 3]
    assert taking.runs(ONE) == [(0, 2), (2, 4), (4, 5), (5, 7)]


@pytest.mark.parametrize("off_ms", [-10_000_000, 10_000_000])
def test_one_of_them_is_refused_for_its_time(off_ms: int) -> None:
    taking = Taking(MergeLimits(1_000_000), TimestampBounds(3_600_000, 3_600_000))
    found = together(ONE, 0, [NOW_MS] * 2, [NOW_MS, NOW_MS + off_ms, NOW_MS], [NOW_MS])
    taking.intake.add(fetched({ONE: found}, {ONE: Seek(6, 3)}))
    taken = taking.take()
    (blocked,) = taking.intake.blocked().values()
    assert (blocked.name, blocked.offset, taking.runs(ONE)) == ("target_timestamp_bounds", 3, [(0, 3)])
    assert (taken.bytes, taking.intake.ends) == (found[0].size_bytes, {})


def test_those_within_a_bound_ahead_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "one_by_one", None)
    taking = Taking(MergeLimits(1_000_000), TimestampBounds(after_ms=3_600_000))
    taking.intake.add(fetched({ONE: together(ONE, 0, [NOW_MS] * 2, [NOW_MS])}, {ONE: Seek(3, 3)}))
    taking.take()
    assert taking.runs(ONE) == [(0, 3)]


def test_few_records_of_them_at_a_time_are_acknowledged() -> None:
    taking = Taking(flush_every=2)
    taking.intake.add(fetched({ONE: together(ONE, 0, [1] * 3, [1] * 2)}))
    taking.take()
    assert (taking.runs(ONE), taking.flushed) == ([(0, 2), (2, 3), (3, 5)], [1, 2, 3])


def test_small_batches_wait_for_others_until_their_partition_has_ended() -> None:
    taking = Taking(MergeLimits(1_000_000))
    taking.intake.add(fetched({ONE: batches(ONE, 0, [1], [1])}))
    taking.take()
    assert (taking.written, taking.intake.merging) == ([], True)
    taking.intake.add(fetched({ONE: batches(ONE, 2, [1])}, {ONE: Seek(3, 3)}))
    taking.take()
    assert ([batch.runs for _, batch in taking.written], taking.intake.merging) == ([((0, 3),)], False)


def test_a_corrupt_batch_stops_its_partition_behind_what_was_read_before_it() -> None:
    taking, corrupt = Taking(MergeLimits(1_000_000)), Incident("source_corrupt", "CRC", topic="orders", offset=2)
    gone = TopicMissing("gone")
    news = fetched({ONE: batches(ONE, 0, [1], [1])}, failed={ONE: corrupt, TWO: gone})
    assert taking.intake.add(news) == {TWO: gone}
    assert taking.intake.blocked() == {}
    taking.take()
    assert (taking.runs(ONE), taking.intake.blocked()) == ([(0, 2)], {ONE: corrupt})
    taking.intake.add(fetched({ONE: batches(ONE, 3, [1])}, {ONE: Seek(4, 3)}))
    taking.take()
    assert (taking.runs(ONE), taking.intake.ends) == ([(0, 2)], {})


@pytest.mark.parametrize("off_ms", [-10_000_000, 10_000_000])
def test_what_the_target_refuses_for_its_time_stops_the_partition_before_it(off_ms: int) -> None:
    bad_ms = NOW_MS + off_ms
    taking = Taking(bounds=TimestampBounds(3_600_000, 3_600_000))
    taking.intake.add(fetched({ONE: batches(ONE, 0, [NOW_MS] * 2, [NOW_MS, bad_ms, NOW_MS])}, {ONE: Seek(5, 3)}))
    taking.take()
    (blocked,) = taking.intake.blocked().values()
    taking.intake.add(fetched({ONE: batches(ONE, 5, [NOW_MS])}, {ONE: Seek(6, 3)}))
    assert taking.take().bytes > 0, "it is held no more"
    assert (blocked.name, blocked.offset, taking.runs(ONE)) == ("target_timestamp_bounds", 3, [(0, 2), (2, 3)])
    assert (taking.intake.ends, taking.intake.waiting) == ({}, False)


def test_a_bound_ahead_is_seen_by_the_header_alone() -> None:
    taking = Taking(bounds=TimestampBounds(after_ms=3_600_000))
    (whole,) = found = batches(ONE, 0, [NOW_MS, NOW_MS - 10_000_000])
    taking.intake.add(fetched({ONE: found}))
    taking.take()
    assert taking.written[0][1].data is whole.batch.data, "it was not decoded"


def test_a_few_records_at_a_time_are_acknowledged_before_the_next() -> None:
    taking = Taking(flush_every=2)
    taking.intake.add(fetched({ONE: batches(ONE, 0, [1] * 5)}))
    taking.take()
    assert (taking.runs(ONE), taking.flushed) == ([(0, 2), (2, 4), (4, 5)], [1, 2, 3])
    values = [record.value for _, batch in taking.written for record in decode(batch.data)]
    assert values == [b"1"] * 5
    assert {batch.leader_epoch for _, batch in taking.written} == {3}


def test_a_batch_is_divided_where_a_transaction_is_to_be_small() -> None:
    taking = Taking()
    found = batches(ONE, 0, [1] * 5, [1])
    taking.intake.add(fetched({ONE: found}, {ONE: Seek(6, 3)}))
    for _ in range(2):
        assert (taking.take(2, whole_max=2).records, taking.intake.ends) == (2, {})
    last = taking.take(2, whole_max=2)
    assert (taking.runs(ONE), last.records) == ([(0, 2), (2, 4), (4, 5), (5, 6)], 2)
    assert last.bytes == sum(len(each.batch.data) for each in found)
    assert taking.intake.ends == {ONE: Seek(6, 3)}


def test_a_large_batch_is_divided_also_behind_a_small_one() -> None:
    """As behind the first record of a producer, whose next batch has all that has come meanwhile."""
    taking = Taking()
    taking.intake.add(fetched({ONE: batches(ONE, 0, [1]), TWO: batches(TWO, 0, [1] * 9, [1] * 2)}))
    assert taking.take(4, whole_max=4).records == 4
    assert (taking.runs(ONE), taking.runs(TWO)) == ([(0, 1)], [(0, 3)])
    assert taking.take(1, whole_max=5).records == 1, "of a transaction that has four already"
    assert taking.take(3, whole_max=5).records == 5, "what it may have as a whole isn't divided"
    assert taking.runs(TWO)[1:] == [(3, 4), (4, 9)]


@pytest.mark.parametrize(("records", "value_bytes", "codec"), [(1_000, 0, 0), (1_000, 0, ZSTD), (3, 100_000, ZSTD)])
def test_a_batch_that_needs_too_much_memory_is_not_divided(records: int, value_bytes: int, codec: int) -> None:
    """Neither many records nor a few large ones, of which a small batch can be made."""
    taking = Taking(MergeLimits(1_000_000, enough_bytes=1, decoded_bytes_max=200_000))
    made = by_aiokafka([Record(0, NOW_MS, b"k", b"v" * value_bytes)] * records, codec)
    found = singly(select(FetchedRange(ONE, 0), bytes(made), (), -1).batches)
    taking.intake.add(fetched({ONE: found}, {ONE: Seek(records, -1)}))
    assert taking.take(2, whole_max=2).records == records
    assert (taking.intake.blocked(), taking.runs(ONE)) == ({}, [(0, records)])
    assert taking.intake.ends == {ONE: Seek(records, -1)}


def test_a_lane_that_holds_nothing_may_always_fetch() -> None:
    budget, one, two = FetchBudget(100), object(), object()
    budget.hold(one, 90)
    assert budget.allows(one)
    budget.hold(one, 150)
    assert not budget.allows(one)
    assert budget.allows(two)
    budget.hold(two, 1)
    assert not budget.allows(two)
    budget.hold(one, 0)
    assert budget.allows(two)

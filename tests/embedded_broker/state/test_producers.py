"""Producer state: duplicates, sequences, epochs, the last stable offset, aborted transactions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from embedded_broker.state.producer_entry import SEQUENCE_MAX
from embedded_broker.state.producers import ACCEPT, Duplicate, PartitionProducers, RefuseBatch

PID = 7


@dataclass(frozen=True)
class Batch:
    base_offset: int
    count: int = 1
    producer_id: int = PID
    producer_epoch: int = 0
    base_sequence: int = 0
    is_transactional: bool = False
    max_timestamp: int = 1_000

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.count - 1

    @property
    def last_sequence(self) -> int:
        last = self.base_sequence + self.count - 1
        return last if last <= SEQUENCE_MAX else last - SEQUENCE_MAX - 1


def check(producers: PartitionProducers, batch: Batch) -> object:
    return producers.check(batch, 0)


def written(*batches: Batch) -> PartitionProducers:
    producers = PartitionProducers()
    for batch in batches:
        assert producers.check(batch, 0) is ACCEPT
        producers.apply(batch)
    return producers


def test_any_of_the_last_five_batches_is_answered_with_its_own_offset() -> None:
    producers = written(*(Batch(10 * n, count=2, base_sequence=2 * n) for n in range(6)))
    for n in range(1, 6):
        assert check(producers, Batch(999, count=2, base_sequence=2 * n)) == Duplicate(10 * n, 1_000)
    assert check(producers, Batch(999, count=2, base_sequence=0)) == RefuseBatch(ErrorCode.out_of_order_sequence_number)


def test_a_batch_that_overlaps_a_known_one_is_out_of_order() -> None:
    producers = written(Batch(0, count=3))
    for batch in (Batch(9, count=2), Batch(9, base_sequence=1), Batch(9, base_sequence=2, count=2)):
        assert check(producers, batch) == RefuseBatch(ErrorCode.out_of_order_sequence_number)
    assert check(producers, Batch(9, base_sequence=3)) is ACCEPT


def test_a_gap_is_out_of_order() -> None:
    refused = RefuseBatch(ErrorCode.out_of_order_sequence_number)
    assert check(written(Batch(0)), Batch(1, base_sequence=2)) == refused


@pytest.mark.parametrize("count", [1, 3])
def test_sequences_wrap_to_zero(count: int) -> None:
    producers = written(Batch(0, count=count, base_sequence=SEQUENCE_MAX - count + 1))
    assert check(producers, Batch(9, base_sequence=0)) is ACCEPT
    assert check(producers, Batch(9, base_sequence=1)) == RefuseBatch(ErrorCode.out_of_order_sequence_number)


def test_a_batch_may_wrap_inside() -> None:
    producers = written(Batch(0, count=4, base_sequence=SEQUENCE_MAX - 1))
    assert check(producers, Batch(9, base_sequence=2)) is ACCEPT
    assert check(producers, Batch(9, count=4, base_sequence=SEQUENCE_MAX - 1)) == Duplicate(0, 1_000)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert check(PartitionProducers(), Batch(0, base_sequence=500)) is ACCEPT


def test_a_new_epoch_begins_at_zero() -> None:
    producers = written(Batch(0, base_sequence=5))
    assert check(producers, Batch(1, producer_epoch=1, base_sequence=6)) == RefuseBatch(
        ErrorCode.out_of_order_sequence_number
    )
    assert check(producers, Batch(1, producer_epoch=1, base_sequence=0)) is ACCEPT


def test_an_old_epoch_is_fenced_even_with_a_known_batch() -> None:
    producers = written(Batch(0), Batch(1, producer_epoch=1))
    assert check(producers, Batch(2)) == RefuseBatch(ErrorCode.invalid_producer_epoch)


def test_the_marker_of_a_bumped_epoch_fences_and_restarts_sequences() -> None:
    producers = written(Batch(0, is_transactional=True))
    producers.apply(Batch(1, producer_epoch=1), commit=False)
    late = Batch(2, base_sequence=1, is_transactional=True)
    assert check(producers, late) == RefuseBatch(ErrorCode.invalid_producer_epoch)
    assert check(producers, Batch(2, producer_epoch=1, base_sequence=1)) == RefuseBatch(
        ErrorCode.out_of_order_sequence_number
    )
    assert check(producers, Batch(2, producer_epoch=1)) is ACCEPT


def test_a_marker_of_the_same_epoch_keeps_the_sequence() -> None:
    producers = written(Batch(0, is_transactional=True))
    producers.apply(Batch(1), commit=True)
    assert check(producers, Batch(2, base_sequence=1, is_transactional=True)) is ACCEPT
    assert check(producers, Batch(2, base_sequence=0, is_transactional=True)) == Duplicate(0, 1_000)


def test_markers_of_older_epochs_are_refused() -> None:
    producers = written(Batch(0, producer_epoch=3))
    assert producers.check_marker(PID, 2) is ErrorCode.invalid_producer_epoch
    assert producers.check_marker(PID, 3) is ErrorCode.none
    assert producers.check_marker(99, 0) is ErrorCode.none
    assert producers.check_marker(99, -1) is ErrorCode.invalid_producer_epoch


def test_plain_batches_may_not_come_between_transactional_ones() -> None:
    producers = written(Batch(0, is_transactional=True))
    assert check(producers, Batch(1, base_sequence=1)) == RefuseBatch(ErrorCode.invalid_txn_state)


def test_batches_without_sequence_or_with_half_an_identity_are_refused() -> None:
    refused = RefuseBatch(ErrorCode.invalid_record)
    producers = PartitionProducers()
    assert check(producers, Batch(0, base_sequence=-1)) == refused
    assert check(producers, Batch(0, producer_epoch=-1)) == refused
    assert check(producers, Batch(0, producer_id=-1, is_transactional=True)) == refused
    assert check(producers, Batch(0, producer_id=-1, producer_epoch=-1, base_sequence=-1)) is ACCEPT


def test_the_coordinators_own_batches_have_an_epoch_but_no_sequence() -> None:
    producers = PartitionProducers()
    offsets = Batch(0, base_sequence=-1, producer_epoch=1, is_transactional=True)
    assert producers.check(offsets, 0, from_client=False) is ACCEPT
    producers.apply(offsets)
    again = Batch(1, base_sequence=-1, producer_epoch=1, is_transactional=True)
    assert producers.check(again, 0, from_client=False) is ACCEPT
    zombie = Batch(1, base_sequence=-1, producer_epoch=0, is_transactional=True)
    assert producers.check(zombie, 0, from_client=False) == RefuseBatch(ErrorCode.invalid_producer_epoch)


def test_only_the_epoch_that_opened_a_transaction_has_it() -> None:
    producers = written(Batch(0, is_transactional=True))
    assert producers.has_open(PID, 0)
    assert not producers.has_open(PID, 1)
    assert not producers.has_open(8, 0)


def test_the_stable_offset_waits_for_the_marker_to_be_durable() -> None:
    producers = written(Batch(5, is_transactional=True))
    assert producers.last_stable_offset(6) == 5
    producers.apply(Batch(6), commit=True)
    assert producers.last_stable_offset(6) == 5
    assert producers.last_stable_offset(7) == 7


def test_the_stable_offset_never_passes_the_high_watermark() -> None:
    assert written(Batch(5, is_transactional=True)).last_stable_offset(3) == 3
    assert PartitionProducers().last_stable_offset(3) == 3


def test_a_repeated_marker_aborts_nothing() -> None:
    producers = written(Batch(0, is_transactional=True))
    producers.apply(Batch(1), commit=False)
    producers.apply(Batch(2), commit=False)
    assert producers.aborted_in(0, 10) == [(PID, 0)]


def test_idle_producers_expire_but_not_in_a_transaction() -> None:
    producers = PartitionProducers()
    producers.apply(Batch(0, max_timestamp=0), now_ms=5_000)
    producers.apply(Batch(1, producer_id=8, is_transactional=True, max_timestamp=0), now_ms=5_000)
    assert producers.expire(5_999, 1_000) == 0
    assert producers.expire(6_000, 1_000) == 1
    assert [entry.producer_id for entry in producers.entries()] == [8]


def test_aborted_transactions_below_the_log_start_are_dropped() -> None:
    producers = written(Batch(0, is_transactional=True))
    producers.apply(Batch(1), commit=False)
    producers.drop_before(1)
    assert producers.aborted_in(0, 10) == [(PID, 0)]
    producers.drop_before(2)
    assert producers.aborted_in(0, 10) == []


Step = tuple[int, str]


def _logged(steps: list[Step]) -> list[tuple[Batch, bool | None]]:
    sequences: dict[int, int] = {}
    log: list[tuple[Batch, bool | None]] = []
    for offset, (producer_id, kind) in enumerate(steps):
        if kind == "data":
            sequence = sequences.get(producer_id, 0)
            sequences[producer_id] = sequence + 1
            batch = Batch(offset, producer_id=producer_id, base_sequence=sequence, is_transactional=True)
            log.append((batch, None))
        else:
            log.append((Batch(offset, producer_id=producer_id), kind == "commit"))
    return log


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["data", "data", "commit", "abort"])), max_size=40),
    st.integers(0, 42),
    st.integers(0, 42),
)
def test_aborted_and_stable_agree_with_a_plain_scan(steps: list[Step], start: int, end: int) -> None:
    producers = PartitionProducers()
    aborted: list[tuple[int, int, int]] = []
    open_since: dict[int, int] = {}
    for batch, commit in _logged(steps):
        producers.apply(batch, commit)
        if commit is None:
            open_since.setdefault(batch.producer_id, batch.base_offset)
        elif batch.producer_id in open_since:
            first = open_since.pop(batch.producer_id)
            if not commit:
                aborted.append((batch.producer_id, first, batch.base_offset))
    expected = [(pid, first) for pid, first, marker in aborted if marker >= start and first < end]
    assert producers.aborted_in(start, end) == expected
    assert producers.open_transactions() == open_since
    assert producers.last_stable_offset(len(steps)) == min([len(steps), *open_since.values()])

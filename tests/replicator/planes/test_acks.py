"""Delivery reports of a refused batch, in the shapes that librdkafka 2.16 gives them, and what they name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError

from replicator.planes.contract import Refusal
from replicator.planes.records.acks import AckError, Acks, AckWatch, refusal

BAD = KafkaError(KafkaError.INVALID_RECORD)
DIFFERENT = KafkaError(KafkaError._INVALID_DIFFERENT_RECORD)
LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
PURGED = KafkaError(KafkaError._PURGE_QUEUE)


@dataclass
class Report:
    """A delivery report's message; of a refused batch its offset is -1 (given as None), 0, 1, ..."""

    at: int | None
    stamped: bool = False

    def offset(self) -> int | None:
        return self.at

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return b"value"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_LOG_APPEND_TIME if self.stamped else TIMESTAMP_CREATE_TIME, 1_000


def batch(first: int, *errors: KafkaError) -> dict[int, AckError]:
    acks = Acks(AckWatch())
    for place, error in enumerate(errors):
        acks.on_middle(first + place, error, Report(place - 1 if place else None))  # type: ignore[arg-type]
    return acks.errors


def suspects(errors: dict[int, AckError]) -> tuple[int, ...]:
    found = refusal(errors, every_ack=True)
    assert found is not None
    return found.suspects


def test_where_two_are_named_the_first_is_it() -> None:
    assert suspects(batch(10, DIFFERENT, BAD, DIFFERENT, BAD)) == (11,)


def test_where_one_or_none_is_named_all_of_the_batch_are_suspects() -> None:
    assert suspects(batch(10, LARGE, LARGE, LARGE)) == (10, 11, 12)


def test_a_record_alone_in_its_batch_is_it() -> None:
    assert suspects(batch(10, LARGE)) == (10,)


def test_of_two_refused_batches_the_first_is_told() -> None:
    assert suspects(batch(10, BAD, BAD) | batch(12, LARGE, LARGE, LARGE)) == (10, 11)


def test_what_was_purged_behind_a_batch_is_no_suspect() -> None:
    assert suspects(batch(10, BAD, BAD) | {12: AckError(PURGED, 0), 13: AckError(PURGED, 0)}) == (10, 11)


def test_purged_records_alone_are_no_refusal() -> None:
    assert refusal({12: AckError(PURGED, 0)}, every_ack=True) is None


def test_without_every_ack_nothing_is_suspected() -> None:
    found = refusal(batch(10, DIFFERENT), every_ack=False)
    assert isinstance(found, Refusal)
    assert found.suspects == ()


@pytest.mark.parametrize("offset", [None, -1])
def test_an_ack_without_its_offset_is_noted(offset: int | None) -> None:
    acks = Acks(AckWatch(), first_source=5)
    acks.on_only(None, Report(offset))  # type: ignore[arg-type]
    assert acks.without_offset
    assert not acks.watch.failed


def test_an_error_is_noted_for_the_whole_transaction() -> None:
    watch = AckWatch()
    Acks(watch).on_first(PURGED, Report(None))  # type: ignore[arg-type]
    assert watch.failed


@pytest.mark.parametrize("stamped", [(), (0,), (1,), (0, 1)])
def test_either_end_of_a_run_tells_that_timestamps_were_replaced(stamped: tuple[int, ...]) -> None:
    acks = Acks(AckWatch(), 10, 11, 2)
    acks.on_first(None, Report(5, 0 in stamped))  # type: ignore[arg-type]
    acks.on_last(None, Report(6, 1 in stamped))  # type: ignore[arg-type]
    assert acks.restamped == bool(stamped)

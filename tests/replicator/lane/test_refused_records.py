"""Refused records are found by name, or by narrowing the suspects of their partition and of no other."""

from __future__ import annotations

import pytest

from replicator.lane.partition import LanePartition
from replicator.lane.refused_records import AfterCommit, RefusedRecords
from replicator.model.errors import Retriable
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.planes.contract import Refusal

A, B = Partition("t", 0), Partition("t", 1)


class Lane:
    """Two partitions, and what was refused of them."""

    def __init__(self) -> None:
        self.partitions = {at: LanePartition(Route(at, Partition("copy", at.partition), "", "")) for at in (A, B)}
        self.refused = RefusedRecords(self.partitions)

    def every_ack(self, at: Partition) -> bool:
        return self.refused.every_ack or self.partitions[at].refusal.every_ack

    def until(self, at: Partition) -> int | None:
        return self.partitions[at].refusal.until


def test_a_refusal_without_names_asks_for_every_acknowledgement_once() -> None:
    lane = Lane()
    lane.refused.note({})
    assert lane.every_ack(A)
    assert lane.every_ack(B)
    assert lane.refused.passed([A])
    assert not lane.every_ack(A)


def test_a_named_record_bounds_its_partition_and_stops_it_there() -> None:
    lane = Lane()
    lane.refused.note({A: Refusal((7,), "why")})
    assert (lane.until(A), lane.until(B)) == (7, None)
    assert lane.refused.reached({A: 6, B: 9}) == {}
    incident = lane.refused.reached({A: 7, B: 9})[A]
    assert incident is not None
    assert (incident.name, incident.offset, incident.detail) == ("record_refused", 7, "why")
    assert lane.until(A) is None


def test_after_a_commit_it_is_told_at_once_who_stops_and_whether_the_source_is_read_anew() -> None:
    lane, asked = Lane(), []

    def reached() -> dict[Partition, int]:
        asked.append(True)
        return {A: 7, B: 9}

    assert lane.refused.on_committed([A], reached) == AfterCommit()
    lane.refused.note({})
    assert lane.refused.on_committed(None, reached) == AfterCommit(), "positions alone: the records are still to come"
    assert lane.refused.on_committed([A], reached) == AfterCommit(read_anew=True)
    assert not asked, "none has a bound"
    lane.refused.note({A: Refusal((7,), "why")})
    after = lane.refused.on_committed([A, B], reached)
    assert after.read_anew
    assert {at: (incident.name, incident.offset) for at, incident in after.stopped.items()} == {
        A: ("record_refused", 7)
    }


def test_a_timestamp_that_is_refused_is_named_as_one_that_is_found_before_it_is_written() -> None:
    lane = Lane()
    lane.refused.note({A: Refusal((7,), "why", for_timestamp=True)})
    incident = lane.refused.reached({A: 7})[A]
    assert incident is not None
    assert (incident.name, incident.offset) == ("target_timestamp_bounds", 7)


def test_suspects_become_fewer_until_one_is_left() -> None:
    """The bad record is at 4,711 of 20,000; what is written together is what is suspected next."""
    lane, position, rounds = Lane(), 0, 0
    while True:
        rounds += 1
        until, size = lane.until(A), lane.partitions[A].refusal.flush_every or 5_000
        if until is not None and until <= 4_711:
            position = until
        elif until is None:
            first = position + (4_711 - position) // size * size
            lane.refused.note({A: Refusal(tuple(range(first, first + size)), "why")})
        reached = lane.refused.reached({A: position})
        if reached.get(A) is not None:
            break
        assert rounds < 12
    assert position == 4_711


def test_a_partition_that_still_has_a_bound_keeps_its_acknowledgements() -> None:
    lane = Lane()
    lane.refused.note({A: Refusal((3, 4), "why"), B: Refusal((), "why")})
    lane.refused.passed([A, B])
    assert (lane.every_ack(A), lane.every_ack(B)) == (True, False)


def test_a_record_that_is_too_large_is_sent_compressed_before_it_stops_anything() -> None:
    lane = Lane()
    large = {A: Refusal((7,), "why", too_large=True)}
    with pytest.raises(Retriable, match="compressed from now on"):
        lane.refused.note(large, compressed=False)
    assert lane.refused.compress
    assert lane.until(A) is None
    lane.partitions[A].route = Route(A, Partition("copy", 0), "", "", message_bytes_max=3_000)
    lane.refused.note({A: Refusal((7,), "why", too_large=True, bytes=9_087)})
    assert lane.until(A) == 7
    incident = lane.refused.reached({A: 7})[A]
    assert incident is not None
    assert (incident.name, incident.offset) == ("record_too_large", 7)
    assert incident.detail == (
        "why; the record has 9087 bytes in a batch of its own, uncompressed; "
        "max.message.bytes of topic 'copy' was 3000 when last listed"
    )
    assert "compression.type" in incident.advice

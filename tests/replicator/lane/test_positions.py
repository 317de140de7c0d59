"""The positions: positions move only as far as the evidence goes."""

from __future__ import annotations

import pytest
import structlog

from replicator.lane.partition import Admit, Commits, PositionCommitted, Reason, Wait
from replicator.lane.partitions import Partitions
from replicator.lane.positions import LanePositions
from replicator.model import checkpoint
from replicator.model.checkpoint import NOBODY, Evidence, Position
from replicator.model.errors import Incident
from replicator.model.partition import Committed, Partition, Seek
from replicator.model.route import Route
from replicator.planes.contract import Copied

SOURCE, TARGET = Partition("orders", 0), Partition("a.orders", 0)
OTHER = Partition("orders", 1)


def evidence(**changes: object) -> Evidence:
    known = {
        "generation": 1, "owner": "before", "source_topic": "orders", "source_cluster": "A", "source_topic_id": "s",
        "target_topic_id": "t", "next_target_offset": 50, "count": 50, "digest": "00" * 16, "leader_epoch": 2,
    } | changes  # fmt: skip
    return Evidence(**known)  # type: ignore[arg-type]


def book_of(
    *known: tuple[Partition, Position | None], delivery: str = "exactly_once", copied: bool = True
) -> LanePositions:
    """The positions of a lane that copies these partitions."""
    partitions = Partitions(structlog.get_logger(), lambda: 0.0)
    partitions.begin([Route(at, Partition("a.orders", at.partition), "s", "t") for at, _ in known])
    for at, position in known:
        partitions[at].position = position
        for event in (Admit(), PositionCommitted()) if copied else ():
            partitions.apply(at, event)
    return LanePositions(partitions, "me", 2, delivery)


def positions(offset: int = 100) -> LanePositions:
    return book_of(*((at, Position(offset, evidence())) for at in (SOURCE, OTHER)))


def test_records_move_offset_count_digest_and_target_offset() -> None:
    done = Copied(110, leader_epoch=3, records=9, bytes=1, digest="ff" * 16, first_target=51, next_target=60)
    moved = positions().next_positions({SOURCE: done}, {}, 77)
    assert moved.keys() == {SOURCE}
    position = moved[SOURCE]
    assert position.offset == 110
    was = position.evidence
    assert (was.count, was.digest, was.next_target_offset, was.leader_epoch) == (59, "ff" * 16, 60, 3)
    assert (was.block_first, was.block_count, was.owner, was.generation, was.committed_ms) == (51, 9, "me", 2, 77)
    assert was.digest_before == "00" * 16


def test_a_partition_end_moves_the_position_past_markers_but_claims_no_record() -> None:
    moved = positions().next_positions({}, {SOURCE: Seek(103, 4), OTHER: Seek(90, 4)}, 77)
    assert {at: position.offset for at, position in moved.items()} == {SOURCE: 103}
    assert moved[SOURCE].evidence.count == 50


@pytest.mark.parametrize("end_epoch", [4, -1])
def test_a_position_past_markers_has_their_epoch_or_none_but_no_older_one(end_epoch: int) -> None:
    """The older epoch ends before these offsets: the source's answer for it would look like truncation."""
    done = Copied(110, leader_epoch=3, records=9, digest="ff", first_target=51, next_target=60)
    moved = positions().next_positions({SOURCE: done}, {SOURCE: Seek(112, end_epoch), OTHER: Seek(101, end_epoch)}, 77)
    assert [moved[at].evidence.leader_epoch for at in (SOURCE, OTHER)] == [end_epoch, end_epoch]
    moved = positions().next_positions({SOURCE: done}, {SOURCE: Seek(110, end_epoch)}, 77)
    assert moved[SOURCE].evidence.leader_epoch == 3


def test_a_position_before_a_record_that_stops_it_has_that_record_s_epoch() -> None:
    """Markers of a newer epoch may stand between the last copied record and this one."""
    stopped = Incident("record_too_large", "", topic="orders", partition=0, offset=105)
    done = Copied(105, leader_epoch=4, blocked=stopped)
    position = positions().next_positions({SOURCE: done}, {}, 77)[SOURCE]
    assert (position.offset, position.evidence.leader_epoch, position.evidence.count) == (105, 4, 50)


def test_a_generation_that_is_newer_than_ours_stays_in_the_position() -> None:
    """It is what stops the partition: committed again as ours, it would stop nobody at the next start."""
    again = book_of((SOURCE, Position(100, evidence(generation=5))), copied=False).recommits(77)[TARGET]
    assert checkpoint.decode(again.metadata).generation == 5


def test_exactly_once_is_claimed_only_with_the_first_records_written_so() -> None:
    """Records behind the position are no sign of harm while an older, weaker process wrote it."""
    book = book_of((SOURCE, Position(100, evidence(delivery="at_least_once"))))
    again = checkpoint.decode(book.recommits(77)[TARGET].metadata)
    assert (again.delivery, again.owner) == ("at_least_once", "me")
    done = Copied(110, records=9, digest="ff", leader_epoch=2, first_target=51, next_target=60)
    assert book.next_positions({SOURCE: done}, {}, 77)[SOURCE].evidence.delivery == "exactly_once"
    book = book_of((SOURCE, Position(100, evidence())), delivery="at_least_once")
    assert checkpoint.decode(book.recommits(77)[TARGET].metadata).delivery == "at_least_once"


def test_positions_that_nothing_is_copied_to_are_kept_as_they_stand() -> None:
    left = Partition("a.left", 3)
    book = LanePositions(book_of().entries, "me", 2, "exactly_once", {left: checkpoint.read(Committed(7, "theirs"))})
    assert book.recommits(77) == {left: Committed(7, "theirs")}


def test_a_blocked_partition_never_moves_past_its_record() -> None:
    blocked = Incident("header_not_carriable", "x", topic="orders", partition=0, offset=105)
    done = Copied(105, records=5, digest="ff", first_target=50, next_target=55, blocked=blocked)
    moved = positions().next_positions({SOURCE: done}, {SOURCE: Seek(120, 2)}, 77)
    assert moved[SOURCE].offset == 105


def test_an_ack_below_the_promised_target_offset_is_an_incident() -> None:
    done = Copied(110, records=9, first_target=49, next_target=58)
    with pytest.raises(Incident, match="target_lost_data"):
        positions().next_positions({SOURCE: done}, {}, 77)


def test_a_partition_that_is_not_copied_is_not_read_but_committed_again_with_its_evidence() -> None:
    book = positions()
    book.entries.apply(SOURCE, Wait(Reason.NO_ANSWER, "the source is away"))
    assert book.seeks() == {OTHER: Seek(100, 2)}
    assert book.next_positions({}, {SOURCE: Seek(200, 2)}, 77) == {}
    again = book.recommits(77)
    assert again.keys() == {TARGET, Partition("a.orders", 1)}
    assert again[TARGET].offset == 100
    assert checkpoint.decode(again[TARGET].metadata).owner == "me"
    assert checkpoint.decode(again[TARGET].metadata).source_topic_id == "s"


def test_a_position_that_the_target_does_not_take_is_left_out() -> None:
    """One of them would make the whole TxnOffsetCommit fail, and all others expire."""
    book = positions()
    book.entries[SOURCE].commits = Commits.NO
    assert book.recommits(77).keys() == {Partition("a.orders", 1)}


def test_a_record_of_a_lower_leader_epoch_than_the_position_is_an_incident() -> None:
    done = Copied(110, leader_epoch=1, records=9, digest="ff", first_target=51, next_target=60)
    with pytest.raises(Incident, match="source_truncated"):
        positions().next_positions({SOURCE: done}, {}, 77)


def test_unreadable_metadata_is_committed_again_as_it_stands() -> None:
    book = book_of((SOURCE, None), copied=False)
    book.entries[SOURCE].unreadable = checkpoint.read(Committed(7, "theirs"))  # type: ignore[assignment]
    assert book.recommits(1) == {TARGET: Committed(7, "theirs")}


def test_positions_count_only_once_they_are_committed() -> None:
    book = positions()
    moved = book.next_positions({}, {SOURCE: Seek(103, 2)}, 77)
    assert book.seeks()[SOURCE].offset == 100
    book.on_committed(moved)
    assert book.seeks()[SOURCE].offset == 103


def owned_ms(book: LanePositions, now_ms: int, owner: str | None = None) -> int:
    return checkpoint.decode(book.recommits(now_ms, owner)[TARGET].metadata).owned_ms


def test_a_position_says_since_when_its_owner_has_it() -> None:
    """Since the lane's first commit, however often it is committed again; a release begins anew."""
    book = book_of((SOURCE, Position(100, evidence(owner="before", owned_ms=5))))
    assert [owned_ms(book, now_ms) for now_ms in (77, 99)] == [77, 77]
    moved = book.next_positions({}, {SOURCE: Seek(103, 2)}, 120)
    assert moved[SOURCE].evidence.owned_ms == 77
    assert owned_ms(book, 130, NOBODY) == 130
    again = book_of((SOURCE, Position(100, evidence(owner="me", owned_ms=5))))
    assert owned_ms(again, 77) == 5, "a new producer session of the same process"

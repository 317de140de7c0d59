"""Generations: the fold of the control topic, and what may be written next."""

from __future__ import annotations

import json

import pytest

from replicator.state.control_topic import Control, fold
from replicator.state.envelope import NewerFormat, unwrap
from replicator.state.generation import (
    WITH_FROZEN,
    WITH_SETTINGS,
    WITH_TOPICS,
    BadControl,
    Generation,
    Kind,
    LaneAssignment,
    Phase,
    decode,
)

LISTING = {"orders": 4}


def written(*records: Generation) -> Control:
    return fold((record.key, record.encode()) for record in records)


def first() -> Control:
    empty = Control()
    preparing = empty.prepare(LaneAssignment(2), LISTING, 1)
    begun = empty.apply(preparing)
    return written(preparing, *begun.finish(2))


def test_an_empty_control_topic_has_no_generation() -> None:
    assert fold([]).newest == 0
    assert fold([]).open is None


def test_a_flow_is_opened_in_two_records() -> None:
    begun = Control().apply(Control().prepare(LaneAssignment(2), LISTING, 1))
    assert begun.open is None
    assert begun.preparing is not None
    opened = first()
    assert opened.open is not None
    assert (opened.open.number, opened.open.lanes, opened.open.partitions) == (1, 2, LISTING)


def test_a_change_fences_every_id_that_is_not_closed_and_closes_it() -> None:
    control = first()
    change = control.prepare(LaneAssignment(3), {"orders": 9, "new": 1}, 3)
    under_way = control.apply(change)
    assert under_way.open is None, "nobody may start under preparing"
    assert under_way.to_fence() == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    done = under_way
    for record in under_way.finish(4):
        done = done.apply(record)
    assert done.open is not None
    assert done.open.number == 2
    assert done.generations[1].phase is Phase.CLOSED
    assert done.to_fence() == [(2, 0), (2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("generations", "one"),
    [
        ([], False),
        ([(1, 2, Kind.LIVE)], True),
        ([(1, 2, Kind.LIVE), (2, 2, Kind.LIVE), (3, 2, Kind.LIVE)], True),
        ([(1, 3, Kind.LIVE), (2, 2, Kind.LIVE)], False),
        ([(1, 2, Kind.LIVE), (2, 3, Kind.LIVE), (3, 2, Kind.LIVE)], False),
        ([(1, 2, Kind.LIVE), (2, 2, Kind.REPAIR), (3, 2, Kind.LIVE)], False),
        ([(3, 2, Kind.LIVE), (4, 2, Kind.LIVE)], False),
    ],
    ids=["none", "first", "same", "fewer", "back", "job", "lost"],
)
def test_a_lane_is_told_of_one_claims_partition_only_if_no_other_can_concern_it(
    generations: list[tuple[int, int, Kind]], one: bool
) -> None:
    control = Control({number: Generation(number, Phase.CLOSED, lanes, kind) for number, lanes, kind in generations})
    assert control.claims_partition(1) == (1 if one else None)
    backfill = Generation(1, Phase.CLOSED, 2, Kind.ROUNDS, listed={"t": 2})
    assert Control({1: backfill}).claims_partition(1) is None


def test_the_first_listing_is_carried_along_and_not_replaced() -> None:
    control = first()
    assert control.prepare(LaneAssignment(3), {"orders": 9, "new": 1}, 3).partitions == LISTING


def test_compaction_may_leave_only_the_latest_record_of_each_generation() -> None:
    closed = Generation(1, Phase.CLOSED, 2, partitions=LISTING)
    opened = Generation(2, Phase.OPEN, 1, partitions=LISTING)
    control = written(closed, opened)
    assert control.open == opened


@pytest.mark.parametrize(
    "records",
    [
        (Generation(1, Phase.OPEN, 1), Generation(1, Phase.PREPARING, 1)),
        (Generation(1, Phase.CLOSED, 1), Generation(1, Phase.OPEN, 1)),
        (Generation(1, Phase.OPEN, 1), Generation(1, Phase.OPEN, 1)),
    ],
)
def test_transitions_outside_the_table_are_refused(records: tuple[Generation, ...]) -> None:
    with pytest.raises(BadControl):
        written(*records)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"generation/1", None),
        (b"other/1", b"{}"),
        (b"generation/1", b'{"v":9}'),
        (b"generation/1", b"x"),
        (b"generation/2", Generation(1, Phase.OPEN, 1).encode()),
    ],
)
def test_foreign_records_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(BadControl):
        decode(key, value)


def test_records_of_a_newer_program_are_ignored_unless_they_must_be_understood() -> None:
    opened = first().open
    assert opened is not None
    body = json.loads(opened.encode())
    for newer in ({"v": WITH_TOPICS + 1}, {"kind": "decision"}):
        assert decode(b"decision/1", json.dumps({**body, **newer, "must_understand": False}).encode()) is None
        with pytest.raises(NewerFormat):
            decode(b"decision/1", json.dumps({**body, **newer}).encode())
    assert decode(b"decision/1", None) is None, "a tombstone of what isn't known"


def test_a_topic_without_an_open_or_preparing_generation_says_nothing() -> None:
    assert first().begun
    assert Control().apply(Control().prepare(LaneAssignment(2), LISTING, 1)).begun
    assert not Control().begun
    assert not Control({1: Generation(1, Phase.CLOSED, 1)}).begun


def test_the_assignment_is_part_of_the_format_and_never_changes() -> None:
    assert [LaneAssignment(4).lane_of("orders", p) for p in range(8)] == [2, 0, 2, 0, 3, 1, 3, 1]
    assert {LaneAssignment(1).lane_of("orders", p) for p in range(100)} == {0}
    spread = [sum(LaneAssignment(4).lane_of("t", p) == lane for p in range(400)) for lane in range(4)]
    assert min(spread) > 50


def test_a_listing_gives_each_partition_a_lane_of_its_own_and_strangers_some_lane() -> None:
    assignment = LaneAssignment.by_partition({"b": 2, "a": 3})
    assert (assignment.lanes, list(assignment.partitions())) == (5, [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)])
    assert [assignment.lane_of(*at) for at in assignment.partitions()] == [0, 1, 2, 3, 4]
    assert 0 <= assignment.lane_of("b", 2) < 5
    assert LaneAssignment.by_partition({}) == LaneAssignment(1)


def test_a_generation_comes_back_from_its_record_as_it_was() -> None:
    assignment = LaneAssignment.by_partition({"a": 3})
    prepared = Control().prepare(assignment, LISTING, 7, Kind.BACKFILL, "me")
    read = decode(prepared.key, prepared.encode())
    assert read == prepared
    assert (read.assignment, read.by) == (assignment, "me")


@pytest.mark.parametrize(
    "change",
    [
        {"assignment": "modulo"},
        {"assignment": "crc32(topic/partition) mod lanes"},
        {"listed": {"a": 4}},
        {"listed": {}},
        {"runs": "unknown"},
    ],
)
def test_an_assignment_that_is_not_known_is_refused(change: dict[str, object]) -> None:
    """A lane that took other partitions than its generation gives it would double them."""
    prepared = Control().prepare(LaneAssignment.by_partition({"a": 3}), LISTING, 7, Kind.BACKFILL)
    value = json.dumps({**json.loads(prepared.encode()), **change}).encode()
    with pytest.raises(BadControl):
        decode(prepared.key, value)


def test_what_was_failed_over_is_of_a_format_that_older_programs_refuse() -> None:
    control = first()
    change = control.prepare(LaneAssignment(1), {}, 5, Kind.FROZEN)
    frozen = control.apply(change)
    for record in frozen.finish(6):
        frozen = frozen.apply(record)
    assert frozen.open is not None
    assert (frozen.open.kind, frozen.open.lanes, frozen.open.partitions) == (Kind.FROZEN, 1, LISTING)
    key, value = frozen.open.key, frozen.open.encode()
    assert decode(key, value) == frozen.open
    with pytest.raises(NewerFormat):
        unwrap(key, value, frozenset({"generation"}), WITH_SETTINGS)
    assert frozen.daemon is not None
    assert frozen.daemon.number == 1


def opened(control: Control, change: Generation) -> Control:
    """What the topic says once a change is done."""
    done = control.apply(change)
    for record in done.finish(9):
        done = done.apply(record)
    return fold((record.key, record.encode()) for record in done.generations.values())


def test_topics_that_were_failed_over_are_in_every_later_generation_until_they_are_given_back() -> None:
    control = first()
    control = opened(control, control.prepare(LaneAssignment(2), {}, 5, failed_over={"orders": 2}))
    for kind in Kind:
        before = control.newest
        control = opened(control, control.prepare(LaneAssignment(before), {}, 6, kind, "somebody"))
        assert control.open is not None
        assert (control.open.kind, dict(control.open.failed_over)) == (kind, {"orders": 2})
        assert control.failed_over_said("orders").startswith("topic orders was failed over (generation 2, at 1970-")
        assert control.failed_over_said("payments") == ""
    control = opened(control, control.prepare(LaneAssignment(2), {}, 7, failed_over={}))
    assert control.failed_over == {}


def test_a_generation_that_leaves_out_topics_is_of_a_format_that_older_programs_refuse() -> None:
    for kind in (Kind.LIVE, Kind.FROZEN, Kind.BACKFILL):
        record = first().prepare(LaneAssignment(2), {}, 5, kind, failed_over={"orders": 2})
        assert decode(record.key, record.encode()) == record
        with pytest.raises(NewerFormat):
            unwrap(record.key, record.encode(), frozenset({"generation"}), WITH_FROZEN)
    given_back = first().prepare(LaneAssignment(2), {}, 5, failed_over={})
    assert unwrap(given_back.key, given_back.encode(), frozenset({"generation"}), 1) is not None

"""Token buckets on a given clock: what may be copied on average, and when the next record may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.flow.listing import Routing
from replicator.flow.worker import with_routes
from replicator.lane.plan import LanePlan
from replicator.lane.throttle import BURST_S, FIRST_RECORDS, TOPIC_RECORDS_MIN, FlowThrottle, TokenBucket
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.state.generation import LaneAssignment
from replicator.state.run_settings import NO_SETTINGS, Paused, RateLimit
from tests.replicator.lane.fakes.world import flow_starting

BY = Paused(by="ann", at_ms=1)


def limited(topic: str = "", records_per_s: int | None = None, bytes_per_s: int | None = None) -> FlowThrottle:
    made = FlowThrottle()
    limit = RateLimit(records_per_s=records_per_s, bytes_per_s=bytes_per_s)
    made.take(NO_SETTINGS.limit([topic] if topic else [], limit), 1)
    return made


def test_without_any_limit_nothing_is_held_back() -> None:
    made = FlowThrottle()
    made.spent(1.0, {"t": (10**9, 10**12)})
    assert made.left_s(1.0) == 0.0
    assert made.held(1.0) == frozenset()
    assert made.records_left(1.0, 1.0, 0, 0, ()) is None


@given(st.integers(1, 10_000), st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(0, 20_000)), max_size=40))
def test_a_bucket_never_gives_more_than_its_rate_and_one_burst_and_the_last_take(
    rate: int, takes: list[tuple[float, int]]
) -> None:
    """Whoever takes only when `left_s` is 0, at any times and any amounts."""
    bucket, now_s, taken, last = TokenBucket.full(rate, 0.0), 0.0, 0, 0
    for pause_s, amount in takes:
        now_s += pause_s
        now_s += bucket.left_s(now_s)
        bucket.take(now_s, amount)
        taken, last = taken + amount, amount
        assert taken - last <= rate * (now_s + BURST_S) + 1e-6 * rate
        assert bucket.level <= rate * BURST_S


def test_a_clock_that_stands_still_gives_nothing() -> None:
    bucket = TokenBucket.full(10.0, 5.0)
    bucket.take(5.0, 25)
    assert bucket.left_s(5.0) == pytest.approx(1.5)
    assert bucket.left_s(4.0) == pytest.approx(1.5), "an earlier time is no later one"
    assert bucket.left_s(6.5) == pytest.approx(0.0)


def test_the_larger_debt_counts_and_is_made_up_for() -> None:
    made = limited(records_per_s=100, bytes_per_s=1_000)
    made.spent(0.0, {"t": (150, 4_000)})
    assert made.left_s(0.0) == pytest.approx(3.0), "3,000 bytes over"
    assert made.left_s(2.0) == pytest.approx(1.0)
    assert made.left_s(3.0) == pytest.approx(0.0)


def test_a_topic_is_held_back_alone_until_it_has_saved_something_up() -> None:
    made = limited("t", records_per_s=10)
    made.spent(0.0, {"t": (20, 0), "u": (10**6, 0)})
    assert made.left_s(0.0) == 0.0
    assert made.held(0.0) == {"t"}
    assert made.held(1.2) == {"t"}, "one transaction after the other would be a fetch each"
    assert made.held(1.6) == frozenset()
    assert made.held(1.6) == frozenset()


def test_a_transaction_holds_what_may_be_copied_in_its_interval() -> None:
    made = limited(records_per_s=100)
    assert made.records_left(0.0, 0.1, 0, 0, ()) == 10
    assert made.records_left(0.0, 0.1, 7, 0, ()) == 3
    assert made.records_left(0.0, 60.0, 0, 0, ()) == 100, "no debt of a minute"
    assert limited(records_per_s=1).records_left(0.0, 0.1, 0, 0, ()) == 1
    size = limited(bytes_per_s=10_000)
    assert size.records_left(0.0, 1.0, 0, 0, ()) == FIRST_RECORDS
    size.spent(0.0, {"t": (10, 5_000)})
    assert size.records_left(0.0, 1.0, 0, 0, ()) == 20
    assert size.records_left(0.0, 1.0, 19, 19 * 500, ()) == 1
    assert size.records_left(0.0, 1.0, 0, 10**6, ()) == 20


def test_a_topic_s_limit_bounds_only_what_may_hold_its_records() -> None:
    made = limited("t", records_per_s=10)
    assert made.records_left(0.0, 1.0, 500, 0, ("u",)) == TOPIC_RECORDS_MIN, "its first ones may come with any poll"
    assert made.records_left(0.0, 1.0, 90, 0, ("u", "t")) == TOPIC_RECORDS_MIN - 90
    made.spent(0.0, {"t": (100, 0)})
    assert made.held(0.0) == {"t"}
    assert made.records_left(0.0, 1.0, 500, 0, ("u",)) is None


def test_settings_that_are_read_late_replace_no_newer_ones() -> None:
    first = NO_SETTINGS.pause([], BY)
    second = first.resume([])
    made = FlowThrottle()
    assert made.take(second, 1)
    assert not made.take(first, 1)
    assert made.paused("t") is None


def test_settings_of_a_control_topic_that_was_made_anew_replace_those_of_the_lost_one() -> None:
    """Nothing is set there, and numbers begin anew, under a generation that is higher than all before."""
    made, lost = FlowThrottle(), NO_SETTINGS.pause([], BY).limit([], RateLimit(records_per_s=1))
    assert made.take(lost, 2)
    assert made.take(NO_SETTINGS, 3), "nothing is paused or limited"
    assert (made.any_paused, made.rates()) == (False, {})
    assert not made.take(lost.pause(["t"], BY), 2), "by a lane that has not ended yet"
    assert made.take(NO_SETTINGS.pause(["t"], BY), 3)
    assert made.paused("t") == BY


def test_the_same_settings_under_the_next_generation_are_no_news() -> None:
    made, paused = FlowThrottle(), NO_SETTINGS.pause([], BY)
    assert made.take(paused, 2)
    assert not made.take(paused, 3)
    assert not made.take(NO_SETTINGS, 2)
    assert made.paused("t") == BY


def test_an_operator_s_rate_replaces_that_of_the_file_and_a_reset_brings_it_back() -> None:
    made, file = FlowThrottle(RateLimit(records_per_s=10)), RateLimit(records_per_s=10)
    assert made.rates() == {"": file}
    faster = NO_SETTINGS.limit([], RateLimit(records_per_s=1_000))
    made.take(faster, 1)
    assert made.records_left(0.0, 1.0, 0, 0, ()) == 1_000
    unlimited = faster.limit([], RateLimit())
    made.take(unlimited, 1)
    assert made.rates() == {}, "0 is no limit, whatever the file says"
    made.take(unlimited.limit([], None), 1)
    assert made.rates() == {"": file}


def test_a_change_of_one_limit_forgives_no_other_s_debt() -> None:
    made = limited("t", records_per_s=10)
    made.spent(0.0, {"t": (100, 0)})
    assert made.held(0.0) == {"t"}
    made.take(made.settings.limit([], RateLimit(records_per_s=5)), 1)
    assert made.held(1.0) == {"t"}


def plan(lane: int, lanes: int, at: Sequence[int], generation: int = 1) -> LanePlan:
    """A lane with these partitions of a topic."""
    routes = tuple(Route(Partition("t", number), Partition("t.copy", number), "s", "w") for number in at)
    flow = flow_starting("earliest", 3_600_000)
    return LanePlan(flow, generation, lane, "me", "c", routes, lanes, LaneAssignment(lanes))


def copied(throttle: FlowThrottle, seconds: float, topic: str, each: int = 10) -> int:
    """What a process copies that always has more, `each` records in a transaction."""
    now_s, records = 0.0, 0
    while now_s < seconds:
        if throttle.left_s(now_s) == 0.0 and topic not in throttle.held(now_s):
            throttle.spent(now_s, {topic: (each, each)})
            records += each
        now_s += 0.01
    return records


@pytest.mark.parametrize("at", ["", "t"])
def test_processes_that_share_a_flow_copy_no_more_together_than_its_limit(at: str) -> None:
    made = [limited(at, records_per_s=100) for _ in range(2)]
    for each in made:
        each.listed({"t": 8})
    made[0].runs(plan(0, 4, [0, 1, 2]))
    for lane, partitions in ((1, [3]), (2, [4, 5]), (3, [6, 7])):
        made[1].runs(plan(lane, 4, partitions))
    found = [copied(throttle, 60.0, "t") for throttle in made]
    assert sum(found) <= 100 * (60 + BURST_S) + 4 * 10
    assert sum(found) >= 100 * 60 * 0.95, "where all have something"
    assert found[0] / sum(found) == pytest.approx(3 / 8 if at else 1 / 4, abs=0.02)


def test_the_part_of_a_process_changes_with_its_lanes_and_what_it_owes_stays() -> None:
    made = limited(records_per_s=100)
    made.runs(plan(0, 2, [0]))
    made.runs(plan(1, 2, [1]))
    made.spent(0.0, {"t": (300, 300)})
    assert made.left_s(0.0) == pytest.approx(2.0)
    made.ended(plan(1, 2, [1]))
    assert made.left_s(0.0) == pytest.approx(4.0), "half as fast"
    made.runs(plan(0, 4, [0], generation=2))
    assert made.left_s(0.0) == pytest.approx(8.0), "lanes of a generation that is over count no more"
    assert made.records_left(0.0, 1.0, 0, 0, ()) == 25


def test_a_process_without_partitions_of_a_topic_and_one_that_runs_all_have_the_whole_limit() -> None:
    other, alone = limited("u", records_per_s=100), limited("t", records_per_s=100)
    other.runs(plan(0, 2, [0]))
    alone.runs(plan(0, 1, range(8)))
    for made, topic in ((other, "u"), (alone, "t")):
        assert made.held(0.0) == frozenset()
        made.spent(0.0, {topic: (300, 0)})
        assert made.held(1.9) == frozenset({topic})
        assert made.held(2.6) == frozenset()


def routing_of(partitions: int) -> Routing:
    sources = [Partition("t", number) for number in range(partitions)]
    return Routing({at: Route(at, Partition("t.copy", at.partition), "s", "w") for at in sources})


def dealt(lane: int, partitions: int) -> LanePlan:
    """One of two lanes, without routes, of a generation that was opened when the topic had so many partitions."""
    return replace(plan(lane, 2, []), assignment=LaneAssignment(2, dealt={"t": partitions}))


def discover(throttle: FlowThrottle, lanes: dict[int, LanePlan], partitions: int) -> None:
    """As a worker does: lanes whose own routes are as before go on."""
    routing = routing_of(partitions)
    throttle.listed(routing.topic_partitions)
    for lane, before in lanes.items():
        if (after := with_routes(before, routing)) != before or not before.routes:
            lanes[lane] = after
            throttle.runs(after)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (2, 4), (2, 6), (6, 5)])
def test_processes_keep_to_a_topic_s_limit_together_when_it_gets_other_partitions(before: int, after: int) -> None:
    made = [(limited("t", records_per_s=100), {lane: dealt(lane, before)}) for lane in range(2)]
    for partitions in (before, after):
        for throttle, lanes in made:
            discover(throttle, lanes, partitions)
    assert sum(copied(throttle, 60.0, "t") for throttle, _ in made) == pytest.approx(6000, rel=0.03)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (6, 5)])
def test_a_process_that_runs_all_lanes_has_a_topic_s_whole_limit_whatever_its_partitions(
    before: int, after: int
) -> None:
    made, lanes = limited("t", records_per_s=100), {lane: dealt(lane, before) for lane in range(2)}
    for partitions in (before, after):
        discover(made, lanes, partitions)
    assert copied(made, 60.0, "t") == pytest.approx(6000, rel=0.03)

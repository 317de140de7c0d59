"""Figures of lanes: counters never go back, and only the lanes that were made last show states."""

from __future__ import annotations

import pytest

from replicator.lane.partition import Copying, Reason, Waiting
from replicator.model.partition import Partition
from replicator.observe.figures import SECONDS, Figures, ObservedFlow
from replicator.planes.contract import Copied
from tests.replicator.observe.made import plan, position

A, B = Partition("t", 0), Partition("t", 1)
WAITS = Waiting(Reason.NO_ANSWER, "away", 0.0, 0.0)


@pytest.fixture
def flow() -> ObservedFlow:
    return Figures(["f"], lambda: 5_000).flows["f"]


def test_commits_add_up_over_lanes_and_attempts(flow: ObservedFlow) -> None:
    first = flow.lane(plan(0, "one"), lambda: {A: Copying()})
    first.session_began({A: 10})
    first.on_committed({A: Copied(12, records=2, bytes=20)}, {A: position(12)}, 0.02)
    second = flow.lane(plan(0, "two"), lambda: {A: WAITS})
    second.session_began({A: 12})
    second.on_committed({A: Copied(15, records=3, bytes=30)}, {A: position(15)}, 0.5)
    found = flow.figures()
    assert (found.partitions[A].records, found.partitions[A].bytes, found.partitions[A].position) == (5, 50, 15)
    assert found.partitions[A].committed_ms == 5_000
    assert found.lanes[0].sessions == 2
    assert found.states == {A: WAITS}


def test_positions_that_move_without_records_are_no_transaction_of_records(flow: ObservedFlow) -> None:
    lane = flow.lane(plan(0, "one"), dict)
    lane.on_committed({}, {A: position(7)}, 0.0)
    found = flow.figures()
    assert found.partitions[A].position == 7
    assert found.partitions[A].committed_ms == 0
    assert sum(found.lanes[0].took) == 0


def test_transactions_are_counted_by_how_long_they_took(flow: ObservedFlow) -> None:
    lane = flow.lane(plan(0, "one"), dict)
    for took_s in (SECONDS[0], SECONDS[0] + 0.001, SECONDS[-1] + 1):
        lane.on_committed({A: Copied(1, records=1)}, {}, took_s)
    assert flow.figures().lanes[0].took == [1, 1, *[0] * (len(SECONDS) - 2), 1]


def test_lanes_of_an_earlier_attempt_show_nothing(flow: ObservedFlow) -> None:
    flow.lane(plan(0, "one"), lambda: {A: Copying()})
    flow.lane(plan(1, "one"), lambda: {B: Copying()})
    assert flow.figures().states == {A: Copying(), B: Copying()}
    flow.lane(plan(0, "two"), lambda: {A: WAITS})
    assert flow.figures().states == {A: WAITS}


def test_what_waits_to_be_written_is_asked_of_the_lanes_that_were_made_last(flow: ObservedFlow) -> None:
    flow.lane(plan(0, "one"), dict, lambda: 300)
    flow.lane(plan(1, "one"), dict, lambda: None)
    assert {lane: it.queued_bytes for lane, it in flow.figures().lanes.items()} == {0: 300, 1: None}
    flow.lane(plan(1, "two"), dict, lambda: 5)
    assert {lane: it.queued_bytes for lane, it in flow.figures().lanes.items()} == {0: None, 1: 5}


def test_what_went_wrong_is_counted_by_kind(flow: ObservedFlow) -> None:
    lane = flow.lane(plan(0, "one"), dict)
    for kind in ("Abortable", "RecordsRefused", "Abortable"):
        lane.aborted(kind)
    lane.fenced()
    found = flow.figures().lanes[0]
    assert found.aborts == {"Abortable": 2, "RecordsRefused": 1}
    assert found.fenced == 1


def test_what_is_read_does_not_change_any_more(flow: ObservedFlow) -> None:
    lane = flow.lane(plan(0, "one"), dict)
    before = flow.figures()
    lane.session_began({A: 3})
    lane.aborted("Abortable")
    assert before.lanes[0].sessions == 0
    assert not before.lanes[0].aborts
    assert A not in before.partitions

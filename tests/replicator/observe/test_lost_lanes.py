"""What a worker shows of partitions whose lanes it has no more: gone only if others have them, or nobody shall."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.flow.group_members import FlowWorkers, HeldLane, ShownWorker
from replicator.flow.restarts import Stage
from replicator.lane.partition import Copying, PartitionState, Reason, Stopped, Waiting
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.observe.figures import Figures
from replicator.observe.lag import Lag
from replicator.observe.view import Doing, FlowView, Views
from replicator.state.generation import LaneAssignment
from replicator.workers.lane_stages import LaneStage
from tests.replicator.observe.made import FLOW, plan, position

pytestmark = pytest.mark.tier("default")

A, B = Partition("t", 0), Partition("t", 1)
ASSIGNMENT = LaneAssignment(2, dealt={"t": 2})
LANES = {at: ASSIGNMENT.lane_of(*at) for at in (A, B)}
OTHER = ShownWorker(host="other", pid=1, address="", lanes=(HeldLane(lane=LANES[B], since_ms=None),))


class Ends:
    """The source, which always answers: ten records are left of each partition."""

    def lags(self, positions: dict[Partition, int | None]) -> dict[Partition, Lag]:
        return {at: Lag(10, 1.0, 0) for at, position in positions.items() if position is not None}


class Shared:
    """A worker that runs both lanes of a flow."""

    def __init__(self) -> None:
        figures = Figures(["f"], lambda: 0)
        self.figures = figures
        self.worker = figures.worker(FLOW)
        self.states: dict[Partition, dict[Partition, PartitionState | None]] = {at: {at: Copying()} for at in (A, B)}
        self.lanes = {at: self._lane(at, "one") for at in (A, B)}
        self._views = Views({"f": ("a", "b")}, figures, {"f": Ends()}, lambda: {"f": Stage.RUNNING})  # type: ignore[dict-item]
        for at, lane in self.lanes.items():
            lane.on_committed({}, {at: position(3)}, 0.1)
        self.worker.rebalanced()
        self.run(A, B)

    def _lane(self, at: Partition, owner: str):  # type: ignore[no-untyped-def]
        states = self.states[at]
        made = replace(plan(LANES[at], owner), assignment=ASSIGNMENT)
        return self.figures.lane(made, lambda: states)

    def run(self, *partitions: Partition, assigned: bool = True) -> None:
        self.worker.stages({LANES[at]: LaneStage.RUNNING for at in partitions}, assigned=assigned)

    def again(self, at: Partition, owner: str = "one") -> None:
        self.lanes[at] = self._lane(at, owner)

    def members(self, *unassigned: int) -> None:
        found = FlowWorkers(flow="f", generation=1, lanes=2, workers=(OTHER,), unassigned=unassigned)
        self.worker.members(found, 0)

    def now(self) -> FlowView:
        return self._views.flows()[0]

    def doing(self) -> dict[Partition, Doing]:
        return {each.at: each.doing for each in self.now().partitions}


def test_without_membership_and_lanes_nothing_is_known_of_what_it_had() -> None:
    """As when the target is away: the source still answers, but nobody knows what of it is copied."""
    shared = Shared()
    shared.members()
    assert (shared.now().ready, shared.now().lag_records) == (True, 20)
    for lane in shared.lanes.values():
        lane.over()
    shared.run(assigned=False)
    view = shared.now()
    assert shared.doing() == {A: Doing.UNDECIDED, B: Doing.UNDECIDED}
    assert [each.lag for each in view.partitions] == [None, None]
    assert (view.lag_records, view.lag_seconds) == (None, None)
    assert not view.ready
    assert not view.lanes_run


def test_a_lane_that_ended_and_is_to_be_started_again_has_not_gone() -> None:
    shared = Shared()
    shared.members()
    shared.lanes[B].over()
    shared.worker.stages({LANES[A]: LaneStage.RUNNING, LANES[B]: LaneStage.BACKING_OFF}, assigned=True)
    assert shared.doing() == {A: Doing.COPYING, B: Doing.UNDECIDED}
    assert shared.now().lag_records is None
    shared.again(B)
    shared.run(A, B)
    assert shared.doing() == {A: Doing.COPYING, B: Doing.COPYING}
    assert shared.now().lag_records == 20


def test_what_another_member_has_is_gone_from_here() -> None:
    shared = Shared()
    shared.lanes[B].over()
    shared.run(A)
    assert shared.doing() == {A: Doing.COPYING, B: Doing.UNDECIDED}, "who has it isn't known yet"
    shared.members(LANES[B])
    assert shared.doing()[B] is Doing.UNDECIDED, "nobody has it"
    shared.members()
    assert shared.doing() == {A: Doing.COPYING, B: Doing.GONE}
    assert shared.now().ready
    assert shared.now().lag_records == 10
    shared.run(A, assigned=False)
    assert shared.doing()[B] is Doing.UNDECIDED, "what was known of the group holds no more"


def test_topics_that_nobody_copies_any_more_stay_gone() -> None:
    """Whether their lane was left out by the selection, or keeps a copy of what was deleted."""
    shared = Shared()
    del shared.states[A][A]
    shared.states[B][B] = Waiting(Reason.KEPT, "it was deleted", 0.0, 1.0)
    assert shared.doing() == {A: Doing.GONE, B: Doing.GONE}
    for lane in shared.lanes.values():
        lane.over()
    shared.run(assigned=False)
    assert shared.doing() == {A: Doing.GONE, B: Doing.GONE}
    assert not shared.now().ready


def test_partitions_of_an_earlier_attempt_are_unknown_until_their_lanes_are_made_again() -> None:
    shared = Shared()
    shared.run(A)
    shared.again(A, "two")
    assert shared.doing() == {A: Doing.COPYING, B: Doing.UNDECIDED}
    shared.again(B, "two")
    assert shared.doing() == {A: Doing.COPYING, B: Doing.COPYING}


def test_how_far_a_topic_is_behind_that_was_created_again_is_not_known() -> None:
    """Its offsets are others than the position's."""
    shared = Shared()
    shared.states[A][A] = Stopped(Incident("source_topic_recreated", "", topic=A.topic, partition=A.partition))
    assert [(each.at, each.lag) for each in shared.now().partitions] == [(A, None), (B, Lag(10, 1.0, 0))]
    assert shared.now().lag_records == 10

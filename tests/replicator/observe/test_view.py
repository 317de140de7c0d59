"""What a process shows of its flows at one moment: also of partitions that lanes don't have yet, or not any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest

from replicator.flow.restarts import Stage
from replicator.lane.partition import Copying, PartitionState, Reason, Stopped, Waiting
from replicator.lane.throttle import FlowThrottle
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.observe.figures import Figures
from replicator.observe.lag import Lag, LagWatch
from replicator.observe.shown import shown_of
from replicator.observe.view import Doing, FlowView, Views
from replicator.planes.contract import Copied
from replicator.state.run_settings import FLOW, NO_SETTINGS, Paused, RateLimit
from tests.replicator.observe.made import plan, position

A, B = Partition("t", 0), Partition("t", 1)


class OneFlow:
    """A flow of one lane, whose `states` are set."""

    def __init__(self) -> None:
        self.stage = Stage.RUNNING
        self.states: dict[Partition, PartitionState | None] = {A: None, B: None}
        figures = Figures(["f"], lambda: 0)
        self.lane = figures.lane(plan(0, "one"), lambda: self.states)
        self.figures = figures.flows["f"]
        self.causes: dict[str, str] = {}
        self._views = Views({"f": ("a", "b")}, figures, {}, lambda: {"f": self.stage}, lambda: self.causes)

    def exclude(self, *topics: str) -> None:
        """The flow file is read again, and has the flow copy these no more."""
        self._views.take({"f": ("a", "b")}, {}, lambda flow, topic: topic not in topics)

    def now(self) -> FlowView:
        return self._views.flows()[0]

    def doing(self) -> dict[Partition, Doing]:
        return {each.at: each.doing for each in self.now().partitions}


@pytest.fixture
def flow() -> OneFlow:
    return OneFlow()


def test_a_flow_whose_lanes_have_not_decided_yet_is_not_ready(flow: OneFlow) -> None:
    assert flow.doing() == {A: Doing.UNDECIDED, B: Doing.UNDECIDED}
    assert not flow.now().ready
    flow.states[A] = Copying()
    assert not flow.now().ready
    flow.states[B] = Copying()
    assert flow.now().ready


@pytest.mark.parametrize("failed_over", ["", "by ann"])
def test_what_the_flow_file_excludes_by_now_is_counted_and_not_shown(flow: OneFlow, failed_over: str) -> None:
    other = Partition("u", 0)
    flow.states = {A: Copying(), other: Copying()}
    flow.lane.on_committed({at: Copied(7, records=7, bytes=70) for at in (A, other)}, {}, 0.1)
    flow.states = {A: Copying()}
    flow.figures.conditions.failed_over(failed_over)
    assert sorted(row.name for row in shown_of(flow.now(), ()).topics) == ["t", "u"], "another worker may have it"
    flow.exclude("u")
    view, shown = flow.now(), shown_of(flow.now(), ())
    assert view.records == 14
    assert view.counts == {Doing.FAILED_OVER if failed_over else Doing.COPYING: 1}
    assert ([row.name for row in shown.topics], shown.topic_count) == (["t"], 1)
    assert [each.at for each in shown.kept] == ([A] if failed_over else [])


@pytest.mark.parametrize(("reason", "doing"), [(Reason.GONE, Doing.WAITING), (Reason.KEPT, Doing.GONE)])
def test_a_deleted_topic_is_shown_as_the_flow_says(flow: OneFlow, reason: Reason, doing: Doing) -> None:
    flow.states = {A: Copying(), B: Waiting(reason, "it isn't there", 0.0, 1.0)}
    assert flow.doing() == {A: Doing.COPYING, B: doing}
    assert flow.now().partitions[1].kind == reason.value
    assert flow.now().ready is (doing is Doing.GONE)


def test_a_topic_that_was_failed_over_keeps_nobody_from_being_ready(flow: OneFlow) -> None:
    flow.states = {A: Copying(), B: Waiting(Reason.FAILED_OVER, "it was", 0.0, 1.0)}
    assert flow.doing() == {A: Doing.COPYING, B: Doing.FAILED_OVER}
    assert flow.now().ready


def test_a_partition_that_has_gone_keeps_its_counters_and_keeps_nobody_from_being_ready(flow: OneFlow) -> None:
    flow.states = {A: Copying(), B: Copying()}
    flow.lane.on_committed({at: Copied(3, records=3) for at in (A, B)}, {at: position(3) for at in (A, B)}, 0.1)
    assert flow.figures.partition_positions() == {A: 3, B: 3}
    del flow.states[B]
    assert flow.doing() == {A: Doing.COPYING, B: Doing.GONE}
    assert flow.now().ready
    assert sum(each.figures.records for each in flow.now().partitions) == 6
    assert flow.figures.partition_positions() == {A: 3}, "the source is asked for it no more"


def test_a_flow_that_was_failed_over_as_a_whole_is_not_ready_and_has_no_lag(flow: OneFlow) -> None:
    flow.states = {A: Copying(), B: Copying()}
    flow.lane.on_committed({at: Copied(3, records=3) for at in (A, B)}, {at: position(3) for at in (A, B)}, 0.1)
    for flow.stage in (Stage.STARTING, Stage.RUNNING):
        flow.figures.conditions.failed_over("by ann")
        flow.lane.over()
        assert flow.doing() == {A: Doing.FAILED_OVER, B: Doing.FAILED_OVER}
        assert not flow.now().ready
        assert flow.now().lag_records is None
        assert flow.now().lag_seconds is None
        assert flow.now().records == 6
        flow.figures.conditions.failed_over("")
        assert set(flow.doing().values()) <= {Doing.GONE, Doing.UNDECIDED}


def test_a_flow_that_is_being_failed_over_is_not_ready_and_its_partitions_may_be_copied_by_others(
    flow: OneFlow,
) -> None:
    flow.states = {A: Copying()}
    flow.lane.on_committed({A: Copied(3, records=3)}, {A: position(3)}, 0.1)
    flow.lane.over()
    flow.figures.conditions.being_failed_over("by ann")
    assert Doing.FAILED_OVER not in flow.doing().values()
    found = flow.now()
    assert (found.ready, found.lag_records, found.conditions.failed_over) == (False, None, "")
    flow.figures.conditions.being_failed_over("")
    assert not flow.now().conditions


def test_a_flow_with_a_cluster_that_does_not_answer_is_not_ready(flow: OneFlow) -> None:
    flow.states = {A: Copying(), B: Copying()}
    assert flow.now().ready
    flow.figures.conditions.cluster_unreachable("b", 4.0)
    assert not flow.now().ready
    assert flow.now().lanes_run
    assert flow.doing() == {A: Doing.WAITING, B: Doing.WAITING}, "nothing is copied, and its lanes say so later"
    assert {(each.kind, each.detail) for each in flow.now().partitions} == {("no_answer", "no broker of b answers")}
    flow.states = {A: Copying(), B: Waiting(Reason.PAUSED, "by ann", 0.0, 1.0)}
    assert flow.doing() == {A: Doing.WAITING, B: Doing.PAUSED}
    flow.states[B] = Copying()
    flow.figures.conditions.cluster_answers("b")
    assert flow.now().ready


def test_what_is_paused_and_limited_is_shown_while_it_is_kept_to(flow: OneFlow) -> None:
    flow.states = {A: Copying(), B: Copying()}
    assert (flow.now().paused, flow.now().rates) == ({}, {})
    throttle, of_file = FlowThrottle(RateLimit(bytes_per_s=9)), RateLimit(bytes_per_s=9)
    flow.figures.throttled(throttle)
    assert flow.now().rates == {FLOW: of_file}
    own, paused = RateLimit(records_per_s=5, by="ann"), Paused(by="ann", at_ms=1)
    throttle.take(NO_SETTINGS.limit(["t"], own).pause(["u"], paused), 1)
    assert (flow.now().paused, flow.now().rates) == ({"u": paused}, {FLOW: of_file, "t": own})
    throttle.take(throttle.settings.limit([], RateLimit()), 1)
    assert flow.now().rates == {"t": own}, "the flow's own is lifted"
    flow.stage = Stage.ENDED
    assert (flow.now().paused, flow.now().rates) == ({}, {})


def test_before_and_after_it_runs_nothing_is_known_of_its_partitions(flow: OneFlow) -> None:
    flow.states = {A: Copying(), B: Copying()}
    flow.lane.on_committed({A: Copied(3, records=3)}, {A: position(3)}, 0.1)
    for flow.stage in (Stage.STARTING, Stage.ENDED, Stage.OVER):
        assert flow.doing() == {A: Doing.UNDECIDED}
        assert not flow.now().ready
        assert flow.now().lag_records is None
    flow.causes = {"f": "no login"}
    assert flow.now().cause == "no login"
    assert OneFlow().now().lag_records == 0, "it has no partition, and runs"


def lag_of(
    states: Mapping[Partition, PartitionState], known: Mapping[Partition, Lag]
) -> tuple[int | None, float | None]:
    """Of a flow whose partitions have positions, in records and seconds."""
    one = OneFlow()
    one.states = {at: Copying() for at in states}
    one.lane.on_committed({}, {at: position(3) for at in states}, 0.1)
    one.states = dict(states)
    view = one.now()
    view = replace(view, partitions=tuple(replace(each, lag=known.get(each.at)) for each in view.partitions))
    return view.lag_records, view.lag_seconds


def test_a_partition_that_waits_and_has_nobody_to_ask_hides_no_other_lag() -> None:
    away = Waiting(Reason.NO_ANSWER, "t[1] has no leader", 0.0, 1.0)
    lag = Lag(7, 2.0, 0)
    assert lag_of({A: Copying(), B: away}, {A: lag}) == (7, 2.0)
    assert lag_of({A: Copying(), B: away}, {A: lag, B: lag}) == (14, 2.0), "as long as it is known"
    assert lag_of({A: Copying(), B: Copying()}, {A: lag}) == (None, None)
    assert lag_of({A: away, B: away}, {}) == (None, None), "unknown is never zero"


@pytest.mark.parametrize(
    ("name", "offset", "shown", "lag"),
    [
        ("target_topic_recreated", -1, None, None),  # Kafka has deleted it with the topic
        ("source_topic_recreated", -1, None, None),
        ("target_topic_deleted", -1, None, None),
        ("position_expired", -1, None, None),
        ("target_topic_recreated", 3, 3, None),
        ("source_topic_recreated", 3, 3, None),
        ("source_topic_deleted", -1, 3, 3),
        ("record_refused", 3, 3, 3),
    ],
)
def test_a_position_that_is_gone_is_not_shown_and_all_of_another_topic_is_left_to_copy(
    flow: OneFlow, name: str, offset: int, shown: int | None, lag: int | None
) -> None:
    """As `status` says it, of a process that has copied the partition before."""
    flow.states = {A: Copying(), B: Copying()}
    flow.lane.on_committed({}, {at: position(3) for at in (A, B)}, 0.1)
    flow.states[B] = Stopped(Incident(name, "it is so", topic="t", partition=1, offset=offset))
    assert [each.figures.position for each in flow.now().partitions] == [3, shown]
    assert flow.figures.partition_positions() == {A: 3, B: lag}


@pytest.mark.parametrize("name", ["position_unreadable", "newer_format"])
def test_what_stands_in_place_of_a_position_is_shown_and_what_is_left_to_copy_is_unknown(name: str) -> None:
    """As `status` says it, also of a process that has copied the partition before."""
    asked: list[dict[Partition, int | None]] = []

    class Watch:
        def lags(self, positions: dict[Partition, int | None]) -> dict[Partition, Lag]:
            asked.append(positions)
            return {}

    states: dict[Partition, PartitionState | None] = {
        A: Stopped(Incident(name, "not ours", topic="t", partition=0, offset=7))
    }
    for before in ({}, {A: position(3)}):
        figures = Figures(["f"], lambda: 0)
        figures.lane(plan(0, "one"), lambda: states).on_committed({}, before, 0.1)
        views = Views({"f": ("a", "b")}, figures, {"f": cast(LagWatch, Watch())}, lambda: {"f": Stage.RUNNING})
        (shown,) = views.flows()[0].partitions
        assert (shown.figures.position, shown.lag) == (7, None)
    assert asked == [{}, {}]


def test_before_a_lane_has_read_positions_no_log_counts_as_left_to_copy() -> None:
    asked: list[dict[Partition, int | None]] = []

    class Watch:
        def lags(self, positions: dict[Partition, int | None]) -> dict[Partition, Lag]:
            asked.append(positions)
            return {}

    states: dict[Partition, PartitionState | None] = {A: None, B: None}
    figures = Figures(["f"], lambda: 0)
    figures.lane(plan(0, "one"), lambda: states)
    views = Views({"f": ("a", "b")}, figures, {"f": cast(LagWatch, Watch())}, lambda: {"f": Stage.RUNNING})
    views.flows()
    states[B] = Stopped(Incident("target_not_empty", "it is so", topic="t", partition=1))
    views.flows()
    assert asked == [{}, {B: None}]


def test_what_is_left_of_a_stopped_partition_without_a_position_counts_for_its_flow() -> None:
    gone = Stopped(Incident("target_topic_recreated", "it is so", topic="t", partition=1))
    assert lag_of({A: Copying(), B: gone}, {A: Lag(7, 2.0, 0), B: Lag(100, 9.0, 0)}) == (107, 9.0)
    assert lag_of({A: Copying(), B: gone}, {A: Lag(7, 2.0, 0)}) == (7, 2.0), "nobody can be asked for it"


def test_settings_of_a_topic_that_is_no_longer_in_the_flow_file_are_shown_as_such(flow: OneFlow) -> None:
    throttle = FlowThrottle()
    flow.figures.throttled(throttle)
    throttle.take(
        NO_SETTINGS.limit(["t"], RateLimit(records_per_s=1, by="ann")).pause(["u"], Paused(by="ann", at_ms=1)), 1
    )
    assert flow.now().taken_out == ()
    flow.exclude("u")
    assert flow.now().taken_out == ("u",)

"""A worker that shares its flow: which lanes it runs, when one may initialise its id, and what ends what."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from replicator.kafka.group_events import GroupTrouble, LanesTopicUnfit, MembershipLost
from replicator.model.errors import ConfigError, Fenced, Incident, LocalFault, NotAllowed, TakenOver, Unreachable
from replicator.observe.worker_figures import ObservedWorker
from replicator.state.generation import Kind, LaneAssignment
from replicator.state.own_file import own_file
from replicator.workers import membership
from replicator.workers.early import WorkerClientId
from replicator.workers.membership import LEAVING_S
from tests.replicator.flow.fakes import opened, topic
from tests.replicator.flow.shared_run import WAIT_S, Run, lanes_topic, running

__all__ = ["lanes_topic"]


def test_it_runs_the_lanes_that_it_is_given() -> None:
    with running() as (run, group):
        group.assign(1)
        lane = run.lane()
        assert lane.fenced.wait(WAIT_S)
        assert lane.plan.lane == 1
        assert {lane.plan.assignment.lane_of(*route.source) for route in lane.plan.routes} == {1}
        assert run.lanes.empty()
        assert run.stop() == 0
        assert lane.forgotten.is_set()


def test_a_lane_initialises_its_id_only_once_it_is_proved() -> None:
    """REBALANCE_IN_PROGRESS proves nothing: it asks again."""
    with running() as (run, group):
        group.error = "REBALANCE_IN_PROGRESS"
        group.assign(0)
        lane = run.lane()
        assert group.proved.wait(WAIT_S)
        group.proved.clear()
        assert group.proved.wait(WAIT_S)
        assert not lane.fenced.is_set()
        group.error = ""
        assert lane.fenced.wait(WAIT_S)


def test_a_lane_that_is_taken_away_copies_until_it_is_fenced() -> None:
    with running() as (run, group):
        group.assign(0, 1)
        first, second = sorted((run.lane(), run.lane()), key=lambda lane: lane.plan.lane)
        assert first.fenced.wait(WAIT_S)
        assert second.fenced.wait(WAIT_S)
        group.revoke(1)
        group.assign(0)
        second.end(Fenced("by another worker"))
        assert second.forgotten.wait(WAIT_S)
        assert not first.asked.is_set()
        assert run.lanes.empty()


def test_a_fenced_lane_that_is_still_its_own_is_started_again() -> None:
    with running() as (run, group):
        group.assign(0)
        lane = run.lane()
        assert lane.fenced.wait(WAIT_S)
        lane.end(Fenced("a transaction timed out"))
        assert run.lane().fenced.wait(WAIT_S)


def test_a_worker_that_has_lost_membership_and_lanes_tells_that_it_holds_nothing() -> None:
    """As when the target is away. It holds its lanes again once the group has given them back."""
    observer = ObservedWorker()

    def told(*, held: bool) -> None:
        give_up_s = time.monotonic() + WAIT_S
        while observer.figures.all_held is not held:
            assert time.monotonic() < give_up_s
            time.sleep(0.01)

    with running(observer=observer) as (run, group):
        group.assign(0, 1)
        lanes = [run.lane(), run.lane()]
        told(held=True)
        group.tell(MembershipLost())
        told(held=False)
        for lane in lanes:
            lane.end(Unreachable("away"))
            assert lane.forgotten.wait(WAIT_S)
        told(held=False)
        group.assign(0, 1)
        told(held=True)


def test_a_cause_in_the_clusters_ends_no_other_lane() -> None:
    with running() as (run, group):
        group.assign(0, 1)
        lanes = [run.lane(), run.lane()]
        assert all(lane.fenced.wait(WAIT_S) for lane in lanes)
        lanes[0].end(Unreachable("away"))
        again = run.lane()
        assert again.plan.lane == lanes[0].plan.lane
        assert not lanes[1].asked.is_set()


@pytest.mark.parametrize("error", [Incident("control_topic_lost", "gone"), RuntimeError("a bug")])
def test_an_incident_of_the_flow_or_a_bug_ends_it(error: BaseException) -> None:
    with running() as (run, group):
        group.assign(0, 1)
        lanes = [run.lane(), run.lane()]
        assert all(lane.fenced.wait(WAIT_S) for lane in lanes)
        lanes[0].end(error)
        assert run.end() is error
        assert lanes[1].asked.is_set()


def test_how_many_partitions_topics_have_is_told_before_lanes_run_and_when_it_changes() -> None:
    """Also to a worker whose lanes get none of those that are new."""
    told = queue.SimpleQueue[Mapping[str, int]]()
    settings = "lanes: 2, limits: {discovery_interval_ms: 100}"
    run = Run(settings, partitions=lambda flow, partitions: told.put(partitions))
    run.start().assign()
    assert told.get(timeout=WAIT_S) == {"t1": 8}
    run.plane.source["t1"] = topic("t1", 9)
    while told.get(timeout=WAIT_S) != {"t1": 9}:
        pass
    assert run.stop() == 0


def test_partitions_without_lanes_are_an_incident() -> None:
    with running() as (run, group):
        group.tell(LanesTopicUnfit(frozenset({2})))
        error = run.end()
        assert isinstance(error, Incident)
        assert error.name == "lanes_topic_unfit"


def test_the_worker_with_lane_0_has_the_duties() -> None:
    with running() as (run, group):
        group.assign(1)
        assert run.lane().fenced.wait(WAIT_S)
        group.assign(0, 1)
        assert run.lane().fenced.wait(WAIT_S)
        duty = run.duties.get(timeout=WAIT_S)
        group.revoke(0)
        assert duty.wait(WAIT_S)
        assert run.duties.empty()


def test_a_worker_stops_at_once_where_only_its_dead_predecessor_could_wait_for_its_lanes() -> None:
    """The group still counts the process that was killed, and has assigned nothing yet."""
    dead = WorkerClientId(socket.gethostname(), os.getpid(), "killed").encode()
    with running(members=lambda: [dead]) as (run, _):
        lanes = [run.lane(), run.lane()]
        assert all(lane.fenced.wait(WAIT_S) for lane in lanes)
        run.worker.stop()
        assert all(lane.asked.wait(LEAVING_S / 2) for lane in lanes)


def test_a_lone_worker_opens_its_lanes_early() -> None:
    """Nobody is in the group, or only processes of this host that have ended."""
    with running(members=list) as (run, group):
        lanes = [run.lane(), run.lane()]
        assert all(lane.fenced.wait(WAIT_S) for lane in lanes)
        assert not group.proved.is_set()
        group.assign(0, 1)
        shown = {group.proofs_asked.get(timeout=WAIT_S) for _ in range(2)}
        assert shown == {0, 1}, "others shall see who runs them"
        group.assign(0)  # another worker has joined meanwhile: it gets lane 1, and fences this one
        [given_away] = [lane for lane in lanes if lane.plan.lane == 1]
        given_away.end(Fenced("by another worker"))
        assert given_away.forgotten.wait(WAIT_S)
        assert run.lanes.empty()


def test_it_opens_none_early_beside_others() -> None:
    other = WorkerClientId("another-host", 1, "x").encode()
    with running(members=lambda: [other]) as (run, group):
        group.assign(0)
        run.lane()
        assert group.proved.wait(WAIT_S)


def test_a_group_that_cannot_be_asked_is_none_that_is_empty() -> None:
    def away() -> list[str]:
        raise Unreachable("away")

    with running(members=away) as (run, group):
        group.assign(0)
        run.lane()
        assert group.proved.wait(WAIT_S)


def test_without_a_right_on_the_group_it_ends_at_its_start() -> None:
    """Nothing would be copied, and nobody would know why. One that is taken away later is a trouble that passes."""
    denied = GroupTrouble(NotAllowed("cluster east: join needs Read on group w"))
    with running() as (run, group):
        group.tell(denied)
        assert isinstance(run.end(), NotAllowed)
    with running() as (run, group), capture_logs() as logs:
        group.assign(0)
        lane = run.lane()
        assert lane.fenced.wait(WAIT_S)
        group.tell(denied)
        group.assign(0, 1)
        run.lane()
        assert not lane.asked.is_set()
        assert [line["kind"] for line in logs if line["event"] == "group_trouble"] == ["NotAllowed"]


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError(), LocalFault("no certificate")])
def test_a_cause_of_its_own_process_has_it_leave_the_group_for_a_while(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other lane goes on until it is fenced, and it comes back by itself."""
    monkeypatch.setattr(membership, "AWAY_S", 0.05)
    with running() as (run, group):
        group.assign(0, 1)
        first, second = run.lane(), run.lane()
        assert first.fenced.wait(WAIT_S)
        assert second.fenced.wait(WAIT_S)
        group.subscribed.clear()
        first.end(error)
        assert group.left.wait(WAIT_S)
        assert group.subscribed.wait(WAIT_S), "again"
        assert not second.asked.is_set()
        group.assign(first.plan.lane)
        assert run.lane().plan.lane == first.plan.lane


def test_a_fault_of_the_settings_ends_the_flow() -> None:
    """Every other worker would meet it. The lane has ended before it had initialised its id."""
    with running() as (run, group):
        group.error = "REBALANCE_IN_PROGRESS"
        group.assign(0)
        run.lane().end(ConfigError("limits.transaction_timeout_ms is above the target's"))
        assert isinstance(run.end(), ConfigError)
        assert group.left.is_set()


def test_after_another_generation_it_goes_on_under_that_one() -> None:
    """Somebody has opened one with three lanes: all lanes end, and those of the new generation follow."""
    with running() as (run, group):
        group.assign(0)
        lane = run.lane()
        assert lane.fenced.wait(WAIT_S)
        run.plane.state.control_topic = opened(3, before=run.plane.state.control_topic)
        with capture_logs() as logs:
            lane.end(TakenOver.of_generation("generation 2 (live) has taken over from 1"))
            again = run.group()
            again.assign(2)
            follows = run.lane()
            assert follows.fenced.wait(WAIT_S)
        assert (follows.plan.generation, follows.plan.lane, follows.plan.claim_partitions) == (2, 2, 3)
        assert [line["own_lanes"] for line in logs if line["event"] == "lanes_followed"] == [2]


def test_it_stands_by_while_a_job_has_the_flow() -> None:
    run = Run("lanes: 2, limits: {discovery_interval_ms: 100}")
    before = opened(2, {"t1": 8}, own_file(run.flow))
    job = before.apply(before.prepare(LaneAssignment(1), {}, 3, Kind.BACKFILL, "job"))
    for record in job.finish(4):
        job = job.apply(record)
    run.plane.state.control_topic = job
    with capture_logs() as logs:
        run._thread.start()
        while not any(line["event"] == "standing_by" for line in logs):
            threading.Event().wait(0.01)
        back = job.apply(job.prepare(LaneAssignment(2), {}, 5))
        for record in back.finish(6):
            back = back.apply(record)
        run.plane.state.control_topic = back
        run.group().assign(0)
        assert run.lane().plan.generation == 3
    assert run.stop() == 0


def test_a_stop_while_it_stands_by_ends_it() -> None:
    run = Run()
    before = opened(2, {"t1": 8})
    run.plane.state.control_topic = before.apply(before.prepare(LaneAssignment(1), {}, 3, Kind.REPAIR, "job"))
    run._thread.start()
    run.worker.stop()
    assert run.end() == 0


def test_rounds_on_spark_that_take_over_end_it() -> None:
    with running() as (run, group):
        group.assign(0)
        lane = run.lane()
        assert lane.fenced.wait(WAIT_S)
        before = opened(2, {"t1": 8})
        rounds = before.apply(before.prepare(LaneAssignment(2), {}, 3, Kind.ROUNDS, "spark"))
        for record in rounds.finish(4):
            rounds = rounds.apply(record)
        run.plane.state.control_topic = rounds
        lane.end(TakenOver.of_generation("generation 2 (rounds) has taken over from 1"))
        assert isinstance(run.end(), TakenOver)

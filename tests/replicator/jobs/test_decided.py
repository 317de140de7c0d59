"""Partitions of a flow in rounds that an operator has decided about."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from replicator.flow.listing import Listing
from replicator.jobs.decided import DecidedPartitions
from replicator.jobs.range_copy import RangeDone, RangeTask
from replicator.jobs.ranges import plan as cut
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import checkpoint
from replicator.model.commands import Command
from replicator.model.errors import Incident, Unreachable
from replicator.model.partition import Committed, Partition
from replicator.state.claims import Claims
from replicator.state.occurrences import found
from tests.replicator.jobs.test_range_job import CONFLICT, Flows, T, U, evidence_of, opened, repeat, wait_running
from tests.replicator.jobs.test_range_policy import AT, RECORDS, plan, ranged
from tests.replicator.lane.fakes.world import World


@dataclass
class Failing:
    """Claims that can't be read at first."""

    error: Exception | None

    def __call__(self) -> Claims:
        if self.error is not None:
            raise self.error
        return Claims({}, ())


LOST = Incident("target_lost_data", "its end is gone", topic="t", partition=0, offset=10)


@pytest.fixture
def flows(monkeypatch: pytest.MonkeyPatch) -> Flows:
    flow = World().flow
    limits = flow.limits.model_copy(update={"discovery_interval_ms": 0})
    commit = flow.commit.model_copy(update={"interval_ms": 1})
    return Flows(flow.model_copy(update={"limits": limits, "commit": commit}), monkeypatch)


def test_a_stopped_partition_gets_a_task_once_it_is_decided_about(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows.answers[T] = Incident("source_truncated", "it was cut", topic="t", partition=0, offset=3)
    due = [frozenset[Partition](), frozenset[Partition](), frozenset({T})]
    monkeypatch.setattr(DecidedPartitions, "due", lambda self: due.pop(0) if due else frozenset())

    def decide(number: int) -> None:
        if number == 2:
            flows.answers.clear()

    repeat(flows, 5, decide)
    assert flows.positions[T].offset > 10
    assert not flows.made.incidents
    assert all(task.decides for task in flows.tasks)


def test_a_source_that_was_cut_below_the_position_gets_a_task_before_it_has_grown_again(flows: Flows) -> None:
    """Nothing is there to be copied; its lane finds the cut, which nothing may show later."""
    flows.ends = {T: 3, U: 10}
    flows.positions = {at: Committed(offset, checkpoint.encode(evidence_of(at))) for at, offset in ((T, 6), (U, 10))}
    flows.answers[T] = Incident("source_truncated", "it was cut", topic="t", partition=0, offset=6)
    repeat(flows, 6)
    assert [(task.at, task.start, task.end, task.copies) for task in flows.tasks if task.at == T] == [(T, 3, 3, True)]
    assert flows.made.incidents == {T: flows.answers[T]}


@pytest.mark.parametrize("left", [True, False])
def test_rounds_do_not_end_while_a_decision_is_only_postponed(
    flows: Flows, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    """All partitions are stopped, and the lane can't do now what was decided."""
    flows.listed, flows.ends = Listing({"t": TopicInfo("t", "t-id", 1, {})}), {T: 10}
    flows.answers[T] = Incident("record_too_large", "more than its target takes", topic="t", partition=0, offset=6)
    due = [frozenset[Partition](), frozenset({T}), frozenset[Partition](), frozenset({T})]

    def look(decided: DecidedPartitions) -> frozenset[Partition]:
        found = due.pop(0) if due else frozenset[Partition]()
        decided.left = bool(due) and left
        return found

    monkeypatch.setattr(DecidedPartitions, "due", look)
    repeat(flows, 5, lambda number: flows.answers.clear() if number == 3 else None)
    assert bool(flows.made.incidents) is not left
    assert flows.rounds == (5 if left else 3)


def keep_alive(flows: Flows, at: Partition = T) -> None:
    """Let the next round commit this partition's position again."""
    flows.made._kept_s[flows.made.generation.assignment.lane_of(*at)] = float("-inf")


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Flows:
    """Flows of which everything is copied, whose topics aren't listed again meanwhile; T is to be kept alive."""
    flow = World().flow
    commit = flow.commit.model_copy(update={"interval_ms": 1})
    flows = Flows(flow.model_copy(update={"commit": commit}), monkeypatch)
    flows.positions = {at: Committed(10, checkpoint.encode(evidence_of(at))) for at in (T, U)}
    monkeypatch.setattr(Flows, "both_if_any", lambda state: (state.control(), state.claims), raising=False)
    note_kept = flows.made._note_kept

    def note() -> None:
        note_kept()
        keep_alive(flows)

    flows.made._note_kept = note  # type: ignore[method-assign]
    return flows


def test_a_partition_that_a_keep_alive_task_has_stopped_goes_on_once_another_one_succeeds(idle: Flows) -> None:
    """That one has acted on what was decided, and closed the occurrence: nothing names the partition any more."""
    idle.answers[T] = LOST

    def then(number: int) -> None:
        if number == 1:
            assert idle.made.incidents == {T: LOST}
            idle.answers.clear()
            keep_alive(idle)

    repeat(idle, 5, then)
    assert all(task.decides for task in idle.tasks)
    assert [task.copies for task in idle.tasks if task.at == T][:3] == [False, False, True]
    assert idle.positions[T].offset > 10
    assert not idle.made.incidents


REFUSED = Incident("record_refused", "too large", topic="t", partition=0, offset=10)
"""Only who copies meets it."""


@pytest.mark.parametrize("open_", [True, False])
def test_a_partition_is_copied_again_once_its_incident_has_ended(idle: Flows, open_: bool) -> None:
    """A keep-alive task doesn't end what only copying shows: else that would be tried and told again each time, and a
    stop would say that nothing waits for a decision. It ends what it finds gone, and nobody could decide any more."""
    occurrence = found(REFUSED, Partition("t.copy", 0), T, "me", 1, 1, "t-id", "there")
    idle.occurrences = (occurrence,) if open_ else ()
    idle.ends[T] = 20
    copied = idle._copied

    def answer(task: RangeTask) -> RangeDone:
        idle.answers = {T: REFUSED} if task.copies else {}
        return copied(task)

    idle._copied = answer  # type: ignore[method-assign]

    def later(number: int) -> None:
        keep_alive(idle)
        idle.repeated._claims_s = 0.0

    repeat(idle, 5, later)
    tasks = [task for task in idle.tasks if task.at == T]
    assert all(task.decides for task in tasks)
    copies = [task.copies for task in tasks]
    assert copies == ([True, False, False, False, False] if open_ else [True, False, True, False, True])
    assert (T in idle.made.incidents, len(idle.told("incident"))) == (True, 1)


def test_claims_that_can_not_be_read_hold_up_no_round(idle: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    idle.made.incidents[T] = REFUSED
    idle.made.looked.add(T)
    monkeypatch.setattr(idle, "claims", fails := Failing(Unreachable("no leader")))
    assert idle.repeated._ended() == ()
    fails.error = None
    assert idle.repeated._ended() == (), "not in each round"
    idle.repeated._claims_s = 0.0
    assert idle.repeated._ended() == {T}
    assert idle.made.looked == set()


def test_a_backfill_keeps_the_incident_of_a_partition_whose_lane_is_kept_alive(
    idle: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would end with 0, and without all of its records."""
    monkeypatch.setattr(idle.made, "_waits", False)
    idle.ends, idle.slots = {T: 100, U: 90}, 1
    copied = idle._copied

    def answer(task: RangeTask) -> RangeDone:
        idle.answers = {T: REFUSED} if task.at == T and task.copies else {}
        if task.at == U:
            keep_alive(idle)  # copying has taken that long
        return copied(task)

    idle._copied = answer  # type: ignore[method-assign]
    job = opened(idle)
    before = job.read_offsets(stable=True).found
    job.run(idle, cut(before, 40), before, None)
    assert [(task.at, task.copies) for task in idle.tasks if task.at == T][-1:] == [(T, False)]
    assert job.incidents == {T: REFUSED}


def test_a_keep_alive_task_without_the_partition_says_nothing_of_what_has_stopped_it(idle: Flows) -> None:
    """Without a position it takes no part: its lane doesn't look at it."""
    idle.stopped[T] = CONFLICT
    del idle.positions[T]
    repeat(idle, 2)
    assert [(task.at, len(task.plan.routes)) for task in idle.tasks if not task.copies] == [(T, 0)]
    assert idle.made.incidents == {T: CONFLICT.at(0, -1)}


def test_a_keep_alive_task_writes_down_what_stops_its_partition_and_acts_on_what_was_decided() -> None:
    world = ranged()
    log = world.source.log(AT)
    task = RangeTask(plan(world), AT, 0, RECORDS, decides=True)
    assert world.run(policy=task.policy(), plan=task.plan) is None
    log.put(*(f"later-{number}" for number in range(4)))
    log.delete_before(RECORDS + 2)
    keeps = RangeTask(plan(world), AT, RECORDS, RECORDS, copies=False, decides=True)
    assert world.run(policy=keeps.policy(), plan=keeps.plan) is None
    (found,) = world.occurrences()
    assert (found.name, found.offset, found.is_open) == ("source_records_gone", RECORDS, True)
    world.resolve(Command.SKIP, AT)
    assert world.run(policy=keeps.policy(), plan=keeps.plan) is None
    assert [it.is_open for it in world.occurrences()] == [False]
    assert world.position(AT) == RECORDS + 2
    assert len(world.copied(AT)) == RECORDS, "it copies nothing"


def test_a_stray_commit_in_place_of_a_position_gets_a_task_in_the_next_round(idle: Flows) -> None:
    """Nothing is there to be copied by its offset; its lane writes down what it is."""

    def commit(number: int) -> None:
        if number == 1:
            idle.positions[T] = Committed(50, "a consumer's")
            idle.answers[T] = Incident("position_unreadable", "it isn't one", topic="t", partition=0, offset=50)

    repeat(idle, 4, commit)
    assert [(task.end, task.decides) for task in idle.tasks if task.at == T and task.copies] == [(11, True)]
    assert idle.made.incidents == {T: idle.answers[T]}


def test_no_partition_waits_for_the_task_of_one_whose_source_was_cut(flows: Flows) -> None:
    """It has a position: its empty range claims nothing, and its lane may wait for long."""
    flows.ends, flows.manual = {T: 3, U: 12}, True
    flows.positions = {at: Committed(offset, checkpoint.encode(evidence_of(at))) for at, offset in ((T, 6), (U, 10))}
    job = opened(flows)
    offsets = job.read_offsets(stable=True).found
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job.run, flows, flows.repeated._plan(offsets, []), offsets, None)
        try:
            wait_running(flows, ("t", 3, 3), ("u", 10, 12))
        finally:
            flows.asked.set()
        running.result(5)

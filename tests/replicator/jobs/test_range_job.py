"""Ranges on an engine, once and in rounds, without any cluster: what concerns one topic holds back no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import structlog

from replicator.config import Flow
from replicator.flow.discovery import FlowNotes
from replicator.flow.listing import Listing, Routing
from replicator.jobs.continuous import LogObserver, Rounds
from replicator.jobs.engine import Cancelled
from replicator.jobs.range_copy import RangeDone, RangeTask
from replicator.jobs.range_job import RangeJob
from replicator.jobs.ranges import Plan, plan
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import checkpoint
from replicator.model.checkpoint import Evidence
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, TakenOver, Unreachable
from replicator.model.partition import Committed, LogEnds, Partition
from replicator.model.route import Route
from replicator.state.claims import Claims
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Kind, LaneAssignment, Phase
from tests.replicator.lane.fakes.world import World

T, U, V = Partition("t", 0), Partition("u", 0), Partition("v", 0)
CONFLICT = Incident("flows_in_conflict", "another flow copies it", topic="t")


class Flows:
    """Fakes of all that a job is given: set-up, clients and engine. Tasks end at once, or when `finish` is called."""

    slots, has_map, map_topic_id, claim_partitions = 2, False, "", 1
    take_generation = staticmethod(lambda generation: None)

    def __init__(self, flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
        self.flow, self.state, self.source, self.plane, self.target_logs = flow, self, self, self, self
        self.source_cluster, self.target_cluster = "west-id", "east-id"
        self.ends = {T: 10, U: 10}
        self.positions: dict[Partition, Committed] = {}
        self.listed = Listing({name: TopicInfo(name, f"{name}-id", 1, {}) for name in ("t", "u")})
        self.stopped: dict[Partition, Incident] = {}
        self.waiting: dict[Partition, str] = {}
        self.answers: dict[Partition, ReplicatorError] = {}
        self.generations: list[Generation] = []
        self.tasks: list[RangeTask] = []
        self.rounds, self.given_up, self.occurrences = 0, 0, tuple[Any, ...]()
        self.manual, self.open = False, dict[Future[RangeDone], RangeTask]()
        self.events: list[dict[str, Any]] = []
        self.asked = threading.Event()
        self.taken_over = False
        monkeypatch.setattr(offset_reader, "positions", self.read_positions)
        log = structlog.wrap_logger(None, processors=[self._note], wrapper_class=structlog.BoundLogger)
        observer = LogObserver(log)
        self.made = RangeJob(flow, self, self, observer, log, self.asked, waits=True)  # type: ignore[arg-type]
        self.notes = FlowNotes(log)
        self.repeated = Rounds(flow, self, self, self.made, observer, self.notes, log, self.asked)  # type: ignore[arg-type]

    def _note(self, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        self.events.append(dict(event))
        raise structlog.DropEvent

    def told(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]

    # flow.setup.Setup

    def change(self, ask: object) -> Generation:
        listing = self.listed.partitions
        number, lanes = len(self.generations) + 1, sum(listing.values())
        opened = Generation(number, Phase.OPEN, lanes, Kind.ROUNDS, partitions=listing, listed=listing)
        self.generations.append(opened)
        return opened

    def wanted(self, listing: Listing, first: Iterable[str]) -> Listing:
        return listing

    def routes(self, listing: Listing) -> Routing:
        found = [Partition(name, number) for name, info in listing.topics.items() for number in range(info.partitions)]
        routes = {
            at: Route(
                at,
                Partition(f"{at.topic}.copy", at.partition),
                f"{at.topic}-id",
                "there",
                self.stopped.get(at),
                self.waiting.get(at, ""),
            )
            for at in found
        }
        return Routing(routes)

    first_routes = routes

    def listing(self) -> Listing:
        return self.listed

    def check_generation(self, generation: int, assignment: LaneAssignment) -> None:
        if self.taken_over:
            raise TakenOver("another generation is open")

    # clients: the source's ends, the flow's state

    def log_ends(self, partitions: Iterable[Partition]) -> dict[Partition, LogEnds | ReplicatorError]:
        return {at: LogEnds(f"{at.topic}-id", 0, self.ends.get(at, 0), self.ends.get(at, 0)) for at in partitions}

    def claims(self) -> Claims:
        return Claims({}, (), self.occurrences)

    def control(self) -> Control:
        return Control({found.number: found for found in self.generations})

    def read_positions(self, flow: Flow, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, Any]:
        found = {at: self.positions.get(Partition(at.topic.removesuffix(".copy"), at.partition)) for at in partitions}
        return {at: None if stored is None else checkpoint.read(stored) for at, stored in found.items()}

    # engine

    def submit(self, task: RangeTask) -> Future[RangeDone]:
        self.tasks.append(task)
        answer: Future[RangeDone] = Future()
        if self.manual:
            self.open[answer] = task
        else:
            answer.set_result(self._copied(task))
        return answer

    def running(self) -> list[tuple[str, int, int]]:
        """The tasks that have not ended: topic, start and end."""
        return [(task.at.topic, task.start, task.end) for task in self.open.values()]

    def finish(self, topic: str) -> None:
        answer = next(answer for answer, task in self.open.items() if task.at.topic == topic)
        answer.set_result(self._copied(self.open.pop(answer)))

    def give_up(self) -> None:
        self.given_up += 1
        for answer in self.open:
            answer.set_exception(Cancelled())
        self.open = {}

    def _copied(self, task: RangeTask) -> RangeDone:
        error, routed = self.answers.get(task.at), {route.source for route in task.plan.routes}
        if error is None and task.copies:
            self.positions[task.at] = Committed(task.end, checkpoint.encode(evidence_of(task.at)))
        return RangeDone(task.at, task.end if error is None and task.at in routed else -1, 0, 0, 0.0, "me", error)

    def cancel(self) -> None:
        self.give_up()


def evidence_of(at: Partition) -> Evidence:
    return Evidence(
        generation=1,
        owner="me",
        source_topic=at.topic,
        source_cluster="west-id",
        source_topic_id="",
        target_topic_id="",
        committed_ms=2**42,
    )


@pytest.fixture
def flows(monkeypatch: pytest.MonkeyPatch) -> Flows:
    flow = World().flow
    limits = flow.limits.model_copy(update={"discovery_interval_ms": 0})
    commit = flow.commit.model_copy(update={"interval_ms": 1})
    return Flows(flow.model_copy(update={"limits": limits, "commit": commit}), monkeypatch)


def opened(flows: Flows) -> RangeJob:
    flows.made.open(Kind.ROUNDS, flows.listed, lambda found: None)
    return flows.made


def repeat(flows: Flows, rounds: int, then: Callable[[int], None] = lambda number: None) -> None:
    """Continuous rounds until so many have run; `then` is called after each."""
    run = flows.made.run

    def one_more(*given: Any) -> None:
        run(*given)
        flows.rounds += 1
        then(flows.rounds)
        for at in flows.ends:
            flows.ends[at] += 1  # so that there is another one
        if flows.rounds >= rounds:
            flows.asked.set()

    flows.made.run = one_more  # type: ignore[method-assign,assignment]
    opened(flows)
    flows.repeated.run(flows, flows.listed)


def partitions(tasks: Iterable[RangeTask]) -> set[Partition]:
    return {task.at for task in tasks}


def planned(flows: Flows, job: RangeJob) -> tuple[Plan, Mapping[Partition, Any]]:
    found = job.read_offsets(stable=True).found
    return plan(found, 5), found


def started(flows: Flows, job: RangeJob, rate_max: float | None = None) -> Future[None]:
    """A run of the whole plan in a thread, whose tasks end when `finish` says so."""
    flows.manual = True
    with_plan = planned(flows, job)
    pool = ThreadPoolExecutor(1)
    running = pool.submit(job.run, flows, *with_plan, rate_max)
    pool.shutdown(wait=False)
    return running


def wait_running(flows: Flows, *expected: tuple[str, int, int]) -> None:
    deadline = time.monotonic() + 5
    while sorted(flows.running()) != sorted(expected):
        assert time.monotonic() < deadline, flows.running()
        time.sleep(0.005)


def test_a_free_slot_gets_the_next_range_at_once(flows: Flows) -> None:
    """Two slots, three partitions: the largest keeps one, and waits for nobody."""
    flows.listed = Listing({name: TopicInfo(name, f"{name}-id", 1, {}) for name in ("t", "u", "v")})
    flows.ends = {T: 100, U: 12, V: 11}
    running = started(flows, opened(flows))
    wait_running(flows, ("t", 0, 0), ("u", 0, 0))
    flows.finish("t")
    wait_running(flows, ("u", 0, 0), ("v", 0, 0))
    flows.finish("v")
    assert flows.running() == [("u", 0, 0)], "nothing is copied before all are claimed"
    flows.finish("u")
    wait_running(flows, ("t", 0, 90), ("u", 0, 5))  # 10 are left of t, fewer than of v
    flows.finish("u")
    wait_running(flows, ("t", 0, 90), ("v", 0, 5))  # v has 11, u 7
    flows.finish("v")
    wait_running(flows, ("t", 0, 90), ("u", 5, 10))
    flows.finish("t")
    wait_running(flows, ("t", 90, 95), ("u", 5, 10))
    flows.finish("t")
    wait_running(flows, ("u", 5, 10), ("v", 5, 10))
    flows.finish("v")
    wait_running(flows, ("t", 95, 100), ("u", 5, 10))
    for topic in ("u", "t", "u", "v"):
        wait_topic(flows, topic)
        flows.finish(topic)
    running.result(5)
    assert all(task.plan.routes[0].source == task.at for task in flows.tasks)


def wait_topic(flows: Flows, topic: str) -> None:
    deadline = time.monotonic() + 5
    while topic not in {name for name, _, _ in flows.running()}:
        assert time.monotonic() < deadline, flows.running()
        time.sleep(0.005)


def test_rates_never_add_up_to_more_than_the_limit(flows: Flows) -> None:
    flows.positions = {at: Committed(0, checkpoint.encode(evidence_of(at))) for at in (T, U)}
    running = started(flows, opened(flows), 100.0)
    wait_running(flows, ("t", 0, 5), ("u", 0, 5))
    assert [task.rate_max for task in flows.open.values()] == [50.0, 50.0]
    flows.slots = 4
    flows.finish("t")
    wait_running(flows, ("t", 5, 10), ("u", 0, 5))
    assert sum(task.rate_max or 0 for task in flows.open.values()) <= 100.0
    flows.finish("t")
    flows.finish("u")
    wait_running(flows, ("u", 5, 10))
    assert [task.rate_max for task in flows.open.values()] == [100.0]
    flows.finish("u")
    running.result(5)


def test_an_error_of_one_task_ends_the_others_with_the_job(flows: Flows) -> None:
    flows.positions = {at: Committed(0, checkpoint.encode(evidence_of(at))) for at in (T, U)}
    flows.answers[T] = TakenOver("another generation is open")
    running = started(flows, opened(flows))
    wait_running(flows, ("t", 0, 5), ("u", 0, 10))
    flows.finish("t")
    with pytest.raises(TakenOver):
        running.result(5)
    assert (flows.given_up, flows.running()) == (1, [])


def test_a_stop_cancels_what_runs(flows: Flows) -> None:
    flows.positions = {at: Committed(0, checkpoint.encode(evidence_of(at))) for at in (T, U)}
    running = started(flows, opened(flows))
    wait_running(flows, ("t", 0, 5), ("u", 0, 10))
    flows.finish("u")
    flows.asked.set()
    running.result(5)
    assert flows.running() == []
    assert flows.positions[U].offset == 10
    assert flows.told("stopping")


def test_the_conflict_of_one_topic_holds_back_no_other_and_its_end_is_noticed(flows: Flows) -> None:
    flows.stopped[T] = CONFLICT

    def resolve(number: int) -> None:
        if number == 4:
            assert flows.made.incidents == {T: CONFLICT.at(0, -1)}
            flows.stopped.clear()

    repeat(flows, 8, resolve)
    assert partitions(flows.tasks[:4]) == {U}
    assert partitions(flows.tasks[-2:]) == {T, U}
    assert not flows.made.incidents
    assert [event["name"] for event in flows.told("incident")] == ["flows_in_conflict"], "once, not at each listing"


def test_a_topic_that_waits_for_a_right_is_asked_about_again(flows: Flows) -> None:
    flows.waiting[T] = "cluster 'east': the user needs Create"
    repeat(flows, 8, lambda number: flows.waiting.clear() if number == 4 else None)
    assert partitions(flows.tasks[:4]) == {U}
    assert partitions(flows.tasks[-2:]) == {T, U}
    assert len(flows.told("waiting")) == 1


@pytest.mark.parametrize("error", [NotAllowed("the user needs Write"), Retriable("no commit for 270 s")])
def test_a_partition_whose_task_fails_waits_and_is_tried_again(flows: Flows, error: ReplicatorError) -> None:
    flows.answers[T] = error
    repeat(flows, 8, lambda number: flows.answers.clear() if number == 4 else None)
    assert flows.positions[T].offset > 10
    assert flows.positions[U].offset > 10
    assert len(flows.told("waiting")) == 1


def test_an_incident_of_a_task_stops_its_partition(flows: Flows) -> None:
    flows.answers[T] = Incident("source_truncated", "it was cut", topic="t", partition=0, offset=3)
    repeat(flows, 5)
    assert flows.made.incidents == {T: flows.answers[T]}
    assert partitions(flows.tasks[2:]) == {U}


def test_when_nothing_can_go_on_it_ends(flows: Flows) -> None:
    flows.stopped |= {T: CONFLICT, U: replace_topic(CONFLICT)}
    repeat(flows, 3)
    assert (flows.tasks, flows.rounds) == ([], 1)


def replace_topic(incident: Incident) -> Incident:
    return Incident(incident.name, incident.detail, topic="u")


def test_new_partitions_get_lanes_of_their_own_in_a_new_generation(flows: Flows) -> None:
    def grow(number: int) -> None:
        if number == 3:
            info = flows.listed.topics["u"]
            flows.listed = Listing({**flows.listed.topics, "u": replace(info, partitions=2)})
            flows.ends[Partition("u", 1)] = 4

    repeat(flows, 6, grow)
    assert [found.lanes for found in flows.generations] == [2, 3]
    assert Partition("u", 1) in partitions(flows.tasks[-3:])


def test_a_generation_that_was_replaced_ends_it(flows: Flows) -> None:
    def replaced(number: int) -> None:
        flows.taken_over = True

    with pytest.raises(TakenOver):
        repeat(flows, 5, replaced)
    assert flows.rounds == 1


def test_a_job_that_does_not_wait_gives_up_after_some_tries(flows: Flows) -> None:
    flows.made._waits = False
    flows.answers[T] = Unreachable("no answer")
    job = opened(flows)
    with pytest.raises(Unreachable):
        job.run(flows, *planned(flows, job), None)
    assert sum(task.at == T for task in flows.tasks) == 3


def test_positions_of_what_is_not_copied_are_kept_alive(flows: Flows) -> None:
    job = opened(flows)
    job.run(flows, *planned(flows, job), None)
    flows.positions = {
        at: Committed(found.offset, checkpoint.encode(replace(evidence_of(at), committed_ms=1)))
        for at, found in flows.positions.items()
    }
    flows.stopped[U] = replace_topic(CONFLICT)
    flows.ends[T] = 12
    job, flows.tasks = opened(flows), []
    offsets = {T: job.read_offsets(stable=True).found[T]}
    job.run(flows, plan(offsets, 5), offsets, None)
    assert [(task.at, task.copies) for task in flows.tasks] == [(T, True)], "its claim isn't known"
    job._kept_s[job.generation.assignment.lane_of(*U)] = float("-inf")
    job.run(flows, plan({}, 5), {}, None)
    assert [(task.at, task.copies) for task in flows.tasks[1:]] == [(U, False)]

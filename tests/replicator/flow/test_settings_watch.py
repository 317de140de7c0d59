"""What operators set reaches the lanes when the control topic has grown, and so does another generation; what
can't be read changes nothing."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from replicator.flow.settings_watch import LOOK_S, SettingsWatch
from replicator.kafka.offset_questions import ListedOffset
from replicator.lane.flow_decisions import FlowDecisions
from replicator.lane.throttle import FlowThrottle
from replicator.model.commands import Command
from replicator.model.errors import NotAllowed, ReplicatorError, Retriable, TakenOver, Unreachable
from replicator.model.partition import Partition
from replicator.state.control_topic import Control
from replicator.state.decisions import OperatorDecision
from replicator.state.generation import Generation, Kind, Phase
from replicator.state.run_settings import NO_SETTINGS, Paused, RunSettings
from replicator.workers.settings import FINISH_AFTER_S
from tests.replicator.flow.fakes import flow
from tests.replicator.wire.old_leader import cut_off

AT = Partition("__eos.f.control", 0)
RUNS = Generation(1, Phase.OPEN, 1)
BY = Paused(by="ann", at_ms=1)
LOG = structlog.get_logger()


@dataclass
class Target:
    """The control topic: where it ends, what it holds, and whether anybody answers. Time is simulated."""

    stable: int = 3
    end: int = 3
    settings: RunSettings = NO_SETTINGS
    generations: dict[int, Generation] = field(default_factory=lambda: {1: RUNS})
    fails: ReplicatorError | None = None
    answers: bool = True
    time_s: float = 0.0
    read: int = 0
    throttle: FlowThrottle = field(default_factory=FlowThrottle)
    decisions: FlowDecisions = field(default_factory=FlowDecisions)
    decided: dict[str, OperatorDecision] = field(default_factory=dict)
    refuses: ReplicatorError | None = None  # what is said of the ends
    ended: threading.Event = field(default_factory=threading.Event)

    wanted: Any = ()

    def list_offsets(self, partitions: Any, specs: Any) -> Target:
        self.wanted = specs
        return self

    def poll(self, timeout_s: float) -> bool:
        self.time_s += 0.0 if self.answers else timeout_s
        return self.answers

    def values(self) -> list[dict[Partition, object]]:
        refused = self.refuses if self.answers else Unreachable("no answer in time")
        return [{AT: refused or ListedOffset(self.stable if each.stable else self.end, -1)} for each in self.wanted]

    def close(self) -> None:
        pass

    def now_s(self) -> float:
        return self.time_s

    def now_ms(self) -> int:
        return int(self.time_s * 1000)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.time_s += timeout_s
        return event.is_set()

    def control(self) -> Control:
        self.read += 1
        if self.fails is not None:
            raise self.fails
        return Control(self.generations, settings=self.settings, decisions=dict(self.decided))

    def watch(self, log: Any) -> SettingsWatch:
        return self.watch_under(RUNS, log)

    def watch_under(self, runs: Generation, log: Any) -> SettingsWatch:
        told = self.throttle, self.decisions
        return SettingsWatch(flow(), runs, cast(Any, self), self.control, told, self.ended, log, self)


def watched(target: Target) -> SettingsWatch:
    return target.watch(structlog.get_logger())


def test_it_is_read_when_it_has_grown_and_told_when_it_says_something_else() -> None:
    with capture_logs() as logs:
        target = Target()
        watch = watched(target)
        for _ in range(3):
            watch.look()
        assert target.read == 1, "nothing is new"
        target.settings, target.stable, target.end = NO_SETTINGS.pause(["t"], BY), 5, 5
        watch.look()
        watch.look()
    assert target.read == 2
    assert target.throttle.paused("t") == BY
    assert [(it["event"], it["paused"]) for it in logs] == [("settings_taken", ["t"])]


def test_who_writes_just_now_is_not_waited_for() -> None:
    target = Target(stable=3, end=5)
    watch = watched(target)
    watch.look()
    assert target.read == 0
    target.stable = 5
    watch.look()
    assert target.read == 1


def test_what_cannot_be_read_is_told_once_and_tried_again() -> None:
    with capture_logs() as logs:
        target = Target(settings=NO_SETTINGS.pause([], BY), fails=Retriable("loading"))
        watch = watched(target)
        watch.look()
        watch.look()
        assert target.throttle.paused("t") is None
        target.fails = None
        watch.look()
    assert target.throttle.paused("t") == BY
    assert [it["event"] for it in logs] == ["settings_unread", "settings_taken"]


def test_an_old_leader_that_never_hears_of_what_is_new_is_left_and_not_believed_again() -> None:
    """It is cut off from the controllers, names itself, and answers: to it the topic never grows."""
    with cut_off(AT) as cluster, capture_logs() as logs:
        target = Target()
        told = target.throttle, target.decisions
        watch = SettingsWatch(flow(), RUNS, cluster.topics, target.control, told, target.ended, LOG)
        cluster.connect_to(0)
        watch.look()
        assert (target.read, target.throttle.paused("t")) == (1, None)
        target.settings = NO_SETTINGS.pause([], BY)
        watch.look()
        assert target.throttle.paused("t") is None, "the old leader's topic hasn't grown"
        cluster.expire()
        watch.look()
        assert target.throttle.paused("t") == BY
        cluster.connect_to(0)
        watch.look()
        assert target.read == 2, "its end is none"
        watch.look()
        assert target.read == 2
        assert watch._ends == (5, 5)
    assert [it["event"] for it in logs] == ["settings_taken", "settings_unread"]
    assert "leader epoch 7 is told, but 8 was before" in logs[1]["reason"]


def decided(occurrence: str) -> OperatorDecision:
    return OperatorDecision(
        occurrence=occurrence,
        command=Command.RETRY,
        name="record_refused",
        offset=1,
        end=2,
        by="ann",
        why="",
        at_ms=1,
        token="t",
    )


def test_decisions_reach_the_lanes() -> None:
    target = Target()
    watch = watched(target)
    watch.look()
    before = target.decisions.newest
    target.decided, target.stable, target.end = {"x": decided("x")}, 5, 5
    watch.look()
    assert dict(before) == {}
    assert target.decisions.newest == {"x": decided("x")}
    seen, target.settings, target.end = target.decisions.newest, NO_SETTINGS.pause(["t"], BY), 6
    target.stable = 6
    watch.look()
    assert target.throttle.paused("t") == BY
    assert target.decisions.newest is seen, "nothing else was decided"


@pytest.mark.parametrize("why", [Retriable("it has no leader"), NotAllowed("Describe"), None])
def test_a_topic_that_nobody_leads_or_answers_for_is_told_once_and_read_once_it_can_be(
    why: ReplicatorError | None,
) -> None:
    with capture_logs() as logs:
        target = Target(decided={"x": decided("x")}, refuses=why, answers=why is not None)
        watch = watched(target)
        watch.look()
        watch.look()
        assert not target.decisions.newest
        target.refuses, target.answers = None, True
        watch.look()
        assert target.decisions.newest == target.decided
        target.refuses = Retriable("it has no leader")
        watch.look()
        target.refuses = None
        watch.look()
        target.refuses = Retriable("it has no leader")
        watch.look()
    assert [it["event"] for it in logs] == ["settings_unread"] * 3, "another outage is told again"


def test_a_target_that_does_not_answer_holds_up_no_end() -> None:
    target = Target(answers=False)
    watched(target).look()
    assert target.read == 0
    assert 0 < target.time_s <= flow().limits.request_timeout_ms / 1000 + 1
    target.ended.set()
    target.time_s = 0.0
    watched(target).look()
    assert target.time_s <= 1.0


def test_another_generation_ends_this_one_once_it_is_open() -> None:
    target = Target()
    watch, failed = watched(target), list[BaseException]()
    watch.look()
    target.generations, target.stable, target.end = {1: RUNS, 2: Generation(2, Phase.PREPARING, 2)}, 4, 4
    watch.look()  # whoever prepares it fences the lanes before it opens, and may die before that
    target.generations = {1: RUNS, 2: Generation(2, Phase.OPEN, 2)}
    target.stable = target.end = 5
    watch.run(failed.append)
    assert target.read == 3
    assert [isinstance(error, TakenOver) and error.by_generation for error in failed] == [True]


@pytest.mark.parametrize("kind", Kind)
def test_a_change_that_nobody_finishes_is_told_once(kind: Kind) -> None:
    """That of another command waits for whoever calls that again."""
    target, failed = Target(), list[BaseException]()
    watch = watched(target)
    watch.look()
    begun = Generation(2, Phase.PREPARING, 2, kind, by="who has died")
    target.generations, target.stable, target.end = {1: RUNS, 2: begun}, 4, 4

    def told(error: BaseException) -> None:
        failed.append(error)
        seen_s.append(target.time_s)

    seen_s, first_s = list[float](), target.time_s
    target.wait = lambda event, timeout_s: _pass(target, event, timeout_s)  # type: ignore[method-assign]
    watch.run(told)
    assert target.read == 2, "it hasn't grown"
    if kind is not Kind.LIVE:
        assert not failed
        return
    (error,) = failed
    assert isinstance(error, TakenOver)
    assert (error.by_generation, error.half_done) == (True, (2, first_s))
    assert "who has died" in str(error)
    assert FINISH_AFTER_S <= seen_s[0] - first_s <= FINISH_AFTER_S + 2 * LOOK_S


@pytest.mark.parametrize(("before", "after", "told"), [("A", "B", False), ("A", "A", True), ("", "A", True)])
def test_a_change_to_another_source_cluster_is_left_to_whoever_wants_it(before: str, after: str, told: bool) -> None:
    """The workers of the first one would end their lanes, and stand by."""
    target = Target()
    runs = replace(RUNS, source_cluster=before)
    watch = target.watch_under(runs, LOG)
    begun = Generation(2, Phase.PREPARING, 2, source_cluster=after)
    target.generations = {1: runs, 2: begun}
    watch.look()
    target.time_s += FINISH_AFTER_S + 1
    with pytest.raises(TakenOver) if told else nullcontext():
        watch.look()


def test_a_change_that_is_opened_in_time_is_not_told() -> None:
    target = Target()
    watch = watched(target)
    begun = {1: RUNS, 2: Generation(2, Phase.PREPARING, 2)}
    target.generations, target.stable, target.end = begun, 4, 4
    watch.look()
    target.time_s += FINISH_AFTER_S - 1
    target.generations, target.stable, target.end = {1: RUNS}, 5, 5  # as if it had been taken back
    watch.look()
    target.generations, target.stable, target.end = begun, 6, 6
    watch.look()
    target.time_s += FINISH_AFTER_S - 1
    watch.look()
    target.time_s += 1
    with pytest.raises(TakenOver, match="nobody has opened it"):
        watch.look()


def _pass(target: Target, event: threading.Event, timeout_s: float) -> bool:
    target.time_s += timeout_s
    if target.time_s > 3 * FINISH_AFTER_S:
        event.set()
    return event.is_set()


def test_a_bug_ends_the_flow() -> None:
    failed: list[BaseException] = []
    target = Target()

    def broken() -> Control:
        raise KeyError("bug")

    target.control = broken  # type: ignore[method-assign]
    watched(target).run(failed.append)
    assert [type(error) for error in failed] == [KeyError]
    assert not isinstance(failed[0], Unreachable)

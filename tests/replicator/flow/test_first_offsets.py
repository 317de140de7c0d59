"""Starts are resolved when a flow is opened: for all partitions, in a bounded time; what isn't known is said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, MutableMapping
from typing import Any

import pytest
import structlog

from replicator.config import Flow
from replicator.flow import first_offsets
from replicator.flow.first_offsets import resolve_starts
from replicator.model.errors import NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.state.starts import Starts, TopicStarts
from tests.replicator.flow.fakes import flow
from tests.replicator.lane.fakes.cluster import FakeCluster
from tests.replicator.lane.fakes.log import Fate

A, B = Partition("t", 0), Partition("t", 1)
COUNTS = {"t": 2}
LATEST, TIME = "start: latest", "start: 1970-01-01T00:00:00.010Z"


class Leaderless(FakeCluster):
    """A source of which some partitions have no leader, for so many questions."""

    def __init__(self, **asked: int) -> None:
        super().__init__("a")
        self.create("t", 2)
        self.leaderless = {Partition("t", int(number[1:])): times for number, times in asked.items()}
        self.questions: list[int] = []
        self.on_ends: Callable[[], None] = lambda: None

    def log_ends(self, partitions: Collection[Partition]) -> dict[Partition, LogEnds | ReplicatorError]:
        self.questions.append(len(partitions))
        found = super().log_ends(partitions)
        for at in partitions:
            if self.leaderless.get(at, 0) > 0:
                self.leaderless[at] -= 1
                found[at] = Retriable(f"{at} has no leader")
        self.on_ends()
        return found


class Frozen(Leaderless):
    """A source of which the brokers that lead some partitions don't answer, and are not known to be dead yet."""

    def log_ends(self, partitions: Collection[Partition]) -> dict[Partition, LogEnds | ReplicatorError]:
        found = super().log_ends(partitions)
        return found | {at: Unreachable(f"{at}: no answer") for at, it in found.items() if isinstance(it, Retriable)}


def timed(settings: str, connect_timeout_ms: int = 1_000) -> Flow:
    return flow(f"{settings}, limits: {{connect_timeout_ms: {connect_timeout_ms}}}")


def resolve(of: Flow, source: FakeCluster, asked: threading.Event | None = None) -> tuple[Starts, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []

    def keep(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        events.append(dict(event))
        raise structlog.DropEvent

    log = structlog.wrap_logger(None, processors=[keep])
    return resolve_starts(of, source, COUNTS, asked or threading.Event(), log), events


def test_latest_is_the_last_stable_offset_of_every_partition_in_one_question() -> None:
    source = Leaderless()
    source.log(A).put("1", "2", "3")
    source.log(B).put("1")
    source.log(B).put("open", fate=Fate.OPEN)
    assert resolve(timed(LATEST), source) == ({"t": TopicStarts("a-1", (3, 1))}, [])
    assert source.questions == [2]


def test_many_partitions_are_asked_for_in_several_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_offsets, "TOGETHER", 1)
    source = Leaderless(p0=1)
    source.log(A).put("1", "2", "3")
    source.log(B).put("1")
    assert resolve(timed(LATEST, 60_000), source)[0] == {"t": TopicStarts("a-1", (3, 1))}
    assert source.questions == [1, 1, 1]


def test_a_record_that_comes_while_a_time_is_looked_up_is_never_left_out() -> None:
    """The ends are read first: what comes after that stands behind them."""
    source = Leaderless()
    source.log(A).put("early", at_ms=1)
    source.on_ends = lambda: source.log(A).put("between", at_ms=5)
    starts, _ = resolve(timed(TIME), source)
    assert starts["t"].offsets == (1, 0)
    source.log(B).put("early", at_ms=1)
    source.log(B).put("late", at_ms=11)
    assert resolve(timed(TIME), source)[0]["t"].offsets[1] == 1


def test_earliest_asks_nothing() -> None:
    source = Leaderless(p0=1)
    assert resolve(timed("start: earliest"), source) == ({}, [])
    assert source.questions == []


def test_a_partition_without_leader_is_waited_for_and_told() -> None:
    source = Leaderless(p1=2)
    source.log(B).put("1", "2")
    starts, events = resolve(timed(LATEST, 60_000), source)
    assert starts["t"].offsets == (0, 2)
    assert source.questions == [2, 1, 1], "only what isn't known is asked for again"
    assert [(e["event"], e["topic"], e["partition"]) for e in events] == [("start_not_resolved", "t", 1)]


@pytest.mark.tier("default")
def test_one_that_stays_without_leader_begins_at_earliest_and_that_is_said() -> None:
    source = Leaderless(p1=1_000_000)
    source.log(A).put("1", "2")
    starts, events = resolve(timed(LATEST), source)
    assert starts["t"].offsets == (2, None)
    assert [e["event"] for e in events] == ["start_not_resolved", "starts_at_earliest"]
    assert events[-1]["reason"] == "t[1] has no leader"


@pytest.mark.parametrize("asked", [{"p1": 3}, {"p0": 3, "p1": 3}])
def test_a_partition_whose_broker_does_not_answer_is_waited_for_and_told(asked: dict[str, int]) -> None:
    """Also where that broker leads all that is to be asked: others say which topics there are."""
    source = Frozen(**asked)
    source.log(A).put("1")
    source.log(B).put("1", "2")
    starts, events = resolve(timed(LATEST, 60_000), source)
    assert starts["t"].offsets == (1, 2)
    assert [(e["event"], e["partition"]) for e in events] == [("start_not_resolved", int(it[1])) for it in asked]


def test_one_whose_broker_stays_away_begins_at_earliest_and_the_others_do_not() -> None:
    source = Frozen(p1=1_000_000)
    source.log(A).put("1", "2")
    starts, events = resolve(timed(LATEST), source)
    assert starts["t"].offsets == (2, None)
    assert [e["event"] for e in events] == ["start_not_resolved", "starts_at_earliest"]


def test_nothing_is_resolved_without_the_right_to_ask_or_without_an_answer() -> None:
    source = Leaderless()
    source.denied["t"] = {"Describe"}
    with pytest.raises(NotAllowed):
        resolve(timed(LATEST), source)
    source.down = True
    with pytest.raises(Unreachable):
        resolve(timed(LATEST), source)


def test_a_stop_ends_the_wait_and_decides_nothing() -> None:
    asked = threading.Event()
    asked.set()
    with pytest.raises(Retriable, match="asked to stop"):
        resolve(timed(LATEST, 60_000), Leaderless(p0=1_000_000), asked)


def test_offsets_of_a_topic_that_is_created_again_meanwhile_are_forgotten() -> None:
    source = Leaderless(p1=1)
    source.log(A).put("1", "2")

    def recreate() -> None:
        source.on_ends = lambda: None
        source.delete("t")
        source.create("t", 2)
        source.log(B).put("1")

    source.on_ends = recreate
    starts, _ = resolve(timed(LATEST, 60_000), source)
    assert starts == {"t": TopicStarts("a-2", (None, 1))}

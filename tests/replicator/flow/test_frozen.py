"""Positions of a flow that was failed over: a right that is missing on one topic lets no other's expire."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from replicator.config import Flow
from replicator.failover import facts
from replicator.flow import frozen
from replicator.flow.frozen import keep_positions, while_frozen
from replicator.flow.parts import NoConditions
from replicator.flow.topics import ControlPlane
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import names
from replicator.model.checkpoint import Stored, Unreadable
from replicator.model.errors import NotAllowed, ReplicatorError, Retriable
from replicator.model.partition import Committed, Partition
from replicator.state.claims import Claims
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Kind, Phase
from replicator.workers.settings import FINISH_AFTER_S
from tests.replicator.flow.fakes import claim, flow

pytestmark = pytest.mark.tier("default")

MINE, THEIRS = Partition("a.t1", 0), Partition("a.t2", 0)
ALL = frozenset({"Describe", "Read", "Write"})
FROZEN = Generation(2, Phase.OPEN, 1, kind=Kind.FROZEN)
HALF = replace(FROZEN, phase=Phase.PREPARING, by="who has died", at_ms=5)
LIVE_CLOSED, LIVE = Generation(1, Phase.CLOSED, 1), Generation(1, Phase.OPEN, 1)


@dataclass
class Target:
    """The target of a flow with two topics, and a plane of it. `rights` of its user, by topic."""

    rights: dict[str, frozenset[str] | None] = field(default_factory=lambda: {"a.t1": ALL, "a.t2": ALL})
    unread: dict[Partition, ReplicatorError] = field(default_factory=dict)
    committed: list[set[Partition]] = field(default_factory=list)
    refuses: list[NotAllowed] = field(default_factory=list)
    generations: dict[int, Generation] = field(default_factory=lambda: {1: LIVE_CLOSED, 2: FROZEN})
    opened: list[str] = field(default_factory=list)  # by which process, of a change that was half done

    def describe(self, topics: Iterable[str], *, rights: bool = False) -> dict[str, TopicInfo | ReplicatorError]:
        return {name: self._described(name, rights=rights) for name in topics}

    def _described(self, name: str, *, rights: bool) -> TopicInfo | ReplicatorError:
        found = self.rights[name]
        if found is not None and "Describe" not in found:
            return NotAllowed(f"cluster 'b': the user needs Describe on topic {name!r}")
        return TopicInfo(name, f"id-{name}", 1, rights=found if rights else None)

    def connect(self, *_: object) -> None:
        pass

    # the plane and its state

    @property
    def target(self) -> Target:
        return self

    state = target

    def claims(self) -> Claims:
        return Claims({it.target: it for it in (claim("t1"), claim("t2"))}, ())

    def control(self) -> Control:
        return Control(dict(self.generations))

    control_if_any = control

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    # the reader and the producer

    group_metadata = object()

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, Stored | ReplicatorError | None]:
        return {
            at: self.unread.get(at, Unreadable(Committed(7, "x"), "position_foreign", "in a test")) for at in partitions
        }

    def send_positions(self, group: str, offsets: Mapping[Partition, Committed], member: object) -> None:
        if self.refuses:
            raise self.refuses.pop()
        lacking = [at for at in offsets if "Read" not in (self.rights[at.topic] or ALL)]
        if lacking:
            raise NotAllowed(f"commit positions in group {group!r}: the user needs Read")
        self.committed.append(set(offsets))

    def fence(self) -> None:
        pass

    begin = end = close = fence


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    made = Target()
    monkeypatch.setattr(frozen, "TransactionalProducer", lambda *_: made)
    monkeypatch.setattr(frozen, "OffsetReader", lambda flow: made)
    monkeypatch.setattr(facts, "OffsetReader", lambda flow: made)
    monkeypatch.setattr(frozen, "ControlPlane", lambda flow: made)
    return made


def kept(target: Target) -> Any:
    return keep_positions(flow(), cast(ControlPlane, target), FROZEN)


def test_all_are_kept_whose_rights_are_there(target: Target) -> None:
    target.rights["a.t2"] = None  # the broker doesn't say
    assert (kept(target).denied, target.committed) == ({}, [{MINE, THEIRS}])


@pytest.mark.parametrize("right", ["Read", "Describe"])
def test_a_topic_without_a_right_is_left_out_and_named(target: Target, right: str) -> None:
    target.rights["a.t2"] = ALL - {right}
    (topic, why) = kept(target).denied.popitem()
    assert target.committed == [{MINE}]
    assert topic == "a.t2"
    assert f"needs {right} on topic 'a.t2'" in str(why)


def test_so_is_one_whose_position_may_not_be_read(target: Target) -> None:
    target.unread[THEIRS] = NotAllowed("cluster 'b': the user needs Describe on topic 'a.t2'")
    assert set(kept(target).denied) == {"a.t2"}
    assert target.committed == [{MINE}]


def test_any_other_error_of_a_partition_keeps_none(target: Target) -> None:
    target.unread[THEIRS] = Retriable("its coordinator has moved")
    with pytest.raises(Retriable):
        kept(target)
    assert target.committed == []


def read(target: Target) -> Mapping[Partition, Stored]:
    return facts.read_positions(flow(), cast(ControlPlane, target))


def test_positions_are_read_without_the_right_to_commit_them(target: Target) -> None:
    target.rights = {"a.t1": ALL - {"Read"}, "a.t2": None}
    assert set(read(target)) == {MINE, THEIRS}


def test_who_reads_them_is_told_of_every_topic_that_may_not_be_seen(target: Target) -> None:
    target.rights["a.t1"] = frozenset()
    target.unread[THEIRS] = NotAllowed("cluster 'b': the user needs Describe on topic 'a.t2'")
    with pytest.raises(NotAllowed, match=r"Describe on topic 'a\.t1'; .*Describe on topic 'a\.t2'"):
        read(target)


class Asked(threading.Event):
    """A stop is asked for after so many looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        return self.left <= 0


def looked(target: Target, of: Flow, looks: int) -> list[Any]:
    with capture_logs() as logs:
        while_frozen(of, Asked(looks), structlog.get_logger(), lambda: None, NoConditions())
    return [(it["event"], it.get("partitions", it.get("reason"))) for it in logs if it["event"].startswith("positions")]


def always_due() -> Flow:
    made = flow()
    return made.model_copy(update={"limits": made.limits.model_copy(update={"recommit_interval_ms": 0})})


def test_what_is_left_out_is_told_and_the_process_stays(target: Target) -> None:
    target.rights["a.t1"] = ALL - {"Read"}
    told = looked(target, always_due(), 2)
    assert [event for event, _ in told] == ["positions_kept", "positions_not_kept"] * 2
    assert told[0][1] == 1
    assert "needs Read on topic 'a.t1'" in told[1][1]
    assert target.committed == [{THEIRS}, {THEIRS}]


NO_GROUP = NotAllowed(f"the user needs Read on group {names.position_group('f')!r}")


def test_a_right_of_the_whole_flow_that_is_missing_at_the_beginning_ends_it(target: Target) -> None:
    target.refuses = [NO_GROUP]
    with pytest.raises(NotAllowed):
        looked(target, always_due(), 2)


def test_one_that_is_taken_away_later_is_waited_for(target: Target) -> None:
    class TakenAway(Asked):
        def wait(self, timeout: float | None = None) -> bool:
            target.refuses = [NO_GROUP] if self.left == 3 else []
            return super().wait(timeout)

    with capture_logs() as logs:
        while_frozen(always_due(), TakenAway(3), structlog.get_logger(), lambda: None, NoConditions())
    events = [it["event"] for it in logs if it["event"].startswith("positions")]
    assert events == ["positions_kept", "positions_not_kept", "positions_kept"]
    assert target.committed == [{MINE, THEIRS}] * 2


class FakeChanger:
    """Finishes what `target` has half done. `meanwhile`: what others do before it has the control id."""

    def __init__(self, target: Target, by: str, meanwhile: Mapping[int, Generation] | None) -> None:
        self.target, self.by, self.meanwhile = target, by, meanwhile

    def ensure(
        self, propose: Callable[[Control], None], listing: object, may_replace: object
    ) -> tuple[Generation | None, bool]:
        self.target.generations.update(self.meanwhile or {})
        control = self.target.control()
        propose(control)
        if control.open is not None:
            return control.open, False
        assert control.preparing is not None
        self.target.opened.append(self.by)
        self.target.generations = {1: LIVE_CLOSED, 2: replace(control.preparing, phase=Phase.OPEN)}
        return control.preparing, True


class Ticking(Asked):
    """Time passes, by this process's own clock, while it waits. The clock on the wall is an hour behind all others."""

    def __init__(self, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(looks)
        self.now_s = 100.0
        clock = SimpleNamespace(monotonic=lambda: self.now_s, time=lambda: 0.0, time_ns=lambda: 0)
        monkeypatch.setattr(frozen, "time", clock)

    def wait(self, timeout: float | None = None) -> bool:
        self.now_s += timeout or 0.0
        return super().wait(timeout)


class Said(NoConditions):
    """Hears what is told of a flow that is failed over; `half`: that it is about to be."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.whole = ""

    def failed_over(self, said: str) -> None:
        self.whole = said

    def being_failed_over(self, said: str) -> None:
        self.said.append((self.whole, said))


def half_done(
    target: Target, asked: Asked, monkeypatch: pytest.MonkeyPatch, meanwhile: Mapping[int, Generation] | None = None
) -> tuple[list[str], list[tuple[str, str]]]:
    """A failover whose command has died is found; the log's events, and what is told."""
    target.generations = {1: LIVE, 2: HALF}
    monkeypatch.setattr(frozen, "Changer", lambda flow, state, by, *_: FakeChanger(target, by, meanwhile))
    told = Said()
    with capture_logs() as logs:
        while_frozen(always_due(), asked, structlog.get_logger(), lambda: None, told)
    return [str(it["event"]) for it in logs], told.said


def test_a_failover_whose_command_has_died_is_finished_and_the_positions_are_kept(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Ticking(5, monkeypatch)
    events, said = half_done(target, asked, monkeypatch)
    assert events[:4] == ["being_failed_over", "failover_finished", "failed_over", "positions_kept"]
    assert len(target.opened) == 1
    (no_whole, half), (whole, no_half), (over, half_over) = said
    assert "may still copy" in half
    assert "nothing is copied" in whole
    assert (no_whole, no_half, over, half_over) == ("", "", "", "")
    assert target.committed


def test_who_is_at_it_is_not_cut_short(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    events, _ = half_done(target, Ticking(2, monkeypatch), monkeypatch)
    assert (events, target.opened) == (["being_failed_over"], [])


def test_what_is_undone_meanwhile_is_not_finished(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    back = Generation(3, Phase.PREPARING, 1, by="ann")
    closed = {2: replace(HALF, phase=Phase.CLOSED)}
    events, _ = half_done(target, Ticking(4, monkeypatch), monkeypatch, {**closed, 3: back})
    assert target.opened == []
    assert events == ["being_failed_over", "positions_not_kept"]
    events, _ = half_done(target, Ticking(9, monkeypatch), monkeypatch, {**closed, 3: replace(back, phase=Phase.OPEN)})
    assert (events, target.opened) == (["being_failed_over", "failover_undone"], [])


def test_an_undoing_is_waited_for_by_this_processs_own_clock(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """`at_ms` is of another host, whose clock may be hours ahead."""
    asked = Ticking(50, monkeypatch)

    class Undone(NoConditions):
        def failed_over(self, said: str) -> None:
            ahead_ms = 3_600_000
            target.generations[3] = Generation(3, Phase.PREPARING, 1, by="who has died", at_ms=ahead_ms)

    assert while_frozen(always_due(), asked, structlog.get_logger(), lambda: None, Undone())
    assert FINISH_AFTER_S <= asked.now_s - 100.0 <= FINISH_AFTER_S + 2 * frozen.LOOK_S_MAX

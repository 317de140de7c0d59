"""Positions of a flow that was failed over: a right that is missing on one topic lets no other's expire."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from tests.replicator.flow.fakes import claim, flow

pytestmark = pytest.mark.tier("default")

MINE, THEIRS = Partition("a.t1", 0), Partition("a.t2", 0)
ALL = frozenset({"Describe", "Read", "Write"})
FROZEN = Generation(2, Phase.OPEN, 1, kind=Kind.FROZEN)


@dataclass
class Target:
    """The target of a flow with two topics, and a plane of it. `rights` of its user, by topic."""

    rights: dict[str, frozenset[str] | None] = field(default_factory=lambda: {"a.t1": ALL, "a.t2": ALL})
    unread: dict[Partition, ReplicatorError] = field(default_factory=dict)
    committed: list[set[Partition]] = field(default_factory=list)
    refuses: list[NotAllowed] = field(default_factory=list)
    undone: bool = False

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
        opened = Generation(3, Phase.OPEN, 1)
        return Control({1: Generation(1, Phase.CLOSED, 1), **({3: opened} if self.undone else {2: FROZEN})})

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

"""Who changes the control topic notices that it was deleted while a record is written, which is never acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import pytest

from replicator.kafka.topic_reader import KeyAndValue, TopicReader
from replicator.model.errors import Incident, Retriable, TakenOver, UnknownOutcome, Unreachable
from replicator.state import control as module
from replicator.state.control import Changer, Proposal, keeping
from replicator.state.control_topic import Control
from replicator.state.flow_state import FlowState
from replicator.state.generation import LaneAssignment
from tests.replicator.flow.fakes import flow

pytestmark = pytest.mark.tier("default")

PREPARING = Control().prepare(LaneAssignment(1), {"t": 1}, 1)
OPENED = Control().apply(PREPARING).finish(2)[-1]
STALLS = 5  # until the transaction is given up


class Topic:
    """A reader of a control topic that is there until a record is written to it."""

    def __init__(self, answers: Iterable[int | Retriable | Unreachable]) -> None:
        """`answers`: how many partitions it has, once it is written to."""
        self.answers, self.written = iter(answers), False

    def partition_count(self, topic: str) -> int:
        found = next(self.answers) if self.written else 1
        if isinstance(found, Exception):
            raise found
        return found

    def whole(self, topic: str, partitions: Iterable[int]) -> list[KeyAndValue]:
        return [(it.key, it.encode()) for it in (PREPARING, OPENED)]


class Writer:
    """Stands in for TransactionalProducer; no record is acknowledged."""

    topic: Topic
    closed = False

    def __init__(self, *of: Any) -> None:
        self.stalled: Callable[[], None] = lambda: None

    def fence(self) -> None: ...

    def begin(self) -> None: ...

    def write(self, *of: Any) -> None:
        self.topic.written = True

    def flush(self) -> None:
        for _ in range(STALLS):
            self.stalled()
        raise UnknownOutcome("1 records without ack")

    def close(self) -> None:
        Writer.closed = True


def change(monkeypatch: pytest.MonkeyPatch, topic: Topic, *, first: bool = False) -> None:
    """Begin a generation with two lanes."""
    monkeypatch.setattr(module, "TransactionalProducer", Writer)
    Writer.topic, Writer.closed = topic, False
    state = FlowState(flow(), cast(TopicReader, topic), pause=lambda s: None)
    changer = Changer(flow(), state, "me", lambda text: None, lambda partitions: [], first=first)
    changer.ensure(lambda control: Proposal(LaneAssignment(2)), {"t": 1}, lambda found: None)


def test_a_control_topic_that_is_deleted_while_it_is_written_is_lost_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Incident, match="control_topic_lost"):
        change(monkeypatch, Topic([0, 0]))
    assert Writer.closed


@pytest.mark.parametrize("passing", [0, Unreachable("no answer"), Retriable("no leader")])
def test_what_may_pass_is_waited_for_as_long_as_the_transaction_lasts(
    monkeypatch: pytest.MonkeyPatch, passing: int | Retriable | Unreachable
) -> None:
    with pytest.raises(UnknownOutcome):
        change(monkeypatch, Topic([passing, *[1] * STALLS]))


def test_before_a_first_start_not_every_broker_may_know_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownOutcome):
        change(monkeypatch, Topic([0, 0]), first=True)


def test_a_change_that_is_not_this_processs_to_finish_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of another source cluster has begun to open the flow for the first time, or died at it. Where its
    partitions begin would be asked of this process's source."""
    topic = Topic([1] * STALLS)
    monkeypatch.setattr(topic, "whole", lambda *of: [(PREPARING.key, PREPARING.encode())])
    monkeypatch.setattr(module, "TransactionalProducer", Writer)
    Writer.topic, Writer.closed = topic, False
    resolved: list[object] = []

    def resolve_starts(partitions: Mapping[str, int]) -> list[tuple[bytes, bytes]]:
        resolved.append(partitions)
        return []

    def propose(control: Control) -> Proposal | None:
        if control.preparing is not None:
            raise TakenOver("another cluster's")
        return Proposal(LaneAssignment(2))

    state = FlowState(flow(), cast(TopicReader, topic), pause=lambda s: None)
    changer = Changer(flow(), state, "me", lambda text: None, resolve_starts)
    with pytest.raises(TakenOver):
        changer.ensure(propose, {"t": 1}, lambda found: None)
    assert (topic.written, resolved, Writer.closed) == (False, [], True)


def test_what_another_process_opened_meanwhile_was_not_changed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers begin a flow at the same time; the later one has the control id when the other has opened it."""
    topic = Topic([1] * STALLS)
    monkeypatch.setattr(module, "TransactionalProducer", Writer)
    Writer.topic, Writer.closed = topic, False
    state = FlowState(flow(), cast(TopicReader, topic), pause=lambda s: None)
    changer = Changer(flow(), state, "me", lambda text: None, lambda partitions: [], seen=Control())
    found = changer.ensure(keeping(lambda control: 1), {"t": 1}, lambda found: None)
    assert found == (OPENED, False)
    assert (topic.written, Writer.closed) == (False, True)

"""Partitions of a flow in rounds that an operator has decided about."""

from __future__ import annotations

import pytest

from replicator.flow.listing import Listing
from replicator.jobs.decided import DecidedPartitions
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import checkpoint
from replicator.model.errors import Incident
from replicator.model.partition import Committed, Partition
from tests.replicator.jobs.test_range_job import Flows, T, U, evidence_of, repeat
from tests.replicator.lane.fakes.world import World


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

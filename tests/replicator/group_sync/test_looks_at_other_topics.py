"""Looks at the source's transactions where the flow's topics change: some fail over, others are added."""

from __future__ import annotations

import pytest

from replicator.config import Flow
from replicator.coupling.source_transactions import LoggedState, LoggedTransaction
from replicator.group_sync.sync import GroupSync
from replicator.group_sync.transaction_looks import LOOK_S
from replicator.state.transaction_notes import TransactionNotes
from tests.replicator.group_sync.test_sync import OUT, A
from tests.replicator.group_sync.test_transaction_looks import Looking

pytestmark = pytest.mark.tier("default")


def with_topics(flow: Flow, *topics: str) -> Flow:
    return flow.model_copy(update={"topics": topics})


def write_to_both(it: Looking) -> None:
    partitions = {A.topic: (A.partition,), OUT.topic: (OUT.partition,)}
    for state in (LoggedState.ONGOING, LoggedState.PREPARE_COMMIT):
        at_ms = 5 if state is LoggedState.ONGOING else 6
        it.log.records.append(LoggedTransaction("id", 7, 1, state, partitions, 5, at_ms))


def test_one_over_a_topic_that_was_failed_over_and_one_that_is_copied_is_noted() -> None:
    it = Looking()
    rig = it.rig
    rig.map.failed_over = {OUT.topic}
    worker = rig.worker()
    it.ends, it.positions = rig.map.ends, {A: 100, OUT: 100}
    sync = GroupSync(
        rig.flow, rig.source, rig.target, rig.map, worker._notes, worker._hold_topics, rig.clock, it.looks
    )  # fmt: skip
    sync.round()
    rig.clock.s += LOOK_S
    sync.look()
    write_to_both(it)
    rig.map.ends |= {A: 102, OUT: 102}
    rig.clock.s += 60
    sync.look()
    (noted,) = TransactionNotes.read(dict(rig.topic.records)).ended.values()
    assert noted.parts.keys() == {A, OUT}


def test_where_topics_are_added_all_is_known_since_then_only() -> None:
    it = Looking()
    it.rig.flow = with_topics(it.rig.flow, "a")
    it.looks = it.started()
    it.look()
    first = TransactionNotes.read(it.kept).last.since_ms
    it.looks = it.started()
    it.look()
    assert TransactionNotes.read(it.kept).last.since_ms == first, "a start alone changes nothing"
    write_to_both(it)
    it.look()
    it.rig.flow = with_topics(it.rig.flow, "a", "out")
    it.looks = it.started()
    it.look()
    assert TransactionNotes.read(it.kept).last.since_ms > first

"""Looks at the source's transactions: nothing is lost where one fails or its notes can't be written, and that is
said."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
import structlog
from structlog.testing import capture_logs

from replicator.coupling.source_transactions import LoggedState, LoggedTransaction, RecordRange
from replicator.group_sync.sync import GroupSync
from replicator.group_sync.transaction_looks import LOOK_S, Noted, TransactionLooks
from replicator.groups.ownership import GroupOffset
from replicator.model import checkpoint
from replicator.model.checkpoint import Evidence
from replicator.model.errors import NotAllowed, ReplicatorError, Unreachable
from replicator.model.partition import Partition
from replicator.state.transaction_notes import TransactionNotes
from replicator.wire.transaction_log_tail import LogCut, LogPart
from tests.replicator.group_sync.test_sync import OUT, A, B, Rig

pytestmark = pytest.mark.tier("default")

S = LoggedState


class FakeLog:
    """A log of one partition."""

    def __init__(self) -> None:
        self.records: list[LoggedTransaction] = []
        self.start = 0
        self.error: ReplicatorError | None = None
        self.offsets: dict[int, int] | None = None

    def read(self) -> LogPart:
        if self.error is not None:
            raise self.error
        if self.offsets is None:
            self.offsets = {0: len(self.records)}
        first = self.offsets[0]
        if first < self.start:
            raise LogCut("gone")
        self.offsets = {0: len(self.records)}
        return LogPart(self.records[first:], to_end=True)


def copied_to(offset: int, topic_id: str) -> GroupOffset:
    evidence = Evidence(
        generation=1, owner="me", source_topic="a", source_cluster="c", source_topic_id=topic_id, target_topic_id="t"
    )
    return GroupOffset(offset, checkpoint.encode(evidence))


class Looking:
    """A flow of two partitions, a transaction in both of them, and what is noted."""

    def __init__(self) -> None:
        self.rig, self.log = Rig(), FakeLog()
        self.ends, self.positions = {A: 10, B: 20}, {A: 10, B: 20}
        self.id = self.copied_of = "one"
        self.ids = dict[str, str]()  # of topics that have another one
        self.first: Collection[str] | None = None  # the topics of the flow's first listing
        self.no_ends_after = False
        self._asked = 0
        self.kept = dict[bytes | None, bytes | None]()
        self.looks = self.started()

    def started(self) -> TransactionLooks:
        log = structlog.stdlib.get_logger()
        looks = TransactionLooks(self.rig.flow, self.log, self._ends, self._positions, self._ids, self.rig.clock, log)
        looks.begin(TransactionNotes.read(self.kept), self.first)
        return looks

    def _ends(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        self._asked += 1
        if self.no_ends_after and self._asked % 2 == 0:
            raise Unreachable("the source is away")
        return {at: self.ends[at] for at in ats}

    def _positions(self, ats: Collection[Partition]) -> Mapping[Partition, GroupOffset]:
        return {at: copied_to(offset, self.copied_of) for at, offset in self.positions.items()}

    def _ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {name: self.ids.get(name, self.id) for name in topics}

    def look(self, *ats: Partition, after_s: float = 60) -> Noted:
        self._asked = 0
        self.rig.clock.s += after_s
        noted = self.looks.look(ats or [A, B])
        self.kept |= dict(noted)
        return noted

    def write(self, start_ms: int = 5, *others: Partition) -> None:
        """A transaction is written, and committed."""
        partitions = {A.topic: (A.partition, B.partition)} | {at.topic: (at.partition,) for at in others}
        self.log.records += [
            LoggedTransaction("id", 7, 1, S.ONGOING, partitions, start_ms, start_ms),
            LoggedTransaction("id", 7, 1, S.PREPARE_COMMIT, partitions, start_ms, start_ms + 1),
            LoggedTransaction("id", 7, 1, S.COMPLETE_COMMIT, {}, start_ms, start_ms + 2),
        ]
        self.ends = {at: end + 2 for at, end in self.ends.items()}

    def noted(self) -> list[dict[Partition, RecordRange]]:
        return [it.parts for it in TransactionNotes.read(self.kept).ended.values()]


def test_what_isn_t_copied_is_noted_and_what_is_let_go_of() -> None:
    it = Looking()
    it.look()
    it.write()
    it.look()
    assert it.noted() == [{A: RecordRange(10, 12), B: RecordRange(20, 22)}]
    it.looks = it.started()
    it.positions = {A: 12, B: 20}
    it.look()
    assert len(it.noted()) == 1
    it.positions = {A: 12, B: 22}
    it.look()
    assert it.noted() == []


def test_a_look_that_fails_after_the_log_was_read_is_taken_again() -> None:
    it = Looking()
    it.look()
    it.write()
    it.no_ends_after = True
    with capture_logs() as logs:
        it.look()
        it.look()
    assert [each["event"] for each in logs] == ["source_transactions_unknown"], "it is told once"
    assert it.noted() == []
    assert TransactionNotes.read(it.kept).last.problem == "the source is away"
    it.no_ends_after = False
    it.look()
    assert it.noted() == [{A: RecordRange(10, 12), B: RecordRange(20, 22)}]
    assert TransactionNotes.read(it.kept).last.problem == ""


def test_a_missing_right_is_noted_once_and_says_that_it_was_never_looked() -> None:
    it = Looking()
    it.log.error = NotAllowed("needs Read on topic '__transaction_state'")
    assert it.look()
    assert not it.look()
    last = TransactionNotes.read(it.kept).last
    assert (last.looked_ms, last.problem) == (0, "needs Read on topic '__transaction_state'")


def test_after_a_gap_in_the_log_all_is_known_since_a_later_time() -> None:
    it = Looking()
    it.look()
    first = TransactionNotes.read(it.kept).last.since_ms
    it.write()
    it.log.start = 3
    with capture_logs() as logs:
        it.look()
    assert [each["event"] for each in logs] == ["source_transactions_missed"]
    assert TransactionNotes.read(it.kept).last.since_ms > first
    it.write(50)
    it.look()
    assert it.noted() == [{A: RecordRange(12, 14), B: RecordRange(22, 24)}]


def test_what_can_t_be_noted_is_found_again_by_whoever_begins_anew() -> None:
    it = Looking()
    rig = it.rig
    worker = rig.worker()
    sync = GroupSync(
        rig.flow, rig.source, rig.target, rig.map, worker._notes, worker._hold_topics, rig.clock, it.looks
    )  # fmt: skip
    it.ends = it.positions = rig.map.ends
    sync.round()
    rig.clock.s += LOOK_S
    sync.look()
    it.write()
    rig.topic.writer = None  # somebody else has begun
    rig.clock.s += 60
    try:
        sync.look()
    except ReplicatorError:
        sync.round()
    else:
        raise AssertionError("it is fenced")
    rig.clock.s += 60
    sync.look()
    noted = TransactionNotes.read(dict(rig.topic.records)).ended
    assert len(noted) == 1


def test_what_was_noted_of_a_topic_that_was_made_anew_is_let_go_of_for_good() -> None:
    it = Looking()
    it.look()
    it.write()
    it.write(8)
    it.look()
    it.positions = {A: 12, B: 22}
    it.look()
    assert len(it.noted()) == 2, "one record has both, and only the first is copied"
    it.id = "another"
    it.look()
    assert it.noted() == []
    it.looks = it.started()
    it.look()
    assert it.noted() == []


def test_a_position_in_the_topic_that_was_there_before_does_not_tell_what_is_copied() -> None:
    it = Looking()
    it.look()
    it.write()
    it.copied_of, it.positions = "the one before", {A: 500, B: 500}
    it.look()
    assert len(it.noted()) == 1
    it.copied_of = it.id
    it.look()
    assert it.noted() == []


def test_a_topic_that_is_made_again_is_noted_when_it_is_seen() -> None:
    """What goes on, and a failover, take the topic that was there before for the one that was copied."""
    it = Looking()
    it.ends[OUT] = 5
    it.look(A, B, OUT)
    it.look(OUT, after_s=10)  # it is deleted
    it.ids["a"] = "another"
    it.look(A, B, OUT, after_s=1)
    assert TransactionNotes.read(it.kept).last.ids == {"a": "another", "out": "one"}
    it.write()
    it.look(A, B, OUT, after_s=1)
    it.looks = it.started()
    it.look(A, B, OUT, after_s=1)
    assert it.noted() == [{A: RecordRange(10, 12), B: RecordRange(20, 22)}]


def test_ids_are_noted_while_the_log_may_not_be_read() -> None:
    """A failover compares them with those of topics that were copied."""
    it = Looking()
    it.log.error = NotAllowed("needs Read on topic '__transaction_state'")
    it.look()
    assert TransactionNotes.read(it.kept).last.ids == {"a": "one"}
    it.looks = it.started()
    it.id = "another"
    it.look()
    last = TransactionNotes.read(it.kept).last
    assert (last.ids, last.looked_ms, last.log) == ({"a": "another"}, 0, None)
    it.log.error = None
    it.look()
    it.write()
    it.look()
    assert it.noted() == [{A: RecordRange(10, 12), B: RecordRange(20, 22)}]


def test_new_topics_that_are_ignored_are_no_part_of_transactions() -> None:
    """They have no position: a transaction over one would never be copied as a whole."""
    it = Looking()
    it.rig.flow = it.rig.flow.model_copy(update={"new_topics": "ignore"})
    it.ends[OUT] = it.positions[OUT] = 30
    it.first = ["a", "deleted"]
    it.looks = it.started()
    it.look()
    it.write(5, OUT)
    it.look()
    assert it.noted() == [{A: RecordRange(10, 12), B: RecordRange(20, 22)}]
    it.positions = {A: 12, B: 22}
    it.look()
    assert it.noted() == []
    it.first = ["a", "out"]  # as after the control topic was made again
    it.looks = it.started()
    it.look(A, B, OUT)
    it.write(8, OUT)
    it.look(A, B, OUT)
    assert [set(parts) for parts in it.noted()] == [{A, B, OUT}]


def test_what_was_noted_of_topics_that_are_not_copied_any_more_is_let_go_of_for_good() -> None:
    it = Looking()
    it.rig.flow = it.rig.flow.model_copy(update={"new_topics": "ignore"})
    it.ends[OUT] = 30
    it.look(A, B, OUT)
    it.write(5)
    it.write(8, OUT)
    it.log.records += [
        LoggedTransaction("two", 8, 1, S.ONGOING, {"a": (0,), "out": (0,)}, 9, 9),
        LoggedTransaction("two", 8, 1, S.PREPARE_COMMIT, {"a": (0,), "out": (0,)}, 9, 10),
    ]
    it.look(A, B, OUT)
    assert [set(parts) for parts in it.noted()] == [{A, B}, {A, B, OUT}, {A, OUT}], "one record has all"
    it.first = ["a"]
    for _ in range(2):
        it.looks = it.started()
        it.look(after_s=1)
        assert [set(parts) for parts in it.noted()] == [{A, B}, {A, B}]
    it.positions = dict(it.ends)
    it.look()
    assert it.noted() == []

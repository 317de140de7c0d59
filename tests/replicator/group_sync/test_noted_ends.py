"""Where the source ends, as it is noted at the target, and up to when that holds for all partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as E

from replicator.config import Flow
from replicator.failover.facts import failed_partitions
from replicator.failover.verdict import FailedPartition
from replicator.group_sync.hold_topics import NamedHoldTopics
from replicator.group_sync.sync import GroupSync
from replicator.group_sync.transaction_looks import Noted, TransactionLooks
from replicator.groups.ownership import GroupOffset
from replicator.model.checkpoint import Evidence, Position, Stored
from replicator.model.errors import NotAllowed, ReplicatorError, Retriable
from replicator.model.names import ends_group
from replicator.model.partition import Partition
from replicator.state.claims import Claim, Claims
from replicator.state.other_ends import OtherEnds
from replicator.state.transaction_notes import TransactionNotes
from replicator.wire.group_coordinators import PartitionCodes
from replicator.wire.offset_fetch_groups import GroupValues, Wanted
from replicator.wire.share_groups import OffsetsToCommit
from tests.replicator.group_sync.fakes import FakeGroups, FakeNotes, copy_of, place
from tests.replicator.group_sync.test_sync import OUT, A, B, Rig, make_flow

pytestmark = pytest.mark.tier("default")

GROUP = ends_group("f")


class RefusingGroups(FakeGroups):
    """A target that refuses to take offsets in some topics, or to tell of some groups."""

    def __init__(self) -> None:
        super().__init__()
        self.denied, self.untold = set[str](), dict[str, ReplicatorError]()

    def commit(self, offsets: OffsetsToCommit, timeout_s: float) -> dict[str, PartitionCodes | ReplicatorError]:
        """See `GroupQuestions`."""
        found: dict[str, PartitionCodes | ReplicatorError] = {}
        for group, topics in offsets.items():
            if group in self.untold:
                found[group] = self.untold[group]
                continue
            taken = {topic: of_it for topic, of_it in topics.items() if topic not in self.denied}
            codes = super().commit({group: taken}, timeout_s)[group]
            assert not isinstance(codes, ReplicatorError)
            refused = int(E.topic_authorization_failed)
            denied = {topic: dict.fromkeys(of_it, refused) for topic, of_it in topics.items() if topic not in taken}
            found[group] = {**codes, **denied}
        return found

    def offsets(
        self, groups: Mapping[str, Wanted], timeout_s: float, **how: object
    ) -> dict[str, GroupValues | ReplicatorError]:
        """See `GroupQuestions`."""
        found = super().offsets(groups, timeout_s, **how)  # type: ignore[arg-type]
        return found | {name: error for name, error in self.untold.items() if name in groups}


def position(offset: int) -> Position:
    evidence = Evidence(
        generation=1, owner="me", source_topic="a", source_cluster="c", source_topic_id="s", target_topic_id="t"
    )
    return Position(offset, evidence)


def flow_of_copies() -> Flow:
    flow = make_flow()
    return flow.model_copy(update={"rename": "{topic}.copy"})


class NotingRig(Rig):
    """One flow, whose ends are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.there_groups = self.target = RefusingGroups()
        self.target.now_s = self.clock.now_s
        self.sync = self.worker()

    def noted(self, at: Partition) -> GroupOffset:
        return self.target.values[GROUP, copy_of(at)]

    def others(self) -> dict[Partition, int | None]:
        return OtherEnds.read(dict(self.topic.records)).ends()

    def rows(self) -> list[FailedPartition]:
        """What a failover would say, of what is noted and claimed at the target alone."""
        claims = Claims({copy_of(at): Claim(copy_of(at), at, "s", "t", 0, 0, 1, "me", 1) for at in (A, B, OUT)}, ())
        stored: dict[Partition, Stored] = {copy_of(at): position(offset) for at, offset in self.map.copied.items()}
        ends = {at: it.offset for (group, at), it in self.target.values.items() if group == GROUP}
        return failed_partitions(flow_of_copies(), claims, stored, ends, self.others())

    def said_ms(self) -> int:
        """When the source's ends were noted last, as a failover takes it."""
        said = [it.metadata for (group, _), it in self.target.values.items() if group == GROUP]
        others = OtherEnds.read(dict(self.topic.records))
        return max((int(it) for it in said if it.isdigit()), default=others.seen_ms)

    def unanswered(self) -> list[str]:
        """Make a round; return why something of it is missing."""
        found = self.sync.round().unanswered
        self.clock.s += 5
        return [str(error) for error in found]


class Looks(TransactionLooks):
    """Looks at nothing; `looked`: at which partitions it was to look last; `there`: which the source has."""

    def __init__(self) -> None:
        self.looked: Collection[Partition] = ()
        self.there: Collection[Partition] = ()

    def begin(self, notes: TransactionNotes, first: Collection[str] | None = None) -> None:
        """See `TransactionLooks`."""

    def look(self, ats: Collection[Partition], there: Collection[Partition] = ()) -> Noted:
        """See `TransactionLooks`."""
        self.looked, self.there = ats, there
        return []

    def pause_s(self) -> float:
        """See `TransactionLooks`."""
        return 1.0


@pytest.mark.parametrize("anew", [False, True])
def test_when_it_was_noted_does_not_go_on_without_a_partition_whose_end_is_refused(anew: bool) -> None:
    """Whoever fails over takes all that the source had then for copied."""
    rig = NotingRig()
    assert rig.unanswered() == []
    rig.rounds()
    seen_ms = rig.said_ms()
    rig.there_groups.denied.add(copy_of(OUT).topic)
    rig.map.ends |= {OUT: 500, B: 120}
    if anew:
        rig.sync = rig.worker()
    for _ in range(2):
        assert rig.unanswered() == [
            "cluster 'y': cannot note where the source's partitions end in topic 'out.copy': the user needs Read on "
            "topic 'out.copy' (TOPIC_AUTHORIZATION_FAILED: Topic authorization failed)"
        ]
    assert (rig.said_ms(), rig.noted(OUT).offset, rig.noted(B).offset) == (seen_ms, 100, 120)
    rig.there_groups.denied.clear()
    noted_ms = rig.clock.now_ms()
    assert rig.unanswered() == []
    assert (rig.said_ms(), rig.noted(OUT).offset) == (noted_ms, 500)


def test_that_the_ends_are_never_noted_is_told_and_keeps_nobody_from_looking_at_transactions() -> None:
    rig = NotingRig()
    rig.there_groups.untold[GROUP] = NotAllowed("the group is denied")
    rig.at_source(10)
    looks = Looks()
    notes = FakeNotes(rig.topic)
    rig.sync = GroupSync(rig.flow, rig.source, rig.target, rig.map, notes, NamedHoldTopics(()), rig.clock, looks)
    assert rig.unanswered() == ["the group is denied"]
    assert rig.there() == place(10)
    rig.sync.look()
    assert set(looks.looked) == {A, B, OUT}
    rig.map.unknown[OUT] = Retriable("nobody leads it")
    rig.map.not_there.add(B)
    rig.sync.round()
    rig.sync.look()
    assert (set(looks.looked), set(looks.there)) == ({A}, {A, B, OUT})


def test_an_answer_that_is_lost_is_told_and_the_ends_are_noted_again() -> None:
    rig = NotingRig()
    rig.rounds()
    rig.map.ends[B] = 101
    rig.there_groups.untold[GROUP] = NotAllowed("the group is denied")
    seen_ms = rig.said_ms()
    assert rig.unanswered() == ["the group is denied"]
    assert rig.said_ms() == seen_ms
    rig.there_groups.untold.clear()
    assert rig.unanswered() == []
    assert (rig.noted(B).offset, rig.noted(A).offset, rig.said_ms()) == (101, 100, rig.clock.now_ms() - 5000)


def test_the_ends_of_partitions_without_new_records_do_not_expire() -> None:
    """The ends' group has no members: each offset expires so long after its own commit."""
    rig = NotingRig()
    interval_s = rig.flow.limits.recommit_interval_ms / 1000
    committed_s = dict[Partition, float]()
    for _ in range(30):
        began = len(rig.target.commits)
        rig.map.ends[B] += 1
        rig.rounds()
        committed_s |= {at: rig.clock.s for group, at, _ in rig.target.commits[began:] if group == GROUP}
        assert all(rig.clock.s - committed_s[copy_of(at)] <= interval_s for at in (A, B, OUT))
        rig.clock.s += interval_s / 3
    assert len(rig.target.commits) < 30 * 3


def test_what_was_refused_when_all_ends_were_to_be_noted_again_is_noted_again() -> None:
    rig = NotingRig()
    rig.rounds()
    rig.clock.s += rig.flow.limits.recommit_interval_ms / 1000
    rig.there_groups.denied.add(copy_of(OUT).topic)
    seen_ms = rig.said_ms()
    assert len(rig.unanswered()) == 1
    assert rig.said_ms() > seen_ms, "what is noted of it holds still"
    rig.there_groups.denied.clear()
    before = rig.target.commits.count((GROUP, copy_of(OUT), 100))
    assert rig.unanswered() == []
    assert rig.target.commits.count((GROUP, copy_of(OUT), 100)) == before + 1


def test_when_it_was_noted_does_not_go_on_without_a_partition_of_which_nothing_is_known() -> None:
    """What is known of it is kept until somebody may ask for it again, and while it is deleted no longer."""
    rig = NotingRig()
    rig.rounds()
    seen_ms = rig.said_ms()
    rig.map.unknown[OUT] = NotAllowed("no Describe on out")
    for _ in range(2):
        assert rig.unanswered() == ["no Describe on out"]
        rig.clock.s += rig.flow.limits.recommit_interval_ms / 1000
    assert rig.said_ms() == seen_ms
    assert rig.target.commits.count((GROUP, copy_of(OUT), 100)) > 1, "it doesn't expire"
    rig.sync = rig.worker()
    rig.rounds()
    assert rig.said_ms() == seen_ms
    rig.map.unknown.clear()
    del rig.map.ends[OUT], rig.map.copied[OUT]
    noted_ms = rig.clock.now_ms()
    assert rig.unanswered() == []
    assert rig.said_ms() == noted_ms


def test_a_partition_of_which_nothing_was_ever_noted_holds_up_no_time() -> None:
    rig = NotingRig()
    rig.map.unknown[OUT] = NotAllowed("no Describe on out")
    noted_ms = rig.clock.now_ms()
    assert rig.unanswered() == ["no Describe on out"]
    assert rig.said_ms() == noted_ms


def test_a_partition_that_the_target_does_not_have_has_a_row_and_keeps_the_verdict_from_complete() -> None:
    """It was added at the source, and the flow hasn't added it, or may not: no offset can be committed for it."""
    rig = NotingRig()
    rig.rounds()
    assert all(row.complete for row in rig.rows())
    added = Partition("a", 2)
    rig.map.ends[added] = 7
    rig.map.not_there.add(added)
    noted_ms = rig.clock.now_ms()
    rig.rounds()
    assert rig.said_ms() == noted_ms
    (row,) = [row for row in rig.rows() if not row.complete]
    assert row == FailedPartition(added, copy_of(added), None, 7, "it was never copied")
    rig.map.ends[added] = 9
    rig.sync = rig.worker()
    rig.rounds()
    assert rig.others() == {added: 9}
    written = len(rig.topic.records)
    rig.rounds(3)
    assert len(rig.topic.records) == written, "nothing has changed"
    rig.map.not_there.clear()
    rig.rounds()
    assert (rig.others(), rig.noted(added).offset) == ({}, 9)
    assert [(row.source, row.end_seen) for row in rig.rows() if not row.complete] == [(added, 9)]


def test_a_whole_topic_that_is_not_at_the_target_has_rows_until_it_is_gone() -> None:
    rig = NotingRig()
    first, second = Partition("new", 0), Partition("new", 1)
    rig.map.ends |= {first: 3, second: 0}
    rig.map.not_there |= {first, second}
    rig.rounds()
    assert [row.source for row in rig.rows() if not row.complete] == [first, second]
    rig.map.unknown[second] = Retriable("nobody leads it")
    rig.rounds()
    assert rig.others() == {first: 3, second: None}
    del rig.map.ends[first], rig.map.ends[second]
    rig.map.unknown.clear()
    rig.rounds()
    assert (rig.others(), [row for row in rig.rows() if not row.complete]) == ({}, [])


def test_while_the_target_has_no_partition_it_is_noted_when_the_ends_were_seen() -> None:
    """All of them are known, though no offset can be committed that says when."""
    rig = NotingRig()
    rig.map.not_there |= {A, B, OUT}
    for _ in range(2):
        noted_ms = rig.clock.now_ms()
        rig.rounds()
        assert (rig.said_ms(), rig.others()) == (noted_ms, {A: 100, B: 100, OUT: 100})
    rig.map.unknown[OUT] = Retriable("nobody leads it")
    noted_ms = rig.clock.now_ms()
    rig.sync = rig.worker()
    rig.rounds()
    assert (rig.said_ms(), rig.others()) == (noted_ms, {A: 100, B: 100, OUT: None})
    rig.map.not_there.clear()
    noted_ms = rig.clock.now_ms()
    rig.rounds()
    written = len(rig.topic.records)
    assert rig.said_ms() == noted_ms
    rig.rounds()
    assert len(rig.topic.records) == written, "an offset says when"


def test_what_is_noted_of_a_topic_goes_with_its_copy_and_is_noted_again() -> None:
    """Kafka deletes the offsets of a topic that is deleted."""
    rig = NotingRig()
    rig.rounds()
    rig.map.not_there.add(OUT)
    del rig.target.values[GROUP, copy_of(OUT)]
    rig.rounds()
    assert rig.others() == {OUT: 100}
    assert [(row.source, row.end_seen) for row in rig.rows()] == [(A, 100), (B, 100), (OUT, 100)]
    rig.map.not_there.clear()
    rig.rounds()
    assert (rig.others(), rig.noted(OUT).offset) == ({}, 100)


def test_an_older_end_that_is_still_noted_makes_nothing_complete() -> None:
    """The target has lost a topic, or hides it, and its offsets are there."""
    rig = NotingRig()
    rig.rounds()
    rig.map.not_there.add(OUT)
    rig.map.ends[OUT] = 130
    rig.rounds()
    assert rig.noted(OUT).offset == 100
    assert [(row.source, row.end_seen) for row in rig.rows() if not row.complete] == [(OUT, 130)]
    rig.map.unknown[OUT] = Retriable("nobody leads it")
    rig.rounds()
    assert [(row.source, row.end_seen) for row in rig.rows() if not row.complete] == [(OUT, None)]


def test_what_was_noted_is_not_forgotten_where_the_notes_can_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = NotingRig()
    rig.rounds()
    added, seen_ms = Partition("a", 2), rig.said_ms()
    rig.map.ends |= {added: 7, B: 130}
    rig.map.not_there.add(added)

    def refused(*_: Any) -> None:
        raise Retriable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(FakeNotes, "write", refused)
        with pytest.raises(Retriable):
            rig.sync.round()
    assert rig.said_ms() == seen_ms, "not all ends are noted"
    rig.rounds()
    assert (rig.others(), rig.said_ms() > seen_ms) == ({added: 7}, True)


def test_the_only_partition_is_noted_on_by_whoever_begins_anew() -> None:
    rig = NotingRig()
    only(rig, OUT)
    rig.rounds()
    rig.map.ends[OUT] += 30
    rig.sync = rig.worker()
    for _ in range(3):
        rig.map.ends[OUT] += 10
        noted_ms = rig.clock.now_ms()
        assert rig.unanswered() == []
        assert (rig.noted(OUT).offset, rig.said_ms()) == (rig.map.ends[OUT], noted_ms)


def test_the_only_partition_is_noted_on_after_all_ends_were_noted_again() -> None:
    rig = NotingRig()
    only(rig, OUT)
    rig.rounds()
    rig.clock.s += rig.flow.limits.recommit_interval_ms / 1000
    for _ in range(3):
        rig.map.ends[OUT] += 10
        noted_ms = rig.clock.now_ms()
        assert rig.unanswered() == []
        assert (rig.noted(OUT).offset, rig.said_ms()) == (rig.map.ends[OUT], noted_ms)


def test_where_the_commit_of_the_first_partition_fails_once_it_is_noted_on_in_the_next_round() -> None:
    """None of the others changes."""
    rig = NotingRig()
    rig.rounds()
    rig.map.ends[A] += 10
    rig.there_groups.untold[GROUP] = Retriable("the coordinator moves")
    assert rig.unanswered() == ["the coordinator moves"]
    rig.there_groups.untold.clear()
    for _ in range(2):
        rig.map.ends[A] += 10
        noted_ms = rig.clock.now_ms()
        assert rig.unanswered() == []
        assert (rig.noted(A).offset, rig.said_ms()) == (rig.map.ends[A], noted_ms)


def only(rig: NotingRig, at: Partition) -> None:
    """Leave the flow no other partition."""
    for other in {A, B, OUT} - {at}:
        del rig.map.ends[other], rig.map.copied[other]

"""Rounds of group sync against clusters in memory: what is committed, and what never is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest
import yaml
from kio.schema.errors import ErrorCode as E

from replicator.config import Flow, load_text
from replicator.group_sync import commits
from replicator.group_sync import followed as following
from replicator.group_sync.hold_topics import NamedHoldTopics
from replicator.group_sync.sync import GroupSync
from replicator.groups.decision import GroupVerdict
from replicator.groups.ownership import LATE_MS, GroupOffset, OwnershipNote
from replicator.model.errors import ReplicatorError, Unreachable
from replicator.model.names import ends_group
from replicator.model.partition import Partition
from replicator.state.group_notes import GroupNotes
from replicator.wire.group_coordinators import PartitionCodes
from replicator.wire.group_questions import TOO_MUCH_AT_ONCE
from replicator.wire.share_groups import OffsetsToCommit
from tests.budget import budget
from tests.replicator.group_sync.fakes import FakeClock, FakeGroups, FakeMap, FakeNotes, NotesTopic, copy_of, place

pytestmark = pytest.mark.tier("default")

A, B, OUT = Partition("a", 0), Partition("a", 1), Partition("out", 0)
SEEDS = budget(60, 10_000)


def make_flow(**groups: Any) -> Flow:
    file = {"clusters": {n: {"properties": {"bootstrap.servers": f"{n}:1"}} for n in ("x", "y")}}
    flow = {"source": "x", "target": "y", "topics": ["^.*"], "groups": {"include": ["^.*"], **groups}}
    return load_text(yaml.safe_dump({**file, "flows": {"f": flow}}), env={}).flows["f"]


class Rig:
    """One flow, one group of which is asked most."""

    def __init__(self, faults: Random | None = None, **groups: Any) -> None:
        self.flow, self.clock = make_flow(**groups), FakeClock()
        self.source, self.target = FakeGroups(faults), FakeGroups(faults, now_s=self.clock.now_s)
        self.map = FakeMap({A: 100, B: 100, OUT: 100}, {A: 100, B: 100, OUT: 100}, faults)
        self.topic, self._faults = NotesTopic(), faults
        self.sync = self.worker()

    def worker(self) -> GroupSync:
        notes, hold_topics = FakeNotes(self.topic, self._faults), NamedHoldTopics(self.flow.groups.hold_with or ())
        return GroupSync(self.flow, self.source, self.target, self.map, notes, hold_topics, self.clock)

    def without_faults(self) -> None:
        self._faults = self.source.faults = self.target.faults = self.map.faults = None

    def at_source(self, offset: int, at: Partition = A, group: str = "g") -> None:
        self.source.values[group, at] = GroupOffset(offset, f"m{offset}")

    def there(self, at: Partition = A, group: str = "g") -> int | None:
        found = self.target.values.get((group, copy_of(at)))
        return None if found is None else found.offset

    def rounds(self, number: int = 1) -> None:
        for _ in range(number):
            self.sync.round()
            self.clock.s += 5

    def verdict(self, at: Partition = A, group: str = "g") -> GroupVerdict:
        (found,) = [it for it in self.sync.shown() if it.group == group]
        return next(row.verdict for row in found.rows if row.at == at)

    def commits(self, group: str = "g") -> int:
        return sum(it[0] == group for it in self.target.commits)


def test_offsets_move_both_ways_with_their_metadata_and_only_when_they_change() -> None:
    rig = Rig()
    rig.at_source(10)
    rig.rounds()
    assert rig.target.values["g", copy_of(A)] == GroupOffset(place(10), "m10")
    rig.rounds(5)
    assert (rig.commits(), rig.map.reads, rig.verdict()) == (1, 1, GroupVerdict.IN_SYNC)
    rig.at_source(4)
    rig.rounds()
    assert (rig.there(), rig.commits()) == (place(4), 2)


def test_what_is_not_copied_yet_follows_as_it_is() -> None:
    rig = Rig()
    rig.map.ends[A] = 200
    rig.at_source(150)
    rig.rounds()
    assert rig.there() == place(100)
    rig.map.copied[A] = 130
    rig.rounds()
    assert rig.there() == place(130)
    rig.map.copied[A] = 200
    rig.rounds(2)
    assert rig.there() == place(150)
    reads = rig.map.reads
    rig.rounds(3)
    assert rig.map.reads == reads


def test_what_the_map_does_not_tell_yet_follows_soon() -> None:
    """Its end is where the target's last stable offset is, which a marker of the last transaction moves."""
    rig = Rig()
    rig.map.unmapped[A] = 80
    rig.at_source(90)
    rig.rounds()
    assert rig.there() == place(80)
    rig.map.unmapped.clear()
    rig.rounds(2)
    assert rig.there() == place(90)


@pytest.mark.parametrize(
    ("stands", "verdict"), [(9, GroupVerdict.IN_SYNC), (8, GroupVerdict.TO_COMMIT), (10, GroupVerdict.IN_SYNC)]
)
def test_who_looks_from_outside_takes_offsets_with_a_marker_between_for_the_same(
    stands: int, verdict: GroupVerdict
) -> None:
    """A group that had read all that was copied was moved to before the marker of that transaction."""
    rig = Rig()
    rig.at_source(5)
    there = GroupOffset(stands, "m5")
    rig.target.values["g", copy_of(A)] = there
    known, followed = GroupNotes(), following.FollowedGroups(rig.flow)
    assert list(known.take("g", copy_of(A).topic, {A.partition: OwnershipNote(there)}, [A.partition]))
    selected = followed.select(rig.source.listing(1.0).groups, all_of_them=True)
    list(followed.take(rig.source.offsets(dict.fromkeys(selected), 1.0, stable=True)))
    rig.map.read()
    due = followed.due(followed.snapshot(rig.map.partitions()), 0.0)
    looking = commits.CommitRound(followed, rig.target, rig.map, FakeNotes(rig.topic, None), rig.clock)
    looking.look([one._replace(renew=False) for one in due], known, [])
    (shown,) = followed.shown()
    found = {row.at: row for row in shown.rows}[A]
    assert (found.verdict, found.target, rig.there()) == (verdict, stands, stands)


class SlowNotes(FakeNotes):
    """The first of them take long to become durable."""

    def __init__(self, rig: Rig, *seconds: float) -> None:
        super().__init__(rig.topic)
        self._rig, self._seconds = rig, list(seconds)

    def write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        super().write(records)
        self._rig.clock.s += self._seconds.pop(0) if self._seconds else 0.0


def test_what_was_decided_long_ago_is_not_sent() -> None:
    """Its note would be forgotten before the commit can't arrive any more."""
    rig = Rig()
    rig.at_source(10)
    sync = GroupSync(
        rig.flow, rig.source, rig.target, rig.map, SlowNotes(rig, 70.0), NamedHoldTopics(()), rig.clock
    )  # fmt: skip
    assert sync.round().committed == 0
    assert rig.commits() == 0
    rig.clock.s += 70.0
    assert sync.round().committed == 1
    assert rig.there() == place(10)


def test_offsets_are_committed_again_before_they_expire() -> None:
    rig = Rig()
    rig.at_source(10)
    rig.rounds()
    rig.clock.s += rig.flow.limits.recommit_interval_ms / 1000
    rig.rounds(2)
    assert rig.commits() == 2
    assert rig.there() == place(10)


def test_a_partition_without_an_offset_and_one_that_is_unstable_are_said_to_be() -> None:
    rig = Rig()
    rig.at_source(10)
    rig.rounds()
    assert rig.verdict(B) is GroupVerdict.NO_OFFSET
    rig.at_source(20, B)
    rig.source.unstable.add(("g", B))
    rig.rounds()
    assert (rig.verdict(B), rig.there(B)) == (GroupVerdict.UNSTABLE, None)
    rig.source.unstable.clear()
    rig.rounds()
    assert rig.there(B) == place(20)


def test_a_group_goes_on_being_synced_when_its_members_leave() -> None:
    rig = Rig()
    rig.at_source(10)
    rig.rounds()
    rig.target.members.add("g")
    rig.at_source(20)
    rig.rounds(3)
    assert (rig.there(), rig.verdict()) == (place(10), GroupVerdict.HAS_MEMBERS)
    rig.target.members.clear()
    rig.rounds(int(following.SOON_S))
    assert rig.there() == place(20)


def test_somebody_elses_offset_is_left_alone_until_it_is_deleted() -> None:
    rig = Rig()
    rig.at_source(10)
    rig.rounds()
    rig.at_source(20)
    rig.rounds()
    rig.target.values["g", copy_of(A)] = GroupOffset(place(10), "m10")  # the flow's, once
    rig.at_source(30)
    rig.rounds(3)
    assert (rig.there(), rig.verdict()) == (place(10), GroupVerdict.NOT_OURS)
    rig.sync = rig.worker()
    rig.rounds(3)
    assert rig.there() == place(10)
    del rig.target.values["g", copy_of(A)]
    rig.rounds(2 * int(following.SLOW_S) // 5)
    assert rig.there() == place(30)


def test_groups_of_flows_are_not_synced() -> None:
    rig = Rig()
    rig.at_source(10, group="eos-replicate.other")
    rig.rounds()
    assert (rig.sync.shown(), rig.there(group="eos-replicate.other")) == ([], None)


def test_where_the_source_ends_is_noted() -> None:
    rig = Rig()
    rig.rounds()
    group = ends_group("f")
    assert {at: value.offset for (name, at), value in rig.target.values.items() if name == group} == {
        copy_of(at): 100 for at in (A, B, OUT)
    }
    first = int(rig.target.values[group, copy_of(A)].metadata)
    rig.map.ends[B] = 101
    rig.rounds()
    assert rig.target.values[group, copy_of(B)].offset == 101
    assert int(rig.target.values[group, copy_of(A)].metadata) == first + 5000
    assert rig.target.commits.count((group, copy_of(OUT), 100)) == 1


def test_groups_are_moved_some_at_a_time_and_none_before_it_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails, fails for those that come after it: they follow in the next round."""
    monkeypatch.setattr(commits, "PARTITIONS_AT_ONCE", 3)
    rig = Rig()
    names = [f"g{number}" for number in range(8)]
    for name in names:
        rig.at_source(10, group=name)
        rig.at_source(20, B, name)
    commit, write, written = rig.target.commit, FakeNotes.write, list[int]()

    def checked(offsets: OffsetsToCommit, timeout_s: float) -> dict[str, PartitionCodes | ReplicatorError]:
        known = GroupNotes()
        known.read(rig.topic.records)
        for group, topics in offsets.items():
            for topic, values in topics.items() if group in names else ():
                for at, value in values.items():
                    assert known.of(group, topic)[at].unanswered[-1].value == value[:2]
        return commit(offsets, timeout_s)

    def fails(notes: FakeNotes, records: Sequence[tuple[bytes, bytes]]) -> None:
        written.append(len(records))
        if len(written) == 3:
            raise Unreachable("the target doesn't answer")
        write(notes, records)

    monkeypatch.setattr(rig.target, "commit", checked)
    monkeypatch.setattr(FakeNotes, "write", fails)
    with pytest.raises(Unreachable):
        rig.sync.round()
    assert written == [2, 4, 4]  # what is about to be committed, with what has become of those before
    assert sorted(rig.commits(name) for name in names) == [0] * 4 + [2] * 4
    rig.rounds()
    assert [rig.commits(name) for name in names] == [2] * 8
    assert all(rig.verdict(at, name) is GroupVerdict.IN_SYNC for name in names for at in (A, B))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_schedule_of_faults_ends_in_sync_and_never_overwrites_somebody_else(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers that take over from each other, lost answers, late commits, consumers and operators at the target."""
    monkeypatch.setattr(commits, "PARTITIONS_AT_ONCE", Random(seed + 2).choice((1, 3, 10_000)))
    draw = Random(seed)
    rig = Rig(Random(seed + 1))
    workers = [rig.sync]
    groups = [f"g{number}" for number in range(draw.randint(1, 4))]
    taken: dict[tuple[str, Partition], GroupOffset] = {}  # what somebody else has committed last at the target
    for _ in range(draw.randint(20, 120)):
        group, at = draw.choice(groups), draw.choice((A, B))
        step = draw.random()
        if step < 0.45:
            if draw.random() < 0.1:
                workers.append(rig.worker())
            with suppress(ReplicatorError):
                draw.choice(workers[-2:]).round()  # the one before may not know yet that it is fenced
            rig.clock.s += draw.choice((0.2, 5, 5, 70))
        elif step < 0.75:
            rig.at_source(draw.randint(0, 110), at, group)
        elif step < 0.82:
            rig.target.members.symmetric_difference_update({group})
        elif step < 0.87 and not rig.target.late:
            taken[group, at] = value = GroupOffset(draw.randint(0, 300), "somebody else's")
            rig.target.values[group, copy_of(at)] = value
        elif step < 0.92:
            rig.map.copied[at] = min(rig.map.ends[at], rig.map.copied[at] + draw.randint(0, 5))
        else:
            rig.target.arrive()
        for key, value in taken.items():
            stands = rig.target.values[key[0], copy_of(key[1])]
            assert stands == value, f"seed {seed}: {key} was somebody else's, and is {stands}"
    rig.target.arrive()
    rig.target.members.clear()
    rig.map.copied |= {A: 110, B: 110}
    rig.without_faults()
    last = rig.worker()
    for _ in range(4):
        last.round()
        rig.clock.s += LATE_MS / 1000 + 10
    for key, value in rig.source.values.items():
        stands = rig.target.values[key[0], copy_of(key[1])]
        if key in taken:
            assert stands == taken[key]
        else:
            assert stands == GroupOffset(place(value.offset), value.metadata), f"seed {seed}: {key}"


@pytest.mark.parametrize(
    ("code", "verdict", "detail"),
    [
        (E.message_too_large, GroupVerdict.REFUSED, "MESSAGE_TOO_LARGE"),
        (E.invalid_commit_offset_size, GroupVerdict.REFUSED, "INVALID_COMMIT_OFFSET_SIZE"),
        (E.unknown_server_error, GroupVerdict.TO_COMMIT, "UNKNOWN_SERVER_ERROR"),
        (TOO_MUCH_AT_ONCE, GroupVerdict.TO_COMMIT, ""),
    ],
)
def test_what_a_coordinator_refuses_of_one_group_is_said_there_and_stops_no_other(
    code: int, verdict: GroupVerdict, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig()
    rig.at_source(10, group="large")
    rig.at_source(20)
    commit = rig.target.commit

    def refuses(offsets: OffsetsToCommit, timeout_s: float) -> dict[str, PartitionCodes | ReplicatorError]:
        found = commit({name: it for name, it in offsets.items() if name != "large"}, timeout_s)
        of_large = {topic: dict.fromkeys(values, int(code)) for topic, values in offsets.get("large", {}).items()}
        return {**found, "large": of_large} if of_large else found

    monkeypatch.setattr(rig.target, "commit", refuses)
    rig.rounds()
    assert (rig.there(), rig.verdict()) == (place(20), GroupVerdict.IN_SYNC)
    assert rig.there(group="large") is None
    (row,) = [it for shown in rig.sync.shown() if shown.group == "large" for it in shown.rows if it.at == A]
    assert (row.verdict, row.detail) == (verdict, detail)
    known = GroupNotes()
    known.read(rig.topic.records)
    assert bool(known.of("large", copy_of(A).topic)[0].unanswered) is (code == E.unknown_server_error)
    monkeypatch.undo()
    rig.rounds(2 * int(following.SLOW_S) // 5)
    assert rig.there(group="large") == place(10)

"""Both clusters, the map and the notes of group sync in memory, with faults that a test draws."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from random import Random

from kio.schema.errors import ErrorCode as E

from replicator.group_sync.ports import SourceEnds
from replicator.groups.decision import COMMIT_DEADLINE_MS, OffsetToCommit
from replicator.groups.ownership import LATE_MS, GroupOffset
from replicator.model.errors import Fenced, FlowFrozen, ReplicatorError, Unreachable
from replicator.model.partition import Partition
from replicator.offset_map.translate import TranslatedOffset
from replicator.state.group_notes import GroupNotes
from replicator.state.other_ends import OtherEnds
from replicator.state.transaction_notes import TransactionNotes
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
from replicator.wire.group_coordinators import PartitionCodes
from replicator.wire.group_questions import GroupListing
from replicator.wire.group_requests import ListedGroup
from replicator.wire.offset_fetch_groups import GroupValues, PartitionValue, Wanted
from replicator.wire.share_groups import OffsetsToCommit, ShareValues

LATE_S = (COMMIT_DEADLINE_MS + LATE_MS) / 1000


class FakeValues(GroupValues):
    """What a group has committed, as it is."""

    def __init__(self, values: dict[str, dict[int, PartitionValue]]) -> None:
        super().__init__(0, b"")
        self.values = values

    def topics(self) -> dict[str, dict[int, PartitionValue]]:
        return self.values


def copy_of(at: Partition) -> Partition:
    """Where a partition of the source is copied to."""
    return Partition(f"{at.topic}.copy", at.partition)


def place(offset: int) -> int:
    """Where an offset of the source stands at the target: markers stand in between."""
    return 2 * offset


@dataclass
class FakeGroups:
    """The groups of one cluster. `faults`: drawn for each question and each commit, of which some arrive later."""

    faults: Random | None = None
    values: dict[tuple[str, Partition], GroupOffset] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    kinds: dict[str, str] = field(default_factory=dict)
    unstable: set[tuple[str, Partition]] = field(default_factory=set)
    late: list[tuple[float, list[tuple[str, Partition, GroupOffset]]]] = field(default_factory=list)
    now_s: Callable[[], float] = lambda: 0.0
    commits: list[tuple[str, Partition, int]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)  # groups that aren't listed
    unseen: set[str] = field(default_factory=set)  # topics without the right to Describe them
    refuse: dict[str | Partition, int] = field(default_factory=dict)  # by group, and by where its offset isn't deleted
    told: set[str] = field(default_factory=set)
    end: int = 1_000  # of each partition, for share groups
    acknowledged: dict[tuple[str, Partition], int] = field(default_factory=dict)  # by share groups behind their offsets
    _shares: dict[str, ShareValues] = field(default_factory=dict)
    _last: dict[str, FakeValues] = field(default_factory=dict)

    def _draw(self, chance: float) -> bool:
        return self.faults is not None and self.faults.random() < chance

    def keep(self, groups: Set[str]) -> None:
        """See `GroupQuestions`."""

    def share(self, groups: Set[str]) -> None:
        """See `GroupQuestions`."""
        self.told = set(groups)

    def is_share(self, group: str) -> bool:
        """Whether it is a share group, or would be made as one."""
        return self.kinds.get(group) == "share" or (group in self.told and group not in self.kinds)

    def listing(self, timeout_s: float) -> GroupListing:
        """See `GroupQuestions`."""
        if self._draw(0.02):
            raise Unreachable("nobody answers")
        names = ({group for group, _ in self.values} | self.members | self.kinds.keys()) - self.hidden
        state = {name: "Stable" if name in self.members else "Empty" for name in names}
        return GroupListing({it: ListedGroup("consumer", state[it], self.kinds.get(it, "classic")) for it in names})

    def offsets(
        self,
        groups: Mapping[str, Wanted],
        timeout_s: float,
        *,
        stable: bool,
        else_only: Callable[[], Mapping[str, Collection[int]]] = dict,
    ) -> dict[str, GroupValues | ReplicatorError]:
        """See `GroupQuestions`: what is as it was is the same object."""
        found: dict[str, GroupValues | ReplicatorError] = {}
        for name, wanted in groups.items():
            if self._draw(0.05):
                found[name] = Unreachable("its coordinator doesn't answer")
                continue
            asked = {Partition(topic, number) for topic, of_topic in (wanted or {}).items() for number in of_topic}
            ats = {at for group, at in self.values if group == name and at.topic not in self.unseen}
            ats = ats if wanted is None else asked
            topics: dict[str, dict[int, PartitionValue]] = {}
            for at in ats:
                topics.setdefault(at.topic, {})[at.partition] = self._value(name, at)
            if self.is_share(name):
                found[name] = self._share_values(name, topics)
                continue
            last, values = self._last.get(name), FakeValues(topics)
            if wanted is None:
                values = self._last[name] = last if last is not None and last.values == topics else values
            found[name] = values
        return found

    def _share_values(self, group: str, topics: dict[str, dict[int, PartitionValue]]) -> ShareValues:
        lags = dict[str, dict[int, int | None]]()
        for topic, of_topic in topics.items():
            for number, value in of_topic.items():
                start = value.offset if isinstance(value, GroupOffset) else 0
                left = self.end - start - self.acknowledged.get((group, Partition(topic, number)), 0)
                lags.setdefault(topic, {})[number] = left
        values = ShareValues(topics, lags)
        last = self._shares.get(group)
        self._shares[group] = last if last is not None and last == values else values
        return self._shares[group]

    def _value(self, group: str, at: Partition) -> PartitionValue:
        if (group, at) in self.unstable:
            return int(E.unstable_offset_commit)
        return self.values.get((group, at))

    def commit(self, offsets: OffsetsToCommit, timeout_s: float) -> dict[str, PartitionCodes | ReplicatorError]:
        """See `GroupQuestions`."""
        found: dict[str, PartitionCodes | ReplicatorError] = {}
        for group, topics in offsets.items():

            def all_of(code: int, topics: Mapping[str, Mapping[int, OffsetToCommit]] = topics) -> PartitionCodes:
                return {topic: dict.fromkeys(values, code) for topic, values in topics.items()}

            if group in self.members:
                found[group] = all_of(int(E.non_empty_group if self.is_share(group) else E.unknown_member_id))
                continue
            if self.is_share(group):
                self.kinds[group] = "share"
                assert not any(it.metadata for values in topics.values() for it in values.values())
            wanted = [
                (group, Partition(topic, number), GroupOffset(it.offset, it.metadata))
                for topic, values in topics.items()
                for number, it in values.items()
            ]
            assert all(it.leader_epoch == -1 for values in topics.values() for it in values.values())
            if self._draw(0.1):
                found[group] = Unreachable("no answer")
                if self._draw(0.5):
                    self._apply(wanted)
                elif self._draw(0.5):
                    self.late.append((self.now_s(), wanted))
                continue
            if self._draw(0.05):
                if self._draw(0.5):  # it moves when the offsets are in its log already
                    self._apply(wanted)
                found[group] = all_of(int(E.not_coordinator))
                continue
            self._apply(wanted)
            found[group] = all_of(0)
        return found

    def send_commits(
        self, offsets: OffsetsToCommit, timeout_s: float
    ) -> Callable[[], dict[str, PartitionCodes | ReplicatorError]]:
        """See `GroupQuestions`: they are done at once, or when their answers are waited for."""
        if self._draw(0.5):
            return partial(self.commit, offsets, timeout_s)
        answers = self.commit(offsets, timeout_s)
        return lambda: answers

    def delete_offsets(
        self, offsets: Mapping[str, Mapping[str, Collection[int]]], timeout_s: float
    ) -> dict[str, PartitionCodes | ReplicatorError]:
        """See `GroupQuestions`."""
        found: dict[str, PartitionCodes | ReplicatorError] = {}
        for group, topics in offsets.items():
            codes: PartitionCodes = {}
            code = int(E.non_empty_group) if group in self.members else self.refuse.get(group, 0)
            for topic, numbers in topics.items():
                codes[topic] = {it: code or self.refuse.get(Partition(topic, it), 0) for it in numbers}
                for number in numbers:
                    if codes[topic][number] == 0:
                        self.values.pop((group, Partition(topic, number)), None)
            if any(code == 0 for of_topic in codes.values() for code in of_topic.values()):
                self.deleted.append(group)
            found[group] = Unreachable("no answer") if self._draw(0.2) else codes
        return found

    def _apply(self, wanted: Sequence[tuple[str, Partition, GroupOffset]]) -> None:
        for group, at, value in wanted:
            self.acknowledged.pop((group, at), None)
            self.values[group, at] = value
            self.commits.append((group, at, value.offset))

    def arrive(self) -> None:
        """What was sent and not answered is applied now, or never: nothing waits for longer than `LATE_S`."""
        late, self.late = self.late, []
        for sent_s, wanted in late:
            if self.now_s() < sent_s + LATE_S:
                self._apply([it for it in wanted if it[0] not in self.members])


@dataclass
class FakeMap:
    """A map in which each offset stands at `place`. By source partition: `copied`: up to where; `unmapped`: from where
    on the map doesn't tell yet."""

    copied: dict[Partition, int]
    ends: dict[Partition, int]
    faults: Random | None = None
    reads: int = 0
    unmapped: dict[Partition, int] = field(default_factory=dict)
    stable: dict[Partition, int] = field(default_factory=dict)
    failed_over: set[str] = field(default_factory=set)
    frozen: bool = False
    known_better: dict[Partition, ReplicatorError] = field(default_factory=dict)  # by the positions, and why
    not_there: set[Partition] = field(default_factory=set)  # that the target doesn't have
    unknown: dict[Partition, ReplicatorError] = field(default_factory=dict)  # why nothing is known of where they end
    silent: dict[Partition, ReplicatorError] = field(default_factory=dict)  # why it isn't translated there
    _left_out: frozenset[str] = frozenset()
    target_end: int = 1_000
    growth: int = 0  # with each question for it
    _listed: dict[str, Sequence[Partition]] = field(default_factory=dict)
    _copied: dict[Partition, int] = field(default_factory=dict)

    def read_failed_over(self) -> Collection[str]:
        """See `LiveMap`."""
        self._left_out = frozenset(self.failed_over)
        return self._left_out

    def known_topics(self) -> Collection[str] | None:
        """See `LiveMap`."""
        return None

    def refuse_frozen(self) -> None:
        """See `LiveMap`."""
        if self.frozen:
            raise FlowFrozen("flow f: it was failed over")

    def read(self) -> None:
        """See `LiveMap`."""
        if self.faults is not None and self.faults.random() < 0.03:
            raise Unreachable("the target doesn't answer")
        self.reads += 1
        self._copied = dict(self.copied)
        listed: dict[str, Sequence[Partition]] = {}
        for at in sorted(at for at in self.copied if at.topic not in self._left_out):
            listed[at.topic] = [*listed.get(at.topic, ()), at]
        if listed != self._listed:
            self._listed = listed

    def outdated(self) -> Mapping[Partition, ReplicatorError]:
        """See `LiveMap`."""
        return self.known_better

    def positions(self) -> Mapping[Partition, int]:
        """See `LiveMap`."""
        return self._copied

    def partitions(self) -> Mapping[str, Sequence[Partition]]:
        """See `LiveMap`."""
        return self._listed

    def answers(self, asked: Collection[OffsetToTranslate]) -> Sequence[OffsetAnswer]:
        """See `LiveMap`."""
        return [self._answer(one) for one in asked]

    def unread(self) -> Mapping[Partition, ReplicatorError]:
        """See `LiveMap`."""
        return self.silent

    def nothing_between(self, at: Partition, first: int, end: int) -> bool:
        """See `LiveMap`."""
        return not any(first <= place(offset) < end for offset in range(self._copied[at]))

    def _answer(self, one: OffsetToTranslate) -> OffsetAnswer:
        known = min(one.offset, self._copied[one.at])
        if (mapped := self.unmapped.get(one.at, known)) < known:
            return OffsetAnswer(one, copy_of(one.at), TranslatedOffset(place(mapped), None, ("unmapped",)))
        found = TranslatedOffset(
            place(known), 0 if known == one.offset else None, () if known == one.offset else ("ahead",)
        )
        return OffsetAnswer(one, copy_of(one.at), found)

    def source_ends(self) -> SourceEnds:
        """See `LiveMap`."""
        ends = {at: end for at, end in self.ends.items() if at not in self.unknown}
        return SourceEnds(ends, {at: end for at, end in ends.items() if at not in self.not_there}, dict(self.unknown))

    def stable_ends(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        """See `LiveMap`: a transaction is open where `stable` says so."""
        return {at: self.stable.get(at, self.ends[at]) for at in ats}

    def target_ends(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        """See `LiveMap`: 1,000, and more where records come."""
        self.target_end += self.growth
        return dict.fromkeys(ats, self.target_end)

    def ends_of(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        """See `LiveMap`."""
        return {at: self.ends[at] for at in ats}

    def target_topic(self, topic: str) -> str:
        """See `LiveMap`."""
        return copy_of(Partition(topic, 0)).topic


class NotesTopic:
    """The groups topic: its records, and whose turn it is to write."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self.writer: object = None


class FakeNotes:
    """Implements `Notes` over a topic that other workers write as well."""

    def __init__(self, topic: NotesTopic, faults: Random | None = None) -> None:
        self._topic, self._faults = topic, faults

    def begin(self) -> GroupNotes:
        """See `Notes`."""
        self._topic.writer = self
        found = GroupNotes()
        found.read(record for record in self._topic.records if record[1] is not None)
        return found

    def transaction_notes(self) -> TransactionNotes:
        """See `Notes`."""
        return TransactionNotes.read(dict(self._topic.records))

    def other_ends(self) -> OtherEnds:
        """See `Notes`."""
        return OtherEnds.read(dict(self._topic.records))

    def write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """See `Notes`."""
        if self._topic.writer is not self:
            raise Fenced("somebody else writes the notes")
        if self._faults is not None and self._faults.random() < 0.15:
            raise Unreachable("the target doesn't answer")
        self._topic.records += records

    def forget(self) -> None:
        """See `Notes`."""


class FakeClock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.s = 1000.0

    def now_s(self) -> float:
        """See `Clock`."""
        return self.s

    def now_ms(self) -> int:
        """See `Clock`."""
        return int(self.s * 1000)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """See `Clock`."""
        self.s += seconds
        return event.is_set()

"""One round at the target: what stands there → decide → note → commit → note. Used by `sync`.

It goes from some groups to the next ones: what is held of them as objects doesn't grow with the number of groups. While
the commits of some are answered, the next ones are looked at; one transaction notes what has become of the former and
what is about to be committed of the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kio.schema.errors import ErrorCode as E

from replicator.group_sync.asked_once import answers_once
from replicator.group_sync.followed import UNSTABLE, DueGroup, FollowedGroups
from replicator.group_sync.ports import LiveMap, Notes, TargetGroups
from replicator.groups.decision import (
    COMMIT_DEADLINE_MS,
    GroupVerdict,
    OffsetToCommit,
    decide_row,
)
from replicator.groups.ownership import GroupOffset, OwnershipNote
from replicator.groups.row_columns import PartitionSeen, SourceRead
from replicator.groups.share import AcknowledgedBehind, unless_consumed
from replicator.lane.ports import Clock
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Unsupported
from replicator.model.partition import Partition
from replicator.offset_map.translate import TranslatedOffset, TranslationNote
from replicator.state.group_notes import NO_NOTE, GroupNotes
from replicator.translation.answers import OffsetAnswer, with_delivered
from replicator.wire.group_coordinators import PartitionCodes
from replicator.wire.group_questions import TOO_MUCH_AT_ONCE
from replicator.wire.group_requests import ListedGroup
from replicator.wire.offset_fetch_groups import PartitionValue
from replicator.wire.share_groups import SHARE, ShareValues

ASK_S = 5.0
PARTITIONS_AT_ONCE = 10_000
"""Of groups that are looked at and moved together."""
_MEMBERS = {E.unknown_member_id, E.rebalance_in_progress, E.illegal_generation, E.stale_member_epoch}
_MEMBERS |= {E.fenced_member_epoch, E.fenced_instance_id, E.non_empty_group}
_REFUSED = {E.group_authorization_failed, E.topic_authorization_failed, E.unknown_topic_or_partition}
_REFUSED |= {E.offset_metadata_too_large, E.invalid_commit_offset_size, E.invalid_group_id, E.group_id_not_found}
_REFUSED |= {E.message_too_large, E.record_list_too_large, E.invalid_topic_exception}
HAS_MEMBERS, REFUSED = (frozenset(map(int, codes)) for codes in (_MEMBERS, _REFUSED))
NOT_DONE = HAS_MEMBERS | REFUSED | {int(E.coordinator_load_in_progress), TOO_MUCH_AT_ONCE}
"""After these codes the coordinator certainly hasn't committed the offset, and won't. NOT_COORDINATOR and
COORDINATOR_NOT_AVAILABLE aren't among them: a coordinator that moves, or whose replicas are slow, says so of what it
has appended already."""
SENT_WITHIN_MS = 10_000
"""After what is to be committed was decided: the note of it is kept for `LATE_MS` only."""
Answers = Mapping[str, PartitionCodes | ReplicatorError]
"""To commits, by target group."""
Same = Callable[[str, int, int, int], bool]
_NO_NOTES: tuple[TranslationNote, ...] = ()
_MISSING = -3  # instead of an error code: the answer doesn't have the partition


@dataclass(slots=True)
class _TopicInWork:
    """One topic of a group that is looked at. By partition."""

    target_topic: str
    reads: Mapping[int, SourceRead]
    notes: dict[int, OwnershipNote] = field(default_factory=dict)  # all of them, as soon as they are needed,
    changed: list[int] = field(default_factory=list)  # and those that change
    answers: Mapping[int, OffsetAnswer] = field(default_factory=dict)  # to `reads`, until it is decided
    rows: dict[int, PartitionSeen] = field(default_factory=dict)
    commits: dict[int, OffsetToCommit] = field(default_factory=dict)


@dataclass(slots=True)
class _GroupInWork:
    due: DueGroup
    there: ListedGroup | None  # at the target
    topics: dict[str, _TopicInWork]  # by source topic
    decided_ms: int = 0

    @property
    def has_members(self) -> bool:
        return self.there is not None and self.there.has_members

    @property
    def other_kind(self) -> str:
        """Why the group at the target is another one; empty: it isn't."""
        if self.there is None or (self.there.kind == SHARE) == (self.due.delivered is not None):
            return ""
        return f"at the target this is a {'share' if self.there.kind == SHARE else 'consumer'} group"


class CommitRound:
    """Of one flow: decides and commits. Invariant: what is committed is noted before, durably."""

    def __init__(
        self,
        followed: FollowedGroups,
        target: TargetGroups,
        live_map: LiveMap,
        notes: Notes,
        clock: Clock,
    ) -> None:
        self._followed, self._target, self._map, self._notes, self._clock = followed, target, live_map, notes, clock

    def run(self, due: Iterable[DueGroup], known: GroupNotes, unanswered: list[ReplicatorError]) -> int:
        """Move what is to be moved of these groups; how many offsets were committed. Adds to `unanswered` why some
        were not.

        Raises ReplicatorError.
        """
        committed, before, answers = 0, list[_GroupInWork](), _nobody_answers
        for groups in self._looked_at(due, known, unanswered):  # while the commits of those before are answered
            committed += _taken(before, answers(), unanswered)
            self._note(known, [*before, *groups])
            self._put(before)
            before, answers = groups, self._sent(groups)
        committed += _taken(before, answers(), unanswered)
        self._note(known, before)
        self._put(before)
        return committed

    def look(self, due: Iterable[DueGroup], known: GroupNotes, unanswered: list[ReplicatorError]) -> None:
        """Take down what would become of these groups; nothing is changed. Else as `run`."""
        for groups in self._looked_at(due, known, unanswered, same=self._same):
            self._put(groups)

    def _same(self, topic: str, at: int, first: int, end: int) -> bool:
        """Return whether a consumer that goes on at either of two target offsets reads the same: a marker lies between,
        or what was aborted. The end of what was copied is at one of them, or at the other one once more is copied."""
        return first < end and self._map.nothing_between(self._map.partitions()[topic][at], first, end)

    def _looked_at(
        self,
        due: Iterable[DueGroup],
        known: GroupNotes,
        unanswered: list[ReplicatorError],
        same: Same | None = None,
    ) -> Iterator[list[_GroupInWork]]:
        """Decide about groups, some at a time; those about which the target says nothing are left out. `same`: where to
        stand is as good as where to be moved."""
        there: Mapping[str, ListedGroup] | None = None
        for some in _some(due):
            if there is None:
                listing = self._target.listing(ASK_S)
                unanswered += listing.unanswered
                there = listing.groups
            yield self._decided(some, there, known, unanswered, same)

    def _decided(
        self,
        groups: Sequence[DueGroup],
        there: Mapping[str, ListedGroup],
        known: GroupNotes,
        unanswered: list[ReplicatorError],
        same: Same | None,
    ) -> list[_GroupInWork]:
        to = self._map.target_topic
        work = [
            _GroupInWork(
                one,
                there.get(one.target_group),
                {topic: _TopicInWork(to(topic), reads) for topic, reads in one.reads.items()},
            )
            for one in groups
        ]
        self._translate([(it.due, name, topic) for it in work for name, topic in it.topics.items()])
        wanted = {it.due.target_group: {topic.target_topic: topic.reads for topic in it.topics.values()} for it in work}
        shares = [
            Partition(topic.target_topic, at)
            for it in work
            if it.due.delivered is not None
            for topic in it.topics.values()
            for at in topic.reads
        ]
        before = self._map.target_ends(shares) if shares else {}
        found = self._target.offsets(wanted, ASK_S, stable=True)
        after = self._map.target_ends(shares) if shares else {}
        now_ms = self._clock.now_ms()
        for it in work:
            it.decided_ms = now_ms
            values = found[it.due.target_group]
            if isinstance(values, ReplicatorError):
                unanswered.append(values)
                if isinstance(values, NotAllowed | Incident | Unsupported):  # else the next round asks again
                    _refuse(it, str(values) if isinstance(values, Unsupported) else "")
                else:
                    self._followed.missed(it.due.group, str(values))
                continue
            if it.other_kind:
                _refuse(it, it.other_kind)
                continue
            stands = values.topics()
            gone = isinstance(values, ShareValues) and not stands
            for name, topic in it.topics.items():
                of_topic = None if same is None else partial(same, name)
                shared = None
                if isinstance(values, ShareValues):
                    shared = partial(_acknowledged, values, topic.target_topic, before, after)
                topic.notes = known.of(it.due.target_group, topic.target_topic)
                in_it = dict.fromkeys(topic.reads) if gone else stands.get(topic.target_topic, {})
                _decide(topic, in_it, it, now_ms, of_topic, shared)
        return work

    def _translate(self, topics: Sequence[tuple[DueGroup, str, _TopicInWork]]) -> None:
        found = answers_once(
            self._map,
            (
                (name, [(at, read.offset) for at, read in topic.reads.items() if isinstance(read, GroupOffset)])
                for _, name, topic in topics
            ),
        )
        for due, name, topic in topics:
            of_it = found[name]
            topic.answers = {
                at: of_it[at, read.offset] for at, read in topic.reads.items() if isinstance(read, GroupOffset)
            }
            if delivered := (due.delivered or {}).get(name):
                topic.answers = {
                    at: with_delivered(answer, delivered.get(at, 0)) for at, answer in topic.answers.items()
                }

    def _note(self, known: GroupNotes, groups: Iterable[_GroupInWork]) -> None:
        records = list[tuple[bytes, bytes]]()
        for one in groups:
            for topic in one.topics.values():
                if topic.changed:
                    records += known.take(one.due.target_group, topic.target_topic, topic.notes, topic.changed)
                    topic.changed.clear()
        if records:
            self._notes.write(records)

    def _sent(self, groups: Iterable[_GroupInWork]) -> Callable[[], Answers]:
        wanted = {
            one.due.target_group: {it.target_topic: it.commits for it in one.topics.values() if it.commits}
            for one in groups
            if any(it.commits for it in one.topics.values()) and self._clock.now_ms() <= one.decided_ms + SENT_WITHIN_MS
        }
        return self._target.send_commits(wanted, COMMIT_DEADLINE_MS / 1000) if wanted else _nobody_answers

    def _put(self, groups: Iterable[_GroupInWork]) -> None:
        now_s = self._clock.now_s()
        for one in groups:
            rows = {name: topic.rows for name, topic in one.topics.items()}
            self._followed.put(one.due, rows, self._map.target_topic, now_s, has_members=one.has_members)


def _nobody_answers() -> Answers:
    return {}


def _taken(groups: Iterable[_GroupInWork], answers: Answers, unanswered: list[ReplicatorError]) -> int:
    """Take down what coordinators have said of commits; how many are done."""
    committed = 0
    for one in groups:
        codes = answers.get(one.due.target_group)
        if isinstance(codes, ReplicatorError):
            unanswered.append(codes)  # it may have been committed, or be still
        elif codes is not None:
            committed += sum(_answered(it, codes.get(it.target_topic, {})) for it in one.topics.values())
    return committed


def _some(due: Iterable[DueGroup]) -> Iterator[list[DueGroup]]:
    """Yield groups that are looked at together."""
    some, partitions = list[DueGroup](), 0
    for one in due:
        some.append(one)
        partitions += one.partitions
        if partitions >= PARTITIONS_AT_ONCE:
            yield some
            some, partitions = [], 0
    if some:
        yield some


def _decide(
    topic: _TopicInWork,
    stands: Mapping[int, PartitionValue],
    group: _GroupInWork,
    now_ms: int,
    same: Callable[[int, int, int], bool] | None = None,
    shared: Callable[[int], AcknowledgedBehind] | None = None,
) -> None:
    """Decide about partitions. `stands`: what the target says of them. `same`: of a partition, see `CommitRound`.
    `shared`: what a share group has acknowledged of one at the target."""
    rows, notes, answers = topic.rows, topic.notes, topic.answers
    has_members, renew = group.has_members, group.due.renew
    for at, read in topic.reads.items():
        value, metadata, translated, said = stands.get(at, _MISSING), "", _NO_NOTES, ""
        if isinstance(read, GroupVerdict):
            source: TranslatedOffset | GroupVerdict = read
        else:
            metadata, (_, _, source, problem, said) = read.metadata, answers[at]
            translated = source.notes
            if problem:
                source = GroupVerdict.NOT_COPIED
        if isinstance(value, int):
            verdict = GroupVerdict.UNSTABLE_THERE if value == UNSTABLE else GroupVerdict.REFUSED
            rows[at] = PartitionSeen(read, verdict, notes=translated, detail=said)
            continue
        note = notes.get(at, NO_NOTE)
        found = decide_row(note, source, metadata, has_members, value, now_ms, renew=renew)
        offset, commit = None if value is None else value.offset, found.commit
        if same is not None and value is not None and commit is not None and found.exact:
            as_good = value.metadata == commit.metadata and same(at, value.offset, commit.offset)
            found = found._replace(verdict=GroupVerdict.IN_SYNC, commit=None) if as_good else found
        if shared is not None and value is not None:
            found, why = unless_consumed(found, shared(at), note.observed(value, now_ms))
            commit, said = found.commit, said or why
        rows[at] = PartitionSeen(read, found.verdict, offset, found.again, found.exact, translated, said)
        if found.note != note:
            notes[at] = found.note
            topic.changed.append(at)
        if found.commit is not None:
            topic.commits[at] = found.commit
    topic.answers = {}  # nobody asks for them again


def _refuse(group: _GroupInWork, why: str) -> None:
    """Say of all of a group's partitions that a cluster refuses."""
    for topic in group.topics.values():
        topic.rows |= {at: PartitionSeen(read, GroupVerdict.REFUSED, detail=why) for at, read in topic.reads.items()}


def _acknowledged(
    values: ShareValues, topic: str, before: Mapping[Partition, int], after: Mapping[Partition, int], at: int
) -> AcknowledgedBehind:
    """Return what a share group has acknowledged at the target. `before`, `after`: where partitions ended around
    that.
    """
    least, most = (values.acknowledged(topic, at, ends.get(Partition(topic, at), 0)) for ends in (before, after))
    return AcknowledgedBehind(least, most)


def _answered(topic: _TopicInWork, codes: Mapping[int, int]) -> int:
    """Take the same of one topic of a group."""
    committed, rows, notes = 0, topic.rows, topic.notes
    for at, (offset, metadata, _) in topic.commits.items():
        code, value = codes.get(at, _MISSING), GroupOffset(offset, metadata)
        if code == 0:
            read, _, _, again, exact, translated, said = rows[at]
            rows[at] = PartitionSeen(read, GroupVerdict.IN_SYNC, offset, again, exact, translated, said)
            notes[at] = notes[at].with_committed(value)
            committed += 1
        elif code in NOT_DONE:
            rows[at] = _refused(rows[at], code)
            notes[at] = notes[at].refused(value)
        else:  # it may have been committed
            if code == E.unknown_server_error:
                rows[at] = rows[at]._replace(detail=E(code).name.upper())
            continue
        topic.changed.append(at)
    return committed


def _refused(row: PartitionSeen, code: int) -> PartitionSeen:
    if code in HAS_MEMBERS:
        return row._replace(verdict=GroupVerdict.HAS_MEMBERS)
    if code in REFUSED:
        return row._replace(verdict=GroupVerdict.REFUSED, detail=E(code).name.upper())
    return row

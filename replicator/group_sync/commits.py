"""One round at the target: what stands there → decide → note → commit → note. Used by `sync`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kio.schema.errors import ErrorCode as E

from replicator.group_sync.followed import UNSTABLE, DuePartition, FollowedGroups, source_offset
from replicator.group_sync.ports import LiveMap, NoteChanges, Notes, TargetGroups
from replicator.groups.decision import (
    COMMIT_DEADLINE_MS,
    GroupDecision,
    GroupVerdict,
    OffsetToCommit,
    SourceOffset,
    TargetOffset,
    decide,
)
from replicator.groups.ownership import GroupOffset
from replicator.groups.rows import GroupRow
from replicator.lane.ports import Clock
from replicator.model.errors import Incident, NotAllowed, ReplicatorError
from replicator.model.partition import Partition
from replicator.state.group_notes import GroupNotes, GroupPartition
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate

ASK_S = 5.0
_MEMBERS = {E.unknown_member_id, E.rebalance_in_progress, E.illegal_generation, E.stale_member_epoch}
_MEMBERS |= {E.fenced_member_epoch, E.fenced_instance_id}
_REFUSED = {E.group_authorization_failed, E.topic_authorization_failed, E.unknown_topic_or_partition}
_REFUSED |= {E.offset_metadata_too_large, E.invalid_commit_offset_size, E.invalid_group_id, E.group_id_not_found}
_LATER = {E.not_coordinator, E.coordinator_not_available, E.coordinator_load_in_progress}
HAS_MEMBERS, REFUSED = (frozenset(map(int, codes)) for codes in (_MEMBERS, _REFUSED))
NOT_DONE = HAS_MEMBERS | REFUSED | frozenset(map(int, _LATER))
"""After these codes the coordinator certainly hasn't committed the offset, and won't."""

Stands = TargetOffset | GroupVerdict


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
        self._members: dict[str, bool] = {}  # by target group, as it was listed last

    def run(self, due: Sequence[DuePartition], known: GroupNotes, unanswered: list[ReplicatorError]) -> int:
        """Move what is to be moved of these partitions; how many offsets were committed. Adds to `unanswered` why some
        were not.

        Raises ReplicatorError.
        """
        decided = self.look(due, known, unanswered)
        keyed = {self._key(one): it.note for one, it in decided}
        self._note(known, {key: note for key, note in keyed.items() if note != known.of(key)})
        return self._commit([(one, it.commit) for one, it in decided if it.commit is not None], known, unanswered)

    def look(
        self, due: Sequence[DuePartition], known: GroupNotes, unanswered: list[ReplicatorError]
    ) -> list[tuple[DuePartition, GroupDecision]]:
        """Decide about these partitions, and take down what becomes of each; nothing is changed. Else as `run`."""
        listing = self._target.listing(ASK_S)
        unanswered += listing.unanswered
        self._members = {name: it.has_members for name, it in listing.groups.items()}
        asked = [(one, one.read) for one in due if isinstance(one.read, GroupOffset)]
        answers = self._map.answers([OffsetToTranslate(one.at, read.offset) for one, read in asked])
        translated = {(one.group, one.at): answer for (one, _), answer in zip(asked, answers, strict=True)}
        stands = self._stands(due, unanswered)
        decided: list[tuple[DuePartition, GroupDecision]] = []
        for one in due:
            key = self._key(one)
            there, answer = stands.get(key), translated.get((one.group, one.at))
            if there is None:
                continue
            if isinstance(there, GroupVerdict):
                self._put(one, self._row(one, there, answer))
                continue
            note = known.of(key)
            found = decide(note, source_of(one, answer), there, self._clock.now_ms(), renew=one.renew)
            self._put(one, self._row(one, found.verdict, answer, there, found))
            decided.append((one, found))
        return decided

    def _key(self, one: DuePartition) -> GroupPartition:
        return GroupPartition(one.target_group, self._map.route(one.at))

    def _stands(
        self, due: Iterable[DuePartition], unanswered: list[ReplicatorError]
    ) -> Mapping[GroupPartition, Stands]:
        wanted: defaultdict[str, list[Partition]] = defaultdict(list)
        for one in due:
            wanted[one.target_group].append(self._map.route(one.at))
        found: dict[GroupPartition, Stands] = {}
        for group, values in self._target.offsets(wanted, ASK_S, stable=True).items():
            if isinstance(values, ReplicatorError):
                unanswered.append(values)
                if isinstance(values, NotAllowed | Incident):  # else the next round asks again
                    found |= {GroupPartition(group, at): GroupVerdict.REFUSED for at in wanted[group]}
                continue
            members = self._members.get(group, False)
            for at in wanted[group]:
                code, value = values.by_partition.get(at, (-1, None))
                stands: Stands = GroupVerdict.UNSTABLE_THERE if code == UNSTABLE else GroupVerdict.REFUSED
                if code == 0 and value is not None:
                    there = GroupOffset(value.offset, value.metadata) if value.offset >= 0 else None
                    stands = TargetOffset(members, there)
                found[GroupPartition(group, at)] = stands
        return found

    def _note(self, known: GroupNotes, changes: NoteChanges) -> None:
        if changes:
            self._notes.write(known.take(changes))

    def _commit(
        self,
        wanted: Sequence[tuple[DuePartition, OffsetToCommit]],
        known: GroupNotes,
        unanswered: list[ReplicatorError],
    ) -> int:
        offsets: defaultdict[str, dict[Partition, OffsetToCommit]] = defaultdict(dict)
        for one, value in wanted:
            offsets[one.target_group][self._map.route(one.at)] = value
        if not offsets:
            return 0
        answers = self._target.commit(offsets, COMMIT_DEADLINE_MS / 1000)
        unanswered += [codes for codes in answers.values() if isinstance(codes, ReplicatorError)]
        changes: NoteChanges = {}
        for one, value in wanted:
            codes, key = answers[one.target_group], self._key(one)
            if isinstance(codes, ReplicatorError):
                continue  # it may have been committed, or be still
            code, said = codes.get(key.at, -1), GroupOffset(value.offset, value.metadata)
            row = self._followed.row(one.group, one.at)
            assert row is not None
            if code == 0:
                changes[key] = known.of(key).committed(said)
                self._put(one, row._replace(verdict=GroupVerdict.IN_SYNC, target=value.offset))
            elif code in NOT_DONE:
                changes[key] = known.of(key).refused(said)
                self._put(one, _refused(row, code))
        self._note(known, changes)
        return sum(note.last is not None for note in changes.values())

    def _row(
        self,
        one: DuePartition,
        verdict: GroupVerdict,
        answer: OffsetAnswer | None,
        there: TargetOffset | None = None,
        decision: GroupDecision | None = None,
    ) -> GroupRow:
        stands = there.value.offset if there is not None and there.value is not None else None
        notes, said = (answer.translated.notes, answer.said) if answer is not None else ((), "")
        again, exact = (decision.again, decision.exact) if decision is not None else (None, False)
        to = self._map.route(one.at)
        return GroupRow(one.at, to, source_offset(one.read), stands, verdict, again, exact, notes, said)

    def _put(self, one: DuePartition, row: GroupRow) -> None:
        members = self._members.get(one.target_group, False)
        self._followed.put(one.group, row, one.read, self._clock.now_s(), has_members=members)


def source_of(one: DuePartition, answer: OffsetAnswer | None) -> SourceOffset | GroupVerdict:
    """The offset at the source, translated, or why there is none."""
    if isinstance(one.read, GroupVerdict):
        return one.read
    if answer is None or answer.problem:
        return GroupVerdict.NOT_COPIED
    return SourceOffset(one.read.offset, one.read.metadata, answer.translated)


def _refused(row: GroupRow, code: int) -> GroupRow:
    if code in HAS_MEMBERS:
        return row._replace(verdict=GroupVerdict.HAS_MEMBERS)
    if code in REFUSED:
        return row._replace(verdict=GroupVerdict.REFUSED, detail=E(code).name.upper())
    return row

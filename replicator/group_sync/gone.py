"""Deletes offsets at the target of groups that were deleted at the source (`groups.deleted: delete`). Used by `sync`.

Invariants
- A group has gone only where its coordinator says so: one that is missing among the groups that are listed may belong
  to a coordinator that moves, or to a user who may not see it any more.
- A source that has lost its topics, or has others of their names, deletes nothing: nobody has decided about groups.
- Only the flow's offsets are deleted, each by its name, and never the group: it may have others, in topics that the
  flow's user may not see. A group without offsets the broker forgets by itself.
- They are deleted only if the group has no members, all of its offsets that are seen are the flow's, whatever their
  topic, and no commit of the flow may still arrive. The broker itself refuses it where members consume these topics.
- That the flow owns nothing of it is noted before: whoever dies between leaves the offsets, and everybody after it
  takes them for somebody else's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Set
from typing import NamedTuple

from kio.schema.errors import ErrorCode as E

from replicator.config import Flow, routing
from replicator.group_sync.commits import ASK_S
from replicator.group_sync.ports import LiveMap, Notes, SourceGroups, TargetGroups
from replicator.groups.ownership import OwnershipNote
from replicator.groups.share import CONSUMED
from replicator.lane.ports import Clock
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition
from replicator.state.group_notes import NO_NOTE, GroupNotes
from replicator.translation.answers import OffsetToTranslate
from replicator.wire.group_coordinators import PartitionCodes
from replicator.wire.group_requests import ListedGroup
from replicator.wire.offset_fetch_groups import GroupValues
from replicator.wire.share_groups import SHARE, ShareValues

AGAIN_S = 60.0
"""Between two looks at a group that has gone and isn't deleted."""
DELETE_S = 5.0
_GONE, _UNKNOWN = int(E.group_id_not_found), int(E.unknown_server_error)
_REFUSED = frozenset(
    map(
        int,
        (
            E.non_empty_group,
            E.group_subscribed_to_topic,
            E.group_authorization_failed,
            E.topic_authorization_failed,
            E.unknown_topic_or_partition,
            E.coordinator_load_in_progress,
        ),
    )
)
"""After these codes the offset is certainly not deleted."""
_Notes = dict[str, dict[int, OwnershipNote]]
_Offsets = dict[str, list[int]]
"""Partitions by topic."""


class GoneGroup(NamedTuple):
    """A group that has gone at the source. `kept`: why its offsets aren't deleted at the target; empty: they are."""

    group: str
    target_group: str
    kept: str = ""


class GoneGroups:
    """Of one flow. Used by one thread."""

    def __init__(
        self, flow: Flow, source: SourceGroups, target: TargetGroups, live_map: LiveMap, notes: Notes, clock: Clock
    ) -> None:
        self._flow, self._source, self._target = flow, source, target
        self._map, self._notes, self._clock = live_map, notes, clock
        self._gone: dict[str, str] = {}  # names at the source by those at the target
        self._topics: dict[str, list[str]] = {}  # those of which there are notes, by target group
        self._next_s: dict[str, float] = {}

    @property
    def targets(self) -> Collection[str]:
        """Groups whose notes are needed, by their names at the target."""
        return self._gone.keys()

    def take(self, followed: Collection[str], noted: GroupNotes) -> None:
        """Find those that may have gone: of which there are notes, and that aren't among `followed`, those at the
        source."""
        if self._flow.groups.deleted != "delete":
            return
        by_group = defaultdict[str, list[str]](list)
        for target, topic in noted:
            by_group[target].append(topic)
        gone = dict[str, str]()
        for target in by_group:
            name = routing.source_group(self._flow, target)
            if name is not None and name not in followed and self._flow.groups.selects(name):
                gone[target] = name
        self._topics = {target: by_group[target] for target in gone}
        self._gone, self._next_s = gone, {name: at for name, at in self._next_s.items() if name in gone}

    def run(self, known: GroupNotes, topics: Collection[str], unanswered: list[ReplicatorError]) -> list[GoneGroup]:
        """Delete what is to be deleted; what has become of those that were looked at.

        Args:
            topics: those of the flow that there are at the source.

        Raises ReplicatorError.
        """
        now_s = self._clock.now_s()
        due = {to: name for to, name in self._gone.items() if self._next_s.get(to, now_s) <= now_s}
        if not due:
            return []
        self._next_s |= dict.fromkeys(due, now_s + AGAIN_S)
        self._map.read()
        notes = {to: found for to in due if (found := _notes_of(known, to, self._topics[to]))}
        for to in due.keys() - notes.keys():
            del self._gone[to]
        listing = self._target.listing(ASK_S)
        unanswered += listing.unanswered
        shares = {due[to] for to in notes if to in listing.groups and listing.groups[to].kind == SHARE}
        gone = self._gone_at_source({to: due[to] for to in notes}, shares, unanswered)
        done, delete = list[GoneGroup](), dict[str, _Offsets]()
        for to, said in self._decided({to: notes[to] for to in gone}, listing.groups, topics):
            if isinstance(said, str):
                done.append(GoneGroup(gone[to], to, said))
            else:
                delete[to] = said
        if delete:
            done += self._deleted(delete, {to: notes[to] for to in delete}, known, unanswered)
        return done

    def _gone_at_source(
        self, groups: Mapping[str, str], shares: Set[str], unanswered: list[ReplicatorError]
    ) -> dict[str, str]:
        """Find those of which their coordinators say that they have no offset. `shares`: those that were share groups,
        which are asked about in another way."""
        self._source.share(shares)
        found = self._source.offsets(dict.fromkeys(groups.values()), ASK_S, stable=True) if groups else {}
        unanswered += [it for it in found.values() if isinstance(it, ReplicatorError)]
        return {
            to: name
            for to, name in groups.items()
            if not isinstance(it := found[name], ReplicatorError) and not it.topics()
        }

    def _decided(
        self, notes: Mapping[str, _Notes], there: Mapping[str, ListedGroup], topics: Collection[str]
    ) -> Iterator[tuple[str, str | _Offsets]]:
        """Yield groups, and why each is kept, or which of its offsets are to be deleted."""
        if not notes:
            return
        copied = self._copied(topics)
        found = self._target.offsets(dict.fromkeys(notes), ASK_S, stable=True)
        for to, of_group in notes.items():
            values, listed = found[to], there.get(to)
            if isinstance(values, ReplicatorError):
                yield to, str(values)
            elif not (offsets := _there(values)):
                del self._gone[to]  # there is nothing to be deleted
            elif listed is None:
                yield to, "the target doesn't list it"
            elif listed.has_members:
                yield to, "it has members at the target"
            elif not of_group.keys() <= copied:
                yield (
                    to,
                    "a topic in which it had offsets was failed over, has gone at the source, or is another one",
                )
            else:
                why = _not_owned(values, of_group, self._clock.now_ms())
                yield to, why or (self._consumed(values) if isinstance(values, ShareValues) else "") or offsets

    def _consumed(self, values: ShareValues) -> str:
        """Return whether a share group may have acknowledged records at the target behind where it stands."""
        ats = [Partition(topic, at) for topic, of_topic in values.topics().items() for at in of_topic]
        ends = self._map.target_ends(ats)
        return CONSUMED if any(values.acknowledged(*at, ends.get(at, 0)) for at in ats) else ""

    def _copied(self, topics: Collection[str]) -> set[str]:
        """Return the target topics whose source topics are those that the flow has copied."""
        partitions = self._map.partitions()
        there = [name for name in topics if partitions.get(name)]
        answers = self._map.answers([OffsetToTranslate(Partition(name, 0), 0) for name in there])
        return {self._map.target_topic(name) for name, answer in zip(there, answers, strict=True) if not answer.problem}

    def _deleted(
        self,
        offsets: Mapping[str, _Offsets],
        notes: Mapping[str, _Notes],
        known: GroupNotes,
        unanswered: list[ReplicatorError],
    ) -> Iterator[GoneGroup]:
        self._note(known, {to: {topic: {} for topic in of_group} for to, of_group in notes.items()}, notes)
        answers = self._target.delete_offsets(offsets, DELETE_S)
        refused = {
            to: left for to, of_group in notes.items() if (left := _refused(of_group, offsets[to], answers.get(to)))
        }
        self._note(known, refused, refused)
        for to, ats in offsets.items():
            codes, name = answers.get(to), self._gone[to]
            if codes is None or isinstance(codes, ReplicatorError):
                unanswered += [codes] if codes is not None else []
                yield GoneGroup(name, to, f"whether its offsets are deleted isn't known: {codes}")
            else:
                yield GoneGroup(name, to, _left(ats, codes))
            if to not in refused:
                del self._gone[to]

    def _note(self, known: GroupNotes, groups: Mapping[str, _Notes], before: Mapping[str, _Notes]) -> None:
        """Have these notes durable. `before`: those whose partitions change."""
        records = [
            record
            for to, of_group in groups.items()
            for topic, notes in of_group.items()
            for record in known.take(to, topic, notes, before[to][topic])
        ]
        if records:
            self._notes.write(records)


def _notes_of(known: GroupNotes, target: str, topics: Collection[str]) -> _Notes:
    """Return a group's notes by topic and partition, without those that say nothing."""
    found: _Notes = {}
    for topic in topics:
        if notes := {at: note for at, note in known.of(target, topic).items() if note != NO_NOTE}:
            found[topic] = notes
    return found


def _there(values: GroupValues) -> _Offsets:
    """Say where a group has an offset, or may have one soon."""
    found = {
        topic: [at for at, it in of_topic.items() if it is not None] for topic, of_topic in values.topics().items()
    }
    return {topic: numbers for topic, numbers in found.items() if numbers}


def _refused(notes: _Notes, offsets: _Offsets, codes: PartitionCodes | ReplicatorError | None) -> _Notes:
    """Return the notes of a group's offsets that are certainly not deleted."""
    if codes is None or isinstance(codes, ReplicatorError):
        return {}
    found = {
        topic: {at: notes[topic][at] for at in numbers if codes.get(topic, {}).get(at) in _REFUSED}
        for topic, numbers in offsets.items()
    }
    return {topic: of_topic for topic, of_topic in found.items() if of_topic}


def _left(offsets: _Offsets, codes: PartitionCodes) -> str:
    """Say why some of these offsets aren't deleted; empty: all are."""
    for topic, numbers in offsets.items():
        for at in numbers:
            code = codes.get(topic, {}).get(at, _UNKNOWN)
            if code not in (0, _GONE):
                return f"the target refuses to delete its offset in {topic}-{at}: {E(code).name.upper()}"
    return ""


def _not_owned(values: GroupValues, notes: _Notes, now_ms: int) -> str:
    """Say why a group isn't the flow's alone; empty: it is."""
    for topic, of_topic in values.topics().items():
        for at, value in of_topic.items():
            note = notes.get(topic, {}).get(at, NO_NOTE)
            if isinstance(value, int):
                return f"a transaction at the target with its offset in {topic}-{at} hasn't ended"
            if not note.owns(value):
                return f"somebody else has committed its offset in {topic}-{at}"
    if any(
        one.until_ms > now_ms for of_topic in notes.values() for note in of_topic.values() for one in note.unanswered
    ):
        return "a commit may still arrive"
    return ""

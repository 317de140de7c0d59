"""What is done with one partition of one consumer group at the target, and why not. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from replicator.groups.ownership import LATE_MS, GroupOffset, OwnershipNote
from replicator.offset_map.translate import TranslatedOffset

NO_LEADER_EPOCH = -1
COMMIT_DEADLINE_MS = 5_000
"""For the answer to a commit. After it nothing is sent again before the next round."""


class GroupVerdict(Enum):
    """What became of a partition of a group in a round."""

    IN_SYNC = "in_sync"
    TO_COMMIT = "to_commit"
    HAS_MEMBERS = "has_members"
    NOT_OURS = "not_ours"
    NO_OFFSET = "no_offset"
    UNSTABLE = "unstable"
    UNTRANSLATED = "untranslated"
    UNANSWERED = "unanswered"
    UNSTABLE_THERE = "unstable_at_target"
    HELD = "held"
    NOT_COPIED = "not_copied"
    MEMBERS_AT_SOURCE = "members_at_source"
    REFUSED = "refused"
    UNKNOWN = "unknown"

    __hash__ = object.__hash__  # Enum's own is made in Python, and asked for with each partition

    @property
    def settled(self) -> bool:
        """Whether the group stands where it should, until something changes at the source."""
        return self in (GroupVerdict.IN_SYNC, GroupVerdict.NO_OFFSET)


VERDICTS_SAID = {
    GroupVerdict.IN_SYNC: "the group stands at the target where it stands at the source",
    GroupVerdict.TO_COMMIT: "the group is moved",
    GroupVerdict.HAS_MEMBERS: "the group has members at the target: it is never moved then",
    GroupVerdict.NOT_OURS: "the offset at the target was committed by somebody else, and is left alone; "
    "to have it synced again, delete it (kafka-consumer-groups.sh --delete-offsets, of a share group "
    "kafka-share-groups.sh)",
    GroupVerdict.NO_OFFSET: "the group has no offset at the source",
    GroupVerdict.UNSTABLE: "a transaction at the source with offsets of the group hasn't ended",
    GroupVerdict.UNTRANSLATED: "the offset map doesn't tell where the offset is at the target",
    GroupVerdict.UNANSWERED: "several commits had no answer, and may still arrive",
    GroupVerdict.UNSTABLE_THERE: "a transaction at the target with offsets of the group hasn't ended",
    GroupVerdict.HELD: "the group waits until the topics of groups.hold_with are copied as well",
    GroupVerdict.NOT_COPIED: "the flow has not copied this partition",
    GroupVerdict.MEMBERS_AT_SOURCE: "it is a share group that has members at the source: it is moved when it has none",
    GroupVerdict.REFUSED: "a cluster refuses to tell or to take the offset",
    GroupVerdict.UNKNOWN: "where the group stands could not be looked at",
}


class SourceOffset(NamedTuple):
    """A group's offset at the source, translated. `metadata`: the application's, to be copied verbatim."""

    offset: int
    metadata: str
    translated: TranslatedOffset


class TargetOffset(NamedTuple):
    """What stands at the target: whether the group has members, and its offset."""

    has_members: bool
    value: GroupOffset | None


class OffsetToCommit(NamedTuple):
    """What OffsetCommit is asked for.

    `leader_epoch` is none, never the source's: epochs of two clusters can't be compared, and Java's consumers don't
    read on from an offset whose epoch is above that of the partition's leader (KIP-320).
    """

    offset: int
    metadata: str
    leader_epoch: int = NO_LEADER_EPOCH


class GroupDecision(NamedTuple):
    """What is done in a round.

    Attributes:
        note: what must be durable now, before anything is committed.
        commit: what is committed then; None: nothing.
        again: how many records a consumer reads again from there; None: not known.
        exact: whether a consumer of the target skips nothing and reads nothing again.
    """

    verdict: GroupVerdict
    note: OwnershipNote
    commit: OffsetToCommit | None = None
    again: int | None = None
    exact: bool = False


def decide(
    note: OwnershipNote,
    source: SourceOffset | GroupVerdict,
    there: TargetOffset,
    now_ms: int,
    *,
    renew: bool = False,
) -> GroupDecision:
    """Decide what is done with one partition of a group.

    Values that are the flow's move both ways: a group that was reset at the source goes back at the target, too.

    Args:
        note: the last one that is durable.
        source: why there is none (`NO_OFFSET`, `UNSTABLE`), or the offset.
        there: read after `note` was.
        now_ms: wall clock.
        renew: what stands there already is committed again, so that it doesn't expire (KIP-211).
    """
    if isinstance(source, GroupVerdict):
        return decide_row(note, source, "", there.has_members, there.value, now_ms, renew=renew)
    return decide_row(note, source.translated, source.metadata, *there, now_ms, renew=renew)


def decide_row(
    note: OwnershipNote,
    source: TranslatedOffset | GroupVerdict,
    metadata: str,
    has_members: bool,
    there: GroupOffset | None,
    now_ms: int,
    *,
    renew: bool,
) -> GroupDecision:
    """Decide as `decide`, which calls it: for millions of partitions, none of which needs objects for what is known.

    Args:
        source: as of `decide`, or the offset, translated; `metadata`: of that.
        has_members, there: what stands at the target.
    """
    note = note.observed(there, now_ms)
    if has_members:
        return GroupDecision(GroupVerdict.HAS_MEMBERS, note)
    if there is not None and note.last is None:  # what isn't the flow's isn't noted
        return GroupDecision(GroupVerdict.NOT_OURS, note)
    if isinstance(source, GroupVerdict):
        return GroupDecision(source, note)
    offset, again, notes, _ = source
    if offset is None:
        return GroupDecision(GroupVerdict.UNTRANSLATED, note)
    exact = again == 0 and not notes
    value = GroupOffset(offset, metadata)
    if value == there and not renew:
        return GroupDecision(GroupVerdict.IN_SYNC, note, None, again, exact)
    before = note.before_commit(value, now_ms + COMMIT_DEADLINE_MS + LATE_MS)
    if before is None:
        return GroupDecision(GroupVerdict.UNANSWERED, note, None, again, exact)
    return GroupDecision(GroupVerdict.TO_COMMIT, before, OffsetToCommit(offset, metadata), again, exact)

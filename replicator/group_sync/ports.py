"""What syncing groups needs of both clusters, of the flow's offset map and of its notes. Implemented on Kafka by
`wire.group_questions`, `group_sync.live_map`, `group_sync.hold_topics` and `group_sync.note_topic`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition
from replicator.state.group_notes import GroupNotes
from replicator.state.other_ends import OtherEnds
from replicator.state.transaction_notes import TransactionNotes
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
from replicator.wire.group_coordinators import PartitionCodes
from replicator.wire.group_questions import GroupListing
from replicator.wire.offset_fetch_groups import GroupValues, Wanted
from replicator.wire.share_groups import OffsetsToCommit


class SourceGroups(Protocol):
    """See `GroupQuestions`."""

    def share(self, groups: Set[str]) -> None:
        """Take these for share groups, besides those that were listed as such."""

    def keep(self, groups: Set[str]) -> None:
        """Let go of what is known of all groups but these."""

    def listing(self, timeout_s: float) -> GroupListing:
        """List all groups."""

    def offsets(
        self,
        groups: Mapping[str, Wanted],
        timeout_s: float,
        *,
        stable: bool,
        else_only: Callable[[], Mapping[str, Collection[int]]] = dict,
    ) -> dict[str, GroupValues | ReplicatorError]:
        """Return what groups have committed."""


class TargetGroups(SourceGroups, Protocol):
    """See `GroupQuestions`."""

    def commit(self, offsets: OffsetsToCommit, timeout_s: float) -> dict[str, PartitionCodes | ReplicatorError]:
        """Commit for groups without members."""

    def send_commits(
        self, offsets: OffsetsToCommit, timeout_s: float
    ) -> Callable[[], dict[str, PartitionCodes | ReplicatorError]]:
        """Send the same without waiting; what is returned waits for the answers."""

    def delete_offsets(
        self, offsets: Mapping[str, Mapping[str, Collection[int]]], timeout_s: float
    ) -> dict[str, PartitionCodes | ReplicatorError]:
        """Delete these offsets of groups, those of share groups by whole topics: the code of each partition; or an
        error, after which nothing is known of this group's."""


class SourceEnds(NamedTuple):
    """Where the partitions end that the flow selects at the source.

    Attributes:
        ends: their high watermarks, whether or not they are at the target.
        noted: those of them that are noted for a failover: they have a partition at the target.
        unknown: the other ones, and why that isn't known. Of a topic that may not be seen these are the partitions that
            were seen before, at least one.
    """

    ends: Mapping[Partition, int]
    noted: Mapping[Partition, int]
    unknown: Mapping[Partition, ReplicatorError]

    def without(self, outdated: Mapping[Partition, ReplicatorError]) -> SourceEnds:
        """Return the same without the ends of partitions of which it has turned out that they aren't known."""
        unknown = {at: why for at, why in outdated.items() if at in self.ends}
        if not unknown:
            return self
        ends, noted = ({at: end for at, end in it.items() if at not in unknown} for it in (self.ends, self.noted))
        return SourceEnds(ends, noted, {**self.unknown, **unknown})


class LiveMap(Protocol):
    """The flow's offset map and positions as they stood at the last `read`."""

    def read_failed_over(self) -> Collection[str]:
        """Ask anew which source topics were failed over: their groups are left alone from then on, and `partitions`
        doesn't have them. Raises ReplicatorError."""

    def known_topics(self) -> Collection[str] | None:
        """Return the source topics that aren't new to the flow, as of the last `read_failed_over`; None: not known."""

    def refuse_frozen(self) -> None:
        """Raise FlowFrozen where the flow as a whole was failed over, or is about to be, when that was asked last."""

    def read(self) -> None:
        """Read them anew. Raises ReplicatorError."""

    def outdated(self) -> Mapping[Partition, ReplicatorError]:
        """Return source partitions of whose leaders the positions that were `read` last know better than whoever has
        told where they end before, and why that isn't believed."""

    def positions(self) -> Mapping[Partition, int]:
        """Return up to where each source partition is copied, of those of which the map tells."""

    def partitions(self) -> Mapping[str, Sequence[Partition]]:
        """Return the source partitions that the flow copies, by topic and in their order, from 0 on; another object
        when there are others."""

    def answers(self, asked: Collection[OffsetToTranslate]) -> Sequence[OffsetAnswer]:
        """Translate offsets of partitions that are copied, in their order. Raises ReplicatorError."""

    def nothing_between(self, at: Partition, first: int, end: int) -> bool:
        """Tell whether no copy of a source partition's records stands at the target in [first, end); False where that
        isn't known."""

    def source_ends(self) -> SourceEnds:
        """Ask where the partitions end that the flow selects at the source. Raises ReplicatorError where nothing is
        known of any."""

    def stable_ends(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        """Ask for the last stable offsets of source partitions; those that aren't known are left out. Raises
        ReplicatorError."""

    def unread(self) -> Mapping[Partition, ReplicatorError]:
        """Return the source partitions about which a cluster didn't answer, so that nothing is translated there, and
        why."""

    def target_ends(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        """Ask for the high watermarks of target partitions; those of `unread` ones are left out. Raises
        ReplicatorError."""

    def ends_of(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        """Ask for the high watermarks of source partitions. Raises ReplicatorError."""

    def target_topic(self, topic: str) -> str:
        """Return the target topic of a source topic: its partitions have the same numbers."""


class HoldTopics(Protocol):
    """The source topics for which groups wait (`groups.hold_with`)."""

    def look(self, copied: Collection[str]) -> None:
        """Find out, if it is time to, which of these topics groups wait for."""

    def holds(self, topic: str) -> bool:
        """Return whether groups wait until this source topic is copied."""


class Notes(Protocol):
    """The flow's notes of groups. They have one writer at a time."""

    def begin(self) -> GroupNotes:
        """Fence who has written them before, and read them to their end. Raises ReplicatorError."""

    def transaction_notes(self) -> TransactionNotes:
        """Return what was noted of the source's transactions when it was begun."""

    def other_ends(self) -> OtherEnds:
        """Return what ends the ends' group didn't have when it was begun."""

    def write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records of `GroupNotes.take`, `TransactionNotes` or `OtherEnds`; they are durable when it returns.
        Raises ReplicatorError: Fenced where somebody else writes now."""

    def forget(self) -> None:
        """Let go of the writer: `begin` comes next."""

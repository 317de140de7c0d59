"""The groups that a flow follows: what was read of each at the source, what became of its partitions, and which of them
are looked at next. Used by `sync`; does no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode as E

from replicator.config import Flow, routing
from replicator.groups.decision import GroupVerdict
from replicator.groups.ownership import GroupOffset
from replicator.groups.rows import GroupRow, GroupShown
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition
from replicator.wire.group_requests import GroupValues, ListedGroup

SOON_S, SLOW_S = 5.0, 60.0
"""Between two looks at what only somebody else can change: members that may leave and partitions that may be copied
soon; an offset of others at the target, or a part of the map."""
UNSTABLE = int(E.unstable_offset_commit)
SHARE = "share"
_AT_ONCE = frozenset({GroupVerdict.TO_COMMIT, GroupVerdict.UNANSWERED, GroupVerdict.UNSTABLE_THERE, GroupVerdict.HELD})
_SOON = frozenset({GroupVerdict.HAS_MEMBERS, GroupVerdict.NOT_COPIED})

Read = GroupOffset | GroupVerdict
"""What a group has committed in a partition of the source, or why that isn't known."""
Snapshot = Mapping[str, Mapping[Partition, Read]]
"""By group, and by source partition."""


class DuePartition(NamedTuple):
    """A partition of a group that is looked at now. `renew`: what it has at the target is committed again."""

    group: str
    target_group: str
    at: Partition
    read: Read
    renew: bool


@dataclass(slots=True)
class _Followed:
    values: GroupValues | None = None
    listed: object = None  # the partitions of the flow for which `read` was made
    read: Mapping[Partition, Read] = field(default_factory=dict)
    rows: dict[Partition, GroupRow] = field(default_factory=dict)
    looked: dict[Partition, Read] = field(default_factory=dict)  # what each row was made of
    next_s: dict[Partition, float] = field(default_factory=dict)
    renewed_s: float = float("-inf")
    detail: str = ""


class FollowedGroups:
    """Of one flow. Times are monotonic, in seconds."""

    def __init__(self, flow: Flow) -> None:
        self._flow, self._groups = flow, dict[str, _Followed]()
        self._renew_s = flow.limits.recommit_interval_ms / 1000
        self._changed = True

    def select(self, listed: Mapping[str, ListedGroup], *, all_of_them: bool) -> list[str]:
        """Take the groups that there are at the source; return those whose offsets are to be read.

        Args:
            all_of_them: whether one that isn't among them has gone. What it has at the target stays there.
        """
        wanted = {name: it for name, it in listed.items() if self._flow.groups.selects(name)}
        if all_of_them:
            self._groups = {name: it for name, it in self._groups.items() if name in wanted}
        for name, it in wanted.items():
            followed = self._groups.setdefault(name, _Followed())
            followed.detail = GroupVerdict.SHARE_GROUP.value if it.kind == SHARE else ""
        return sorted(name for name, it in wanted.items() if it.kind != SHARE)

    def take(self, answers: Mapping[str, GroupValues | ReplicatorError]) -> Iterator[ReplicatorError]:
        """Take what groups have committed at the source; yield why that isn't known of some: of those what they had
        committed before stays."""
        for name, found in answers.items():
            it = self._groups[name]
            if isinstance(found, ReplicatorError):
                it.detail = str(found)
                yield found
            elif found is not it.values:
                it.values, it.listed, self._changed = found, None, True

    def snapshot(self, partitions: Mapping[str, Collection[Partition]]) -> Snapshot:
        """Return what was taken, in the partitions that the flow copies, by topic."""
        for it in self._groups.values():
            if it.listed is not partitions and it.values is not None:
                it.read, it.listed = dict(_read(it.values, partitions)), partitions
        self._changed = False
        return {name: it.read for name, it in self._groups.items() if it.read}

    def idle(self, now_s: float) -> bool:
        """Whether nothing has changed at the source since `snapshot`, and nothing is to be looked at yet."""
        return not self._changed and not any(
            it.read and (self._to_renew(it, now_s) or min(it.next_s.values(), default=0.0) <= now_s)
            for it in self._groups.values()
        )

    def _to_renew(self, it: _Followed, now_s: float) -> bool:
        return now_s >= it.renewed_s + self._renew_s

    def due(self, snapshot: Snapshot, now_s: float) -> Iterator[DuePartition]:
        """Yield the partitions of a snapshot that are to be looked at."""
        for name, partitions in snapshot.items():
            it = self._groups.get(name)
            if it is None:
                continue
            target_group, renew = self.target_group(name), self._to_renew(it, now_s)
            if renew:
                it.renewed_s = now_s
            for at, read in partitions.items():
                if renew or it.looked.get(at) != read or it.next_s.get(at, 0.0) <= now_s:
                    yield DuePartition(name, target_group, at, read, renew)

    def put(self, group: str, row: GroupRow, read: Read, now_s: float, *, has_members: bool = False) -> None:
        """Take what became of a partition, of which `read` was read. `has_members`: whether the group was seen to have
        some at the target."""
        it = self._groups[group]
        it.rows[row.at], it.looked[row.at] = row, read
        pause_s = self._renew_s if row.verdict.settled else SOON_S if row.verdict in _SOON else SLOW_S
        ended = row.verdict is GroupVerdict.HAS_MEMBERS and not has_members
        if ended or row.verdict in _AT_ONCE or row.verdict is GroupVerdict.UNSTABLE or "ahead" in row.notes:
            pause_s = 0.0
        it.next_s[row.at] = now_s + pause_s

    def row(self, group: str, at: Partition) -> GroupRow | None:
        """Return what became of a partition last."""
        return self._groups[group].rows.get(at)

    def changed(self) -> None:
        """Have the next round look at what differs from what was looked at, whatever changes at the source."""
        self._changed = True

    def anew(self) -> None:
        """Have all looked at again: nothing is known any more of what stands at the target."""
        self.changed()
        for it in self._groups.values():
            it.next_s.clear()

    def target_group(self, group: str) -> str:
        """The group's name at the target."""
        return routing.target_group(self._flow, group)

    def shown(self) -> list[GroupShown]:
        """Where each group stands, by name."""
        return [
            GroupShown(name, self.target_group(name), tuple(it.rows[at] for at in sorted(it.rows)), it.detail)
            for name, it in sorted(self._groups.items())
        ]

    def __len__(self) -> int:
        return len(self._groups)


def source_offset(read: Read) -> int | None:
    """The offset, if there is one."""
    return read.offset if isinstance(read, GroupOffset) else None


def _read(values: GroupValues, partitions: Mapping[str, Collection[Partition]]) -> Iterator[tuple[Partition, Read]]:
    """What a group has committed in each partition of the topics in which it has committed anything."""
    for topic in {at.topic for at, (_, value) in values.by_partition.items() if value.offset >= 0}:
        for at in partitions.get(topic, ()):
            code, value = values.by_partition.get(at, (0, None))
            if code == UNSTABLE:
                yield at, GroupVerdict.UNSTABLE
            elif code:
                yield at, GroupVerdict.REFUSED
            elif value is None or value.offset < 0:
                yield at, GroupVerdict.NO_OFFSET
            else:
                yield at, GroupOffset(value.offset, value.metadata)

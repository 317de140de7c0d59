"""The groups that a flow follows: what was read of each at the source, what became of its partitions, and which of them
are looked at next. Used by `sync`; does no I/O.

What is kept of a group is compact, see `GroupValues` and `RowColumns`: only groups that are looked at become objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode as E

from replicator.config import Flow, routing
from replicator.groups.decision import GroupVerdict
from replicator.groups.ownership import GroupOffset
from replicator.groups.row_columns import PartitionSeen, RowColumns, SourceRead, Translated
from replicator.groups.shown_groups import GroupShown
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition
from replicator.wire.group_requests import ListedGroup
from replicator.wire.offset_fetch_groups import GroupValues
from replicator.wire.share_groups import SHARE, ShareValues

SOON_S, SLOW_S = 5.0, 60.0
"""Between two looks at what only somebody else can change: members that may leave and partitions that may be copied
soon; an offset of others at the target, or a part of the map."""
LOOK_S = 5.0
"""Between two looks at the target of a group of which nothing else makes look there."""
MISSED_MAX = 3
"""Rounds in which a group could not be looked at, after which it is unknown where it stands."""
UNSTABLE = int(E.unstable_offset_commit)
_AT_ONCE = frozenset({GroupVerdict.TO_COMMIT, GroupVerdict.UNANSWERED, GroupVerdict.UNSTABLE_THERE, GroupVerdict.HELD})
_AT_ONCE |= {GroupVerdict.UNSTABLE}
_SOON = frozenset({GroupVerdict.HAS_MEMBERS, GroupVerdict.NOT_COPIED})
_SETTLED = frozenset(verdict for verdict in GroupVerdict if verdict.settled)
_NEVER = float("inf")
_NOT_YET = "it has not been looked at yet"

Snapshot = Mapping[str, GroupValues]
"""What groups have committed at the source, by group."""
SeenRows = Mapping[str, Mapping[int, PartitionSeen]]
"""By source topic and partition."""


class DueGroup(NamedTuple):
    """The partitions of a group that are looked at now, by source topic. `renew`: what they have at the target is
    committed again. `delivered`: of a share group, how many records behind each offset it has acknowledged at most,
    None where that isn't known; None: it isn't one."""

    group: str
    target_group: str
    reads: Mapping[str, Mapping[int, SourceRead]]
    renew: bool
    delivered: Mapping[str, Mapping[int, int | None]] | None = None

    @property
    def partitions(self) -> int:
        """How many there are."""
        return sum(map(len, self.reads.values()))


@dataclass(slots=True)
class _Followed:
    share: bool = False  # whether it is a share group,
    busy: bool = False  # and has members at the source
    values: GroupValues | None = None
    looked: GroupValues | None = None  # of all of which there are rows,
    listed: object = None  # in all partitions that the flow copied then
    whole: bool = True  # whether all is looked at next
    topics: dict[str, RowColumns] = field(default_factory=dict)
    later_s: dict[str, dict[int, float]] = field(default_factory=dict)  # of rows that aren't settled
    next_s: float = _NEVER  # the first of these
    renewed_s: float = -_NEVER
    detail: str = ""
    stood: GroupValues | None = None  # what stood at the target when that was last compared with the rows
    members: bool = False  # whether it had some there, as it was seen last
    looked_s: float = -_NEVER  # when all of its rows were looked at
    translated_s: float = -_NEVER  # when all of them were translated for that
    looked_ms: int = 0  # the same by the wall clock
    seen: bool = False  # in this round
    failed: str = ""  # why it wasn't, in this round
    missed: int = 0  # rounds since then in which it couldn't be
    why: str = ""


class FollowedGroups:
    """Of one flow. Times are monotonic, in seconds."""

    def __init__(self, flow: Flow) -> None:
        self._flow, self._groups = flow, dict[str, _Followed]()
        self._renew_s = flow.limits.recommit_interval_ms / 1000
        self._changed = True
        self._partitions: Mapping[str, Sequence[Partition]] = {}

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
            share = it.kind == SHARE
            busy = share and it.has_members
            if followed.share != share or (busy and not followed.busy):  # nothing holds any more
                followed = self._groups[name] = _Followed()
            followed.share, followed.busy = share, busy
            followed.detail = GroupVerdict.MEMBERS_AT_SOURCE.value if busy else ""
        return sorted(name for name in wanted if not self._groups[name].busy)

    def take(self, answers: Mapping[str, GroupValues | ReplicatorError]) -> Iterator[ReplicatorError]:
        """Take what groups have committed at the source; yield why that isn't known of some: of those what they had
        committed before stays."""
        for name, found in answers.items():
            it = self._groups[name]
            if isinstance(found, ReplicatorError):
                it.detail = it.failed = str(found)
                yield found
            elif found is not it.values:
                it.values, self._changed = found, True

    def bound(self, ends: Mapping[Partition, int]) -> None:
        """Take where the source's partitions ended after groups were read, as far as that is known: it bounds what
        share groups have acknowledged there."""
        for it in self._groups.values():
            if not isinstance(it.values, ShareValues) or it.values.bounded:
                continue
            before = it.looked.delivered if isinstance(it.looked, ShareValues) else None
            it.values.bound(ends)
            it.whole = it.whole or it.values.delivered != before

    def snapshot(self, partitions: Mapping[str, Sequence[Partition]]) -> Snapshot:
        """Return what was taken. `partitions`: those that the flow copies, by topic; others aren't looked at."""
        self._partitions, self._changed = partitions, False
        return {name: it.values for name, it in self._groups.items() if it.values is not None}

    def idle(self, now_s: float) -> bool:
        """Return whether nothing has changed at the source since `snapshot`, and nothing is to be looked at yet."""
        return not self._changed and not any(
            it.whole or it.next_s <= now_s or self._to_renew(it, now_s)
            for it in self._groups.values()
            if it.values is not None
        )

    def _to_renew(self, it: _Followed, now_s: float) -> bool:
        return now_s >= it.renewed_s + self._renew_s

    def due(self, snapshot: Snapshot, now_s: float) -> Iterator[DueGroup]:
        """Yield what is to be looked at of a snapshot, group by group; `put` says what has become of each."""
        for name, values in snapshot.items():
            it = self._groups.get(name)
            if it is None or it.busy:
                continue
            renew = self._to_renew(it, now_s)
            if renew:
                it.renewed_s, it.whole = now_s, True
            if not self._differs(it, values) and it.next_s > now_s:
                continue
            reads = dict(_reads(values, self._partitions))
            _forget_gone(it, reads)
            due = {topic: some for topic, read in reads.items() if (some := self._due(it, topic, read, now_s))}
            it.looked, it.listed, it.whole = values, self._partitions, False
            if due:
                yield DueGroup(name, self.target_group(name), due, renew and not it.share, delivered_of(values))
            else:
                it.next_s = _next(it)

    def _differs(self, it: _Followed, values: GroupValues) -> bool:
        return it.whole or it.looked is not values or it.listed is not self._partitions

    @staticmethod
    def _due(it: _Followed, topic: str, reads: dict[int, SourceRead], now_s: float) -> Mapping[int, SourceRead]:
        columns, later_s = it.topics.get(topic), it.later_s.get(topic)
        if it.whole or columns is None:
            return reads
        due = columns.differing(reads)
        if later_s:
            due |= {at: reads[at] for at, next_s in later_s.items() if next_s <= now_s and at in reads}
        return due

    def hold(self, snapshot: Snapshot, target_topic: Callable[[str], str], detail: str, now_s: float) -> None:
        """Say of each partition that would be looked at that it waits, and for what."""
        for name, values in snapshot.items():
            it = self._groups.get(name)
            if it is None or it.busy or not self._differs(it, values):
                continue
            by_topic = dict(_reads(values, self._partitions))
            _forget_gone(it, by_topic)
            it.seen = it.seen or not by_topic
            for topic, reads in by_topic.items():
                columns = it.topics.get(topic) or RowColumns(topic, target_topic(topic))
                held = {
                    at: PartitionSeen(read, GroupVerdict.HELD, columns.target(at), detail=detail)
                    for at, read in columns.differing(reads).items()
                }
                self._put(it, topic, columns, held, now_s)
            it.next_s = now_s

    @property
    def moving(self) -> bool:
        """Whether some partition would be moved."""
        to_commit = GroupVerdict.TO_COMMIT
        return any(to_commit in rows.counts() for it in self._groups.values() for rows in it.topics.values())

    def hold_moving(self, why: str) -> None:
        """Say of each partition that would be moved that it waits, and for what."""
        for it in self._groups.values():
            it.topics = {topic: rows.held(why) for topic, rows in it.topics.items()}

    def put(
        self,
        due: DueGroup,
        rows: SeenRows,
        target_topic: Callable[[str], str],
        now_s: float,
        *,
        has_members: bool = False,
    ) -> None:
        """Take what became of partitions that were due. `has_members`: whether the group was seen to have some at the
        target."""
        it = self._groups[due.group]
        for topic, of_topic in rows.items():
            if not of_topic:
                continue
            columns = it.topics.get(topic) or RowColumns(topic, target_topic(topic))
            self._put(it, topic, columns, of_topic, now_s, has_members=has_members)
        it.next_s = _next(it)
        it.members, it.stood = has_members, None
        if sum(map(len, rows.values())) < due.partitions:  # nothing is known of the others
            it.whole = True
        elif due.partitions == sum(map(len, it.topics.values())):
            it.looked_s, it.translated_s, it.seen = now_s, now_s, True

    def missed(self, group: str, reason: str) -> None:
        """Take down why a group, by its name at the source, couldn't be looked at in this round."""
        self._groups[group].failed = reason

    def unseen(self, now_s: float) -> list[str]:
        """Return the groups with rows whose target is to be looked at, besides those that are due."""
        return [
            name
            for name, it in self._groups.items()
            if it.topics and not (it.seen or it.failed) and it.looked_s + LOOK_S <= now_s
        ]

    def stands(self, group: str, found: GroupValues, now_s: float, *, has_members: bool) -> None:
        """Take what a group has at the target: where it isn't what its rows show, they are due."""
        it = self._groups[group]
        it.looked_s, it.seen = now_s, True
        if has_members and not it.members:
            it.whole = True
        if found is it.stood:
            return
        it.stood, stands = found, found.topics()
        for topic, columns in it.topics.items():
            self.look_again(group, topic, columns.moved(stands.get(columns.target_topic, {})), now_s)

    def look_again(self, group: str, topic: str, partitions: Iterable[int], now_s: float) -> None:
        """Have partitions of a source topic looked at in the next round."""
        it = self._groups[group]
        for at in partitions:
            it.later_s.setdefault(topic, {})[at] = it.next_s = now_s

    def delivered(self, group: str, topic: str, at: int) -> int | None:
        """Return how many records a share group has acknowledged at most behind its offset, which it would get again;
        None: that isn't known.
        """
        return (delivered_of(self._groups[group].looked) or {}).get(topic, {}).get(at, 0)

    def translated(self, before_s: float) -> Iterator[tuple[str, str, dict[int, tuple[int, int, Translated]]]]:
        """Yield group, source topic and what was translated of its partitions, see `RowColumns.translated`. Left out
        are groups of which all was translated since `before_s`."""
        for name, it in self._groups.items():
            if it.translated_s > before_s:
                continue
            for topic, columns in it.topics.items():
                yield name, topic, columns.translated()

    def end_round(self, now_ms: int, failed: str = "") -> None:
        """Take down of which groups all was looked at. `failed`: why of none."""
        for it in self._groups.values():
            if reason := failed or it.failed:
                it.missed, it.why = it.missed + 1, reason
            elif it.seen or (not it.topics and it.values is not None and it.values is it.looked):
                it.missed, it.why, it.looked_ms = 0, "", now_ms
            it.seen, it.failed = False, ""

    def _put(
        self,
        it: _Followed,
        topic: str,
        columns: RowColumns,
        rows: Mapping[int, PartitionSeen],
        now_s: float,
        *,
        has_members: bool = False,
    ) -> None:
        it.topics[topic] = columns.with_rows(rows)
        later_s = it.later_s.setdefault(topic, {})
        for at, row in rows.items():
            ahead, unmapped = "ahead" in row.notes, "unmapped" in row.notes
            if row.verdict in _SETTLED and not (ahead or unmapped):
                later_s.pop(at, None)
                continue
            ended = row.verdict is GroupVerdict.HAS_MEMBERS and not has_members
            at_once = ahead or ended or row.verdict in _AT_ONCE
            soon = unmapped or row.verdict in _SOON  # the end of the map is there when the target's markers are
            later_s[at] = now_s + (0.0 if at_once else SOON_S if soon else SLOW_S)

    def changed(self) -> None:
        """Have the next round look at what differs from what was looked at, whatever changes at the source."""
        self._changed = True

    def anew(self) -> None:
        """Have all looked at again: nothing is known any more of what stands at the target."""
        self.changed()
        for it in self._groups.values():
            it.whole = True

    def target_group(self, group: str) -> str:
        """Return the group's name at the target."""
        return routing.target_group(self._flow, group)

    def shown(self, missed_max: int = MISSED_MAX) -> list[GroupShown]:
        """Say where each group stands, by name; that of one which couldn't be looked at so often is unknown."""
        found = list[GroupShown]()
        for name, it in sorted(self._groups.items()):
            unknown = it.why or _NOT_YET if it.missed >= missed_max or not (it.looked_ms or it.topics) else ""
            topics = tuple(it.topics[topic] for topic in sorted(it.topics))
            to, why = self.target_group(name), "" if it.detail else unknown
            found.append(GroupShown(name, to, topics, it.detail, it.looked_ms, why, SHARE if it.share else ""))
        return found

    @property
    def target_groups(self) -> dict[str, str]:
        """Their names at the target, by those at the source."""
        return {name: self.target_group(name) for name in self._groups}

    @property
    def share_targets(self) -> set[str]:
        """The names at the target of those that are share groups."""
        return {self.target_group(name) for name, it in self._groups.items() if it.share}

    def __len__(self) -> int:
        return len(self._groups)


def delivered_of(values: GroupValues | None) -> Mapping[str, Mapping[int, int | None]] | None:
    """See `DueGroup`."""
    return (values.delivered or {}) if isinstance(values, ShareValues) else None


def _forget_gone(it: _Followed, reads: Mapping[str, Mapping[int, SourceRead]]) -> None:
    """Let go of topics in which the group has no offset any more, and of those that have fewer partitions than they
    had: they were made anew."""
    for topic in [name for name, rows in it.topics.items() if not rows.within(len(reads.get(name, ())))]:
        del it.topics[topic]
        it.later_s.pop(topic, None)


def _next(it: _Followed) -> float:
    """Say when the first of its rows that aren't settled is looked at."""
    return min((min(each.values(), default=_NEVER) for each in it.later_s.values()), default=_NEVER)


def _reads(
    values: GroupValues, partitions: Mapping[str, Sequence[Partition]]
) -> Iterator[tuple[str, dict[int, SourceRead]]]:
    """Yield what a group has committed in each partition of the topics in which it has committed anything."""
    for topic, found in values.topics().items():
        if topic not in partitions or all(value is None for value in found.values()):
            continue
        of_all = map(found.get, range(len(partitions[topic])))
        yield topic, {at: it if isinstance(it, GroupOffset) else _without_offset(it) for at, it in enumerate(of_all)}


def _without_offset(code: int | None) -> GroupVerdict:
    if code is None:
        return GroupVerdict.NO_OFFSET
    return GroupVerdict.UNSTABLE if code == UNSTABLE else GroupVerdict.REFUSED

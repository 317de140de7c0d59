"""Which transactions of the source's producers are half copied: followed from one look at the source to the next. Pure.

A look asks for the ends of the flow's partitions, and reads `__transaction_state` to its end *after* that. A
coordinator logs a partition of a transaction before anything of it is written there, and that it will be committed once
all of its records are acknowledged, and before any of its markers is written (KIP-98). So, without reading any of the
data:

- What a look's log doesn't say of a partition yet has no record below the ends that were asked for before it: the
  records of a transaction stand at or behind the ends of the look before the one in which its partition was seen first.
- Ends that are asked for once it was read that a transaction will be committed stand behind its records. Whoever has
  read so far with read_committed has passed its marker, and so has read them.

No transaction that was decided between two looks is missed, however short: the log has each of them. What is not known:
where between these bounds the records stand, and all that was logged after the last look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from replicator.model import names
from replicator.model.partition import Partition

KEPT_MAX = 50_000
"""Transactions of a flow that ended and aren't copied as a whole; the oldest are left out beyond that, and counted."""


class LoggedState(Enum):
    """What a coordinator has logged of a transaction; the numbers are Kafka's (TransactionState)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


class LoggedTransaction(NamedTuple):
    """One record of `__transaction_state`: all that its transaction has by then. Times are the coordinator's."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: LoggedState
    partitions: Mapping[str, tuple[int, ...]]
    start_ms: int
    updated_ms: int

    @property
    def first(self) -> bool:
        """Whether the transaction has begun with it."""
        return self.state is LoggedState.ONGOING and self.start_ms == self.updated_ms


class RecordRange(NamedTuple):
    """Between which offsets of a partition the records of a transaction stand: [first, end); None: that isn't known."""

    first: int | None
    end: int | None = None


@dataclass(slots=True)
class SourceTransaction:
    """One transaction, with those of its partitions that the flow copies. `committed`: that is decided. `lost`: those
    of which nothing is known, because they were another topic's, or lost records, when or after it wrote there."""

    transactional_id: str
    producer_id: int
    epoch: int
    start_ms: int
    committed: bool = False
    parts: dict[Partition, RecordRange] = field(default_factory=dict)
    lost: set[Partition] = field(default_factory=set)

    def as_json(self) -> list[Any]:
        """Return it as JSON, to be kept."""
        parts = [[*at, *bounds] for at, bounds in sorted(self.parts.items())]
        lost = [[*at] for at in sorted(self.lost)]
        return [self.transactional_id, self.producer_id, self.epoch, self.start_ms, self.committed, parts, lost]

    @classmethod
    def of_json(cls, row: list[Any]) -> SourceTransaction:
        """Make it of what `as_json` gave. Raises TypeError, ValueError."""
        transactional_id, producer_id, epoch, start_ms, committed, parts, lost = row
        bounds = {Partition(str(topic), int(number)): RecordRange(first, end) for topic, number, first, end in parts}
        gone = {Partition(str(topic), int(number)) for topic, number in lost}
        return cls(str(transactional_id), int(producer_id), int(epoch), int(start_ms), bool(committed), bounds, gone)

    def lose(self, ats: set[Partition]) -> SourceTransaction:
        """Return the same without what was known of these partitions."""
        parts = {at: bounds for at, bounds in self.parts.items() if at not in ats}
        return replace(self, parts=parts, lost=self.lost | (ats & self.parts.keys()))

    @property
    def bounded(self) -> bool:
        """Whether it is known of each partition where its records end at the latest."""
        return all(bounds.end is not None for bounds in self.parts.values())

    def copied(self, positions: Mapping[Partition, int]) -> bool:
        """Return whether all of it is at the target for certain."""
        return all(is_copied(bounds, positions.get(at)) for at, bounds in self.parts.items())


def is_copied(bounds: RecordRange, position: int | None) -> bool | None:
    """Return whether the records between the bounds are copied, where a partition is copied up to `position`. None:
    some of them may be."""
    if position is None:
        return None
    if bounds.end is not None and position >= bounds.end:
        return True
    return False if position <= (bounds.first or 0) else None


class PartCopied(NamedTuple):
    """What is known of a partition of a transaction; `copied`: None where that isn't known."""

    at: Partition
    bounds: RecordRange
    position: int | None
    copied: bool | None


class HalfCopied(NamedTuple):
    """A transaction of which some partitions are copied and others aren't, or may not be. `certain`: it was committed,
    and both are so."""

    transactional_id: str
    producer_id: int
    epoch: int
    start_ms: int
    committed: bool
    parts: tuple[PartCopied, ...]

    @property
    def certain(self) -> bool:
        """Whether it is half copied."""
        copied = {part.copied for part in self.parts}
        return self.committed and True in copied and False in copied


def half_copied(
    it: SourceTransaction, positions: Mapping[Partition, int], doubted: Collection[Partition] = ()
) -> HalfCopied | None:
    """Say what is copied of a transaction, where partitions are copied up to `positions`; None: it is whole or not
    there at all, for certain. `doubted`: where copies below the position may be gone."""
    parts = tuple(_part(at, bounds, positions.get(at), at in doubted) for at, bounds in sorted(it.parts.items()))
    copied = {part.copied for part in parts}
    if len(parts) < 2 or copied in ({True}, {False}):
        return None
    return HalfCopied(it.transactional_id, it.producer_id, it.epoch, it.start_ms, it.committed, parts)


def _part(at: Partition, bounds: RecordRange, position: int | None, doubted: bool) -> PartCopied:
    copied = is_copied(bounds, position)
    return PartCopied(at, bounds, position, None if copied and doubted else copied)


class SourceLook(NamedTuple):
    """What was asked for at a look: high watermarks, and the ids of topics that were known by then. `others`: topics
    that had another id than before; `back`: partitions that ended before where they did: they are another topic's, or
    have lost records."""

    ends: Mapping[Partition, int] = MappingProxyType({})
    ids: Mapping[str, str] = MappingProxyType({})
    others: frozenset[str] = frozenset()
    back: frozenset[Partition] = frozenset()

    def lost(self, ats: Iterable[Partition]) -> set[Partition]:
        """Return those of these partitions of which nothing that was known before is true any more."""
        return {at for at in ats if at.topic in self.others or at in self.back}


class SourceTransactions:
    """Those of one flow's source, as far as they aren't copied.

    Attributes:
        open: of which it isn't logged how they end, by transactional id.
        ended: committed ones that aren't copied as a whole, in the order in which that was seen, by numbers that grow.
        left_out: how many more there were (`KEPT_MAX`).
    """

    def __init__(self, selects: Callable[[str], bool]) -> None:
        """`selects`: whether the flow copies a topic."""
        self._selects = selects
        self._last = SourceLook()
        self._known = set[str]()  # ids whose transaction is known from its beginning, or that had one
        self.open: dict[str, SourceTransaction] = {}
        self.ended: dict[int, SourceTransaction] = {}
        self.left_out = 0
        self._noted = set[tuple[str, int]]()  # of those that may be read again
        self._next = 0

    @property
    def ends(self) -> Mapping[Partition, int]:
        """Those of the last look."""
        return self._last.ends

    @property
    def ids(self) -> Mapping[str, str]:
        """The ids of topics that were known at the last look."""
        return self._last.ids

    @property
    def lost(self) -> bool:
        """Whether at the last look some topic was another one, or had lost records."""
        return bool(self._last.others or self._last.back)

    def go_on(
        self,
        ends: Mapping[Partition, int],
        ids: Mapping[str, str],
        open_: Iterable[SourceTransaction],
        ended: Mapping[int, SourceTransaction],
        left_out: int,
    ) -> None:
        """Take what was kept; the log is read on from where `ends` and `open_` are from. `ended` may be newer: what is
        read again of it changes nothing. Of topics that the flow doesn't copy any more nothing is known further."""
        self._last, self.left_out = self._last._replace(ends=ends, ids=ids), left_out
        self.open = {it.transactional_id: it for it in open_}
        self.ended = dict(ended)
        self._known = set(self.open)
        self._noted = {(it.transactional_id, it.start_ms) for it in ended.values()}
        self._next = max(ended, default=-1) + 1
        self._lessen(lambda it: {at for at in it.parts if not self._selects(at.topic)})

    def still_open(self) -> dict[str, SourceTransaction]:
        """Return those that are open and may be half copied one day, by transactional id."""
        return {name: it for name, it in self.open.items() if it.parts and (name, it.start_ms) not in self._noted}

    def miss(self) -> None:
        """Note that some of the log was not read: nothing is known of what is open."""
        self._last, self.open = self._last._replace(ends={}), {}
        self._known.clear()

    def look(
        self,
        ends: Mapping[Partition, int],
        logged: Iterable[LoggedTransaction],
        ends_after: Callable[[], Mapping[Partition, int]],
        *,
        ids: Mapping[str, str] | None = None,
        there: Collection[Partition] = (),
        to_end: bool = True,
    ) -> list[int]:
        """Take a look.

        Args:
            ends: high watermarks, asked for before the log was read, of the partitions that tell them.
            logged: what the log has since the last look, in the order of each id.
            ends_after: asks for them again; called where something is committed.
            ids: of topics, asked for before `ends`.
            there: partitions that the source has, also those that don't tell their ends now.
            to_end: whether the log was read to its end: else older ends bound what the next look sees.

        Returns:
            The numbers of what has ended, and new numbers of what is known better now.
        """
        numbers = self._lose(ends, ids or {}) + self._bound(ends)
        done = list[SourceTransaction]()
        for record in logged:
            committed = self._take(record)
            if committed is not None and (committed.transactional_id, committed.start_ms) not in self._noted:
                done.append(committed)
        if to_end:
            self._last = self._kept(ends, ids or {}, there, done)
        if not done:
            return numbers
        after = ends_after()
        for it in done:
            it.parts = {at: RecordRange(it.parts[at].first, self._bounding(at, ends, after)) for at in it.parts}
            numbers.append(self._add(it))
        return numbers

    def _bounding(self, at: Partition, ends: Mapping[Partition, int], after: Mapping[Partition, int]) -> int | None:
        """Return the end that was asked for last, as the bound of what has ended before. An old leader may tell one
        below an end that was seen before, and below the records, too: the next look bounds them."""
        seen = max(ends.get(at, 0), self._last.ends.get(at, 0))
        return after[at] if after.get(at, -1) >= seen else None

    def _kept(
        self,
        ends: Mapping[Partition, int],
        ids: Mapping[str, str],
        there: Collection[Partition],
        done: Iterable[SourceTransaction],
    ) -> SourceLook:
        """Return what the next look goes on from. A partition that didn't tell its end, because it has no leader,
        hadn't ended before where it was seen to end. Of what the source doesn't have any more that is known only while
        a transaction depends on it, and so is its topic's id: topics come and go."""
        last, needed = self._last, {*ends, *there}
        topics = {at.topic for at in needed}
        if not (last.ends.keys() <= needed and last.ids.keys() <= topics):  # else there is nothing to forget
            needed |= {at for it in (*self.open.values(), *self.ended.values(), *done) for at in it.parts}
            topics = {at.topic for at in needed}
        kept = {at: end for at, end in last.ends.items() if at in needed}
        known = {topic: topic_id for topic, topic_id in last.ids.items() if topic in topics}
        return last._replace(ends={**kept, **ends}, ids={**known, **ids})

    def _add(self, it: SourceTransaction) -> int:
        number = self._next
        self.ended[number] = it
        self._next += 1
        return number

    def _bound(self, ends: Mapping[Partition, int]) -> list[int]:
        """Bound what had ended while it wasn't known how far a partition goes, as in a topic's first seconds: all of it
        stands below its present end. Return the new numbers of what is known better now."""
        found = list[int]()
        for number, it in sorted((number, it) for number, it in self.ended.items() if not it.bounded):
            parts = {
                at: RecordRange(bounds.first, ends.get(at) if bounds.end is None else bounds.end)
                for at, bounds in it.parts.items()
            }
            if parts != it.parts:
                del self.ended[number]
                found.append(self._add(replace(it, parts=parts)))
        return found

    def _lose(self, ends: Mapping[Partition, int], ids: Mapping[str, str]) -> list[int]:
        """Forget what isn't true any more. A topic of another id is another one. A partition that ends before where it
        did is, too, or has lost records. What is known of them by now isn't true, nor is what the log says of them up
        to its present end. Return the new numbers of those of which something is known still."""
        last = self._last
        others = frozenset(topic for topic, topic_id in ids.items() if last.ids.get(topic, topic_id) != topic_id)
        back = frozenset(at for at, end in ends.items() if end < last.ends.get(at, 0))
        self._last = last = last._replace(others=others, back=back)
        if not self.lost:
            return []
        gone = last.lost(last.ends)
        self._last = last._replace(ends={at: end for at, end in last.ends.items() if at not in gone})
        for name, it in self.open.items():
            self.open[name] = it.lose(last.lost(it.parts))
        return self._lessen(lambda it: last.lost(it.parts))

    def _lessen(self, lost: Callable[[SourceTransaction], set[Partition]]) -> list[int]:
        """Remove what is `lost` of those that ended; return the new numbers of those of which more is known."""
        found = list[int]()
        for number, it in list(self.ended.items()):
            if ats := lost(it):
                del self.ended[number]
                if len((left := it.lose(ats)).parts) > 1:
                    found.append(self._add(left))
        return found

    def _take(self, record: LoggedTransaction) -> SourceTransaction | None:
        """Take a record of the log; return the transaction that is committed by it, if it may be half copied."""
        name, state = record.transactional_id, record.state
        if names.is_own_transactional_id(name):
            return None
        it = self.open.get(name)
        if it is not None and it.start_ms != record.start_ms:  # another one: compaction has removed how that one ended
            it = None
            del self.open[name]
            self._known.discard(name)
        if state in (LoggedState.ONGOING, LoggedState.PREPARE_COMMIT):
            if it is None:
                it = self.open[name] = SourceTransaction(name, record.producer_id, record.epoch, record.start_ms)
            seen = record.first or name in self._known
            self._known.add(name)
            copied = list(self._copied(record.partitions))
            it.lost |= self._last.lost(copied)
            for at in copied:
                if at not in it.lost:
                    it.parts.setdefault(at, RecordRange(self._last.ends.get(at) if seen else None))
            if state is LoggedState.ONGOING:
                return None
        self._known.add(name)
        self.open.pop(name, None)
        if state not in (LoggedState.PREPARE_COMMIT, LoggedState.COMPLETE_COMMIT) or it is None or len(it.parts) < 2:
            return None
        it.committed = True
        return it

    def _copied(self, partitions: Mapping[str, tuple[int, ...]]) -> Iterator[Partition]:
        for topic, numbers in partitions.items():
            if self._selects(topic):
                yield from (Partition(topic, number) for number in numbers)

    def drop(self, positions: Mapping[Partition, int]) -> list[int]:
        """Let go of what is copied as a whole, and of the oldest where there are too many; return their numbers."""
        gone = [number for number, it in self.ended.items() if it.copied(positions)]
        for number in gone:
            del self.ended[number]
        more = len(self.ended) - KEPT_MAX
        if more > 0:
            oldest = list(self.ended)[:more]
            self.left_out += more
            for number in oldest:
                del self.ended[number]
            gone += oldest
        return gone

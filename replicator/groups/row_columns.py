"""What became of the partitions of one group in one topic, column by column: there may be millions. Pure.

A row as an object takes some 300 bytes; here one that is in sync takes 17. They are never changed once they are made:
whoever shows them does so while the next round goes on.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from replicator.groups.decision import GroupVerdict
from replicator.groups.ownership import GroupOffset
from replicator.groups.rows import GroupRow
from replicator.model.partition import Partition

SourceRead = GroupOffset | GroupVerdict
"""What a group has committed in a partition of the source, or why that isn't known."""
_VERDICTS = tuple(GroupVerdict)
_NUMBERS = {verdict: number for number, verdict in enumerate(_VERDICTS, 1)}
_IN_SYNC = _NUMBERS[GroupVerdict.IN_SYNC]
_TO_COMMIT = _NUMBERS[GroupVerdict.TO_COMMIT]
_SETTLED = frozenset(number for verdict, number in _NUMBERS.items() if verdict.settled)
_NO_OFFSET = -1
PartitionValue = GroupOffset | int | None
"""What stands at the target; None: nothing; a number: an error code instead."""
Translated = tuple[int | None, bool, tuple[str, ...]]
"""`again`, `exact` and `notes` of a row."""


class PartitionSeen(NamedTuple):
    """What became of a partition of which `read` was read. Else as `GroupRow`."""

    read: SourceRead
    verdict: GroupVerdict
    target: int | None = None
    again: int | None = None
    exact: bool = False
    notes: tuple[str, ...] = ()
    detail: str = ""


_Rest = tuple[int | None, bool, tuple[str, ...], str]
_EXACT: _Rest = (0, True, (), "")
_NOTHING: _Rest = (None, False, (), "")
"""The rest of most rows that are in sync, and of most that aren't: these two aren't kept."""


class RowColumns:
    """By partition: from 0 on, without gaps; there is no row of some."""

    __slots__ = ("_metadata", "_rest", "_sources", "_targets", "_verdicts", "target_topic", "topic")

    def __init__(self, topic: str, target_topic: str) -> None:
        self.topic, self.target_topic = topic, target_topic
        self._verdicts = bytearray()  # 0: there is no row
        self._sources, self._targets = array("q"), array("q")  # a verdict that was read: below 0
        self._metadata: dict[int, str] = {}  # what isn't empty
        self._rest: dict[int, _Rest] = {}

    def with_rows(self, rows: Mapping[int, PartitionSeen]) -> RowColumns:
        """Return the same with these rows, by partition."""
        made = RowColumns(self.topic, self.target_topic)
        more = max(0, max(rows, default=-1) + 1 - len(self._verdicts))
        made._verdicts = verdicts = self._verdicts + bytes(more)
        made._sources = sources = self._sources + array("q", bytes(8 * more))
        made._targets = targets = self._targets + array("q", bytes(8 * more))
        made._metadata, made._rest = metadata, rests = self._metadata.copy(), self._rest.copy()
        in_sync = GroupVerdict.IN_SYNC
        for at, (read, verdict, target, again, exact, notes, detail) in rows.items():
            verdicts[at] = _NUMBERS[verdict]
            targets[at] = _NO_OFFSET if target is None else target
            if isinstance(read, GroupVerdict):
                sources[at] = -_NUMBERS[read]
                metadata.pop(at, None)
            else:
                sources[at] = read[0]
                if read[1]:
                    metadata[at] = read[1]
                elif at in metadata:
                    del metadata[at]
            rest = again, exact, notes, detail
            if rest != (_EXACT if verdict is in_sync else _NOTHING):
                rests[at] = rest
            elif at in rests:
                del rests[at]
        return made

    def held(self, why: str) -> RowColumns:
        """Return the same where those that would be moved wait."""
        waiting = [at for at, number in enumerate(self._verdicts) if number == _TO_COMMIT]
        if not waiting:
            return self
        made = self.with_rows({})
        for at in waiting:
            made._verdicts[at] = _NUMBERS[GroupVerdict.HELD]
            again, exact, notes, _ = self._rest.get(at, _NOTHING)
            made._rest[at] = again, exact, notes, why
        return made

    def differing(self, reads: Mapping[int, SourceRead]) -> dict[int, SourceRead]:
        """Return those of what was read of which there is no row yet."""
        sources, metadata, count = self._sources, self._metadata, len(self._sources)
        found = dict[int, SourceRead]()
        for at, read in reads.items():
            if at < count and self._verdicts[at]:
                if isinstance(read, GroupVerdict):
                    if sources[at] == -_NUMBERS[read]:
                        continue
                elif sources[at] == read[0] and (read[1] == metadata[at] if at in metadata else not read[1]):
                    continue
            found[at] = read
        return found

    def within(self, partitions: int) -> bool:
        """Return whether the topic has rows of so many partitions at most, and any."""
        return 0 < len(self._verdicts) <= partitions

    def moved(self, stands: Mapping[int, PartitionValue]) -> list[int]:
        """Return the partitions that are settled, and where something else stands at the target than they show.

        Args:
            stands: what does, by partition.
        """
        targets, metadata, found = self._targets, self._metadata, list[int]()
        for at, number in enumerate(self._verdicts):
            if number not in _SETTLED:
                continue
            value = stands.get(at)
            if value is None:
                same = targets[at] == _NO_OFFSET
            elif isinstance(value, int):
                same = False
            else:
                same = value[0] == targets[at] and (number != _IN_SYNC or value[1] == metadata.get(at, ""))
            if not same:
                found.append(at)
        return found

    def translated(self) -> dict[int, tuple[int, int, Translated]]:
        """Return what was translated of the partitions that are in sync: the offsets on both sides, and the rest."""
        return {
            at: (self._sources[at], self._targets[at], self._rest.get(at, _EXACT)[:3])
            for at, number in enumerate(self._verdicts)
            if number == _IN_SYNC
        }

    def target(self, at: int) -> int | None:
        """Return the offset at the target, as far as it is known."""
        known = at < len(self._verdicts) and self._verdicts[at] and self._targets[at] >= 0
        return self._targets[at] if known else None

    def __len__(self) -> int:
        return len(self._verdicts) - self._verdicts.count(0)

    def __iter__(self) -> Iterator[GroupRow]:
        for at, number in enumerate(self._verdicts):
            if number:
                verdict, source, target = _VERDICTS[number - 1], self._sources[at], self._targets[at]
                default = _EXACT if verdict is GroupVerdict.IN_SYNC else _NOTHING
                yield GroupRow(
                    Partition(self.topic, at),
                    Partition(self.target_topic, at),
                    source if source >= 0 else None,
                    target if target >= 0 else None,
                    verdict,
                    *self._rest.get(at, default),
                )

    def counts(self) -> dict[GroupVerdict, int]:
        """Count how many partitions have each verdict."""
        found = {verdict: self._verdicts.count(number) for number, verdict in enumerate(_VERDICTS, 1)}
        return {verdict: number for verdict, number in found.items() if number}

    @property
    def again(self) -> int:
        """How many records are read again of partitions that are in sync, as far as that is known."""
        return sum(again or 0 for at, (again, *_) in self._rest.items() if self._verdicts[at] == _IN_SYNC)

    @property
    def again_unknown(self) -> int:
        """Of how many partitions that are in sync it isn't known how many records are read again."""
        return sum(again is None for at, (again, *_) in self._rest.items() if self._verdicts[at] == _IN_SYNC)

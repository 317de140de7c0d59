"""What a reconciliation has to find, from what was written, deleted and compacted; never from what is being tested.

Each record that only one side shows has the set of verdicts that are true of it. There is more than one only where the
same logs could have come about in several ways: the reasons stand where the sets are made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from integration_tests.spark.planted import Content
from integration_tests.spark.seeded import Entry
from integration_tests.spark.seeded_logs import Logs, Placed
from integration_tests.spark.seeded_prefixes import Prefixes, expected_prefixes
from replicator.config import Delivery
from replicator.proof import verdicts as v

Allowed = frozenset[str]
LOST_OR_COMPACTED = frozenset({v.MISSING, v.UNPROVEN, v.COMPACTED})
REORDERED = frozenset({v.REORDERED})
SURPLUS = frozenset({v.EXTRA, v.DOUBLED, v.UNPROVEN, v.COMPACTED_SOURCE})


class Of(NamedTuple):
    """Whose finding it is. Records that are identical are interchangeable, so it is known by its content."""

    on_source: bool
    content: Content


class Pair(NamedTuple):
    """A source record and its copy."""

    source: Placed
    target: Placed


@dataclass
class Expected:
    """`behind` the first record that both sides have, and before it (`prefix`); `first` is that pair of offsets."""

    first: tuple[int, int] | None
    source_records: int
    target_records: int
    behind: dict[Of, list[Allowed]] = field(default_factory=lambda: defaultdict(list))
    prefix: list[Allowed] = field(default_factory=list)
    moves: list[tuple[list[Content], list[Content]]] = field(default_factory=list)
    """What has moved, and what it has passed: it is a matter of words which of them are out of order."""
    fields: dict[Content, str] = field(default_factory=dict)
    """Which field of a source record was altered."""

    def settle_moves(self, reordered: Collection[Content]) -> None:
        """Expects what was found, of what has moved and what it has passed: all of the one, or all of the other."""
        for moved, passed in self.moves:
            if not any(content in reordered for content in passed):
                continue
            for content in moved:
                self.behind[Of(True, content)].remove(REORDERED)
            for content in passed:
                self.behind[Of(True, content)].append(REORDERED)

    def in_prefix(self, source_offset: int | None, target_offset: int | None) -> bool:
        """Whether a finding stands before the first pair."""
        if self.first is None:
            return True
        if source_offset is not None:
            return source_offset < self.first[0]
        return target_offset is not None and target_offset < self.first[1]


def expected(logs: Logs) -> Expected:
    """All that is to be found in a partition with a position."""
    return _Oracle(logs).expected()


class _Oracle:
    def __init__(self, logs: Logs) -> None:
        self._logs, self._seeded, self._shape = logs, logs.seeded, logs.seeded.shape
        self._here = [placed for placed in logs.source.visible if placed.entry.what == "copy"]
        self._written = _last_of_runs(logs)
        self._there = [placed for placed in self._written if placed.offset in logs.target.left]
        self._by_number = {placed.entry.number: placed for placed in self._here}
        in_order, astray = self._partners()
        self._pairs = in_order
        self._reordered = [pair for pair in astray if self._passed(pair)]
        paired = {pair.target.offset for pair in (*in_order, *astray)}
        copied = {pair.source.offset for pair in (*in_order, *astray)}
        self._lacking = [placed for placed in self._here if placed.offset not in copied]
        self._surplus = [placed for placed in self._there if placed.offset not in paired]

    def _partners(self) -> tuple[list[Pair], list[Pair]]:
        """The copies of records that both sides show: those that stand where they should, and others.

        Where a cleaner left the second one of two equal records, that is the copy.
        """
        found: dict[int, Placed] = {}
        for what in (("copy", "altered"), ("doubled",), ("moved", "replayed")):
            for placed in reversed(self._there):
                number = placed.entry.number
                if number is not None and number in self._by_number and placed.entry.what in what:
                    found.setdefault(number, placed)
        pairs = [Pair(self._by_number[number], placed) for number, placed in sorted(found.items())]
        astray = [pair for pair in pairs if pair.target.entry.what in ("moved", "replayed")]
        return [pair for pair in pairs if pair not in astray], astray

    def _passed(self, pair: Pair) -> list[Pair]:
        """The pairs that a record which stands elsewhere has changed places with."""
        return [
            other
            for other in self._pairs
            if (other.source.offset < pair.source.offset) != (other.target.offset < pair.target.offset)
        ]

    def expected(self) -> Expected:
        first = self._pairs[0] if self._pairs else None
        found = Expected(
            first=(first.source.offset, first.target.offset) if first else None,
            source_records=len(self._here),
            target_records=len(self._there),
        )
        for pair in self._pairs:
            if pair.target.entry.what == "altered":
                found.behind[Of(True, pair.source.entry.content)].append(frozenset({v.ALTERED}))
                found.fields[pair.source.entry.content] = pair.target.entry.field
        for pair in self._reordered:
            passed, content = [other.source.entry.content for other in self._passed(pair)], pair.source.entry.content
            if found.moves and found.moves[-1][1] == passed:
                found.moves[-1][0].append(content)
            else:
                found.moves.append(([content], passed))
            found.behind[Of(True, content)].append(REORDERED)
        prefix_here, prefix_there = list[Placed](), list[Placed]()
        for placed in self._lacking:
            if found.in_prefix(placed.offset, None):
                prefix_here.append(placed)
            else:
                found.behind[Of(True, placed.entry.content)].append(self._of_lacking(placed))
        for placed in self._surplus:
            if found.in_prefix(None, placed.offset):
                prefix_there.append(placed)
            else:
                found.behind[Of(False, placed.entry.content)].append(self._of_surplus(placed))
        found.prefix += self._prefixes(prefix_here, prefix_there)
        return found

    def _prefixes(self, here: Sequence[Placed], there: Sequence[Placed]) -> Iterator[Allowed]:
        """What is before the first pair. Retention explains it where offsets are gone, see `seeded_prefixes`."""
        source, target, seeded = self._logs.source, self._logs.target, self._seeded
        facts = Prefixes(
            lacking=len(here),
            surplus=len(there),
            source_gone=max(0, source.start - source.began),
            target_gone=target.start,
            source_records_gone=seeded.source_cut,
        )
        if self._shape.compacted or seeded.delivery != Delivery.EXACTLY_ONCE.value:
            # Then a position's count says nothing of what the logs should have: as many may be gone as offsets are.
            for placed, by_offsets in _within(self._here, here, facts.target_gone):
                yield frozenset({v.UNPROVEN}) if by_offsets else self._of_lacking(placed)
            for placed, by_offsets in _within(self._there, there, facts.source_gone):
                yield frozenset({v.UNPROVEN}) if by_offsets else self._of_surplus(placed)
            return
        yield from expected_prefixes(facts, [self._of_surplus(placed) for placed in there])

    # --- what no copy is there of ---

    def _of_lacking(self, placed: Placed) -> Allowed:
        """A source record without a copy, of which retention is not the reason."""
        if not self._shape.target_compacted:
            return frozenset({v.MISSING})
        number, written = placed.entry.number, self._written_here(placed)
        if written:
            if all(entry.what in ("moved", "replayed") for entry in (item.entry for item in written)):
                # Where it should be no offset is empty, and that one is elsewhere may come from an aborted record.
                return LOST_OR_COMPACTED
            crowded = any(not self._written_here(other) for other in self._lacking_beside(placed)) or self._reordered
            return frozenset({v.COMPACTED, *((v.UNPROVEN,) if crowded else ())})
        if not self._may_be_compacted(placed):
            return frozenset({v.MISSING})
        empty, beside = self._empty_beside(placed), self._lacking_beside(placed)
        assert number is not None
        if not empty and not self._reordered:
            return frozenset({v.MISSING})
        # A cleaner would have taken it anyway, and did empty offsets where it should be: only where there are fewer of
        # them than records something is lost for certain, and which of them nobody knows.
        return LOST_OR_COMPACTED if empty >= len(beside) else frozenset({v.MISSING, v.UNPROVEN})

    def _written_here(self, placed: Placed) -> list[Placed]:
        """What was written as its copy, and not deleted."""
        start = self._logs.target.start
        return [item for item in self._copies[placed.entry.number] if item.offset >= start]

    @cached_property
    def _copies(self) -> dict[int | None, list[Placed]]:
        found = defaultdict[int | None, list[Placed]](list)
        for placed in self._written:
            found[placed.entry.number].append(placed)
        return found

    def _may_be_compacted(self, placed: Placed) -> bool:
        """Whether a cleaner would take its copy: the flow has copied a later record of its key, or the target shows one
        behind its place; it has no key; or it is a tombstone, and nothing of its key is left."""
        key, after = placed.entry.content.key, self._between(placed, on_source=True)[1][0]
        there = [other.offset for other in self._there if other.entry.content.key == key]
        later = any(other.entry.content.key == key and other.offset > placed.offset for other in self._here)
        tombstone = placed.entry.content.value is None and not there
        return key is None or later or tombstone or any(offset > after for offset in there)

    # --- what stands on the target only ---

    def _of_surplus(self, placed: Placed) -> Allowed:
        """A target record that the source doesn't show, and of which retention is not the reason."""
        content, number = placed.entry.content, placed.entry.number
        equal = any(other.entry.content == content for other in self._here)
        plain = frozenset({v.DOUBLED if equal else v.EXTRA})
        if not self._shape.source_compacted:
            return plain
        was_there = number is not None and number not in self._by_number
        compacted = number is not None and was_there and number >= self._seeded.source_cut
        if compacted and placed.entry.what in ("copy", "altered"):
            beside = [other for other in self._surplus_beside(placed) if other.entry.what not in ("copy", "altered")]
            crowded = beside or self._reordered
            return frozenset({v.COMPACTED_SOURCE, *((v.UNPROVEN,) if crowded else ())})
        if was_there:  # it is another copy of what is gone, or stands where no offset of the source is empty
            return SURPLUS
        later = any(
            other.entry.content.key == content.key
            for other in (
                *(p for p in self._logs.source.visible if p.offset > self._between(placed, on_source=False)[0][0]),
                *(p for p in self._there if p.offset > placed.offset),
            )
        )
        tombstone = content.value is None
        if not (later or tombstone or content.key is None):
            return plain
        empty = self._empty(self._logs.source.visible, self._between(placed, on_source=False)[0])
        if not empty and not self._reordered:
            return plain
        # A cleaner did empty offsets of the source here, and would have taken an equal record, if there was one.
        return plain | {v.UNPROVEN, v.COMPACTED_SOURCE}

    # --- places ---

    @cached_property
    def _source_offsets(self) -> list[int]:
        return [pair.source.offset for pair in self._pairs]

    @cached_property
    def _target_offsets(self) -> list[int]:
        return [pair.target.offset for pair in self._pairs]

    def _span(self, placed: Placed, *, on_source: bool) -> int:
        """How many pairs stand before it."""
        return bisect_left(self._source_offsets if on_source else self._target_offsets, placed.offset)

    def _between(self, placed: Placed, *, on_source: bool) -> tuple[tuple[int, int], tuple[int, int]]:
        """The offsets of either side, of the pairs before and behind it or of the ends of the logs."""
        number = self._span(placed, on_source=on_source)
        source, target = self._logs.source, self._logs.target
        sides = (
            (self._source_offsets, max(source.start, source.began) - 1, source.end),
            (self._target_offsets, target.start - 1, target.end),
        )
        found = [
            (offsets[number - 1] if number else before, offsets[number] if number < len(offsets) else behind)
            for offsets, before, behind in sides
        ]
        return found[0], found[1]

    def _empty_beside(self, placed: Placed) -> int:
        return self._empty(self._there, self._between(placed, on_source=True)[1])

    def _empty(self, shown: Iterable[Placed], between: tuple[int, int]) -> int:
        """At most so many offsets between these are empty: aborted records and markers may have been taken, too."""
        after, before = between
        return max(0, before - after - 1) - sum(after < placed.offset < before for placed in shown)

    def _lacking_beside(self, placed: Placed) -> list[Placed]:
        span = self._span(placed, on_source=True)
        return [other for other in self._lacking if self._span(other, on_source=True) == span]

    def _surplus_beside(self, placed: Placed) -> list[Placed]:
        span = self._span(placed, on_source=False)
        return [other for other in self._surplus if self._span(other, on_source=False) == span]


def _last_of_runs(logs: Logs) -> list[Placed]:
    """What was written to the target, where of identical records that follow one another the last ones have copies.

    Which of them was lost can't be seen and doesn't matter; and cleaners and retention leave the last ones.
    """
    altered = {placed.entry.number for placed in logs.target.written if placed.entry.what == "altered"}
    runs: dict[int, int] = {}
    for number, record in enumerate(logs.seeded.records):
        follows = number and record == logs.seeded.records[number - 1] and not {number, number - 1} & altered
        runs[number] = runs[number - 1] if follows else number
    length = Counter(runs.values())
    left = Counter(first for placed in logs.target.written if (first := _run_of(placed.entry, runs)) is not None)
    found = []
    for placed in logs.target.written:
        entry, first = placed.entry, _run_of(placed.entry, runs)
        if first is not None and length[first] > 1:
            more = left[first] > length[first]
            what, number = ("doubled", first) if more else ("copy", first + length[first] - left[first])
            left[first] -= 1
            entry = replace(entry, what=what, number=number)
        found.append(Placed(placed.offset, entry))
    return found


def _run_of(entry: Entry, runs: Mapping[int, int]) -> int | None:
    """The number with which the run of identical records begins that it was copied to its place from."""
    return runs[entry.number] if entry.number is not None and entry.what in ("copy", "doubled") else None


def _within(log: Sequence[Placed], prefix: Sequence[Placed], gone: int) -> Iterator[tuple[Placed, bool]]:
    """These records of a log's beginning, and whether so many offsets that are gone elsewhere had room for them."""
    ranks = {placed.offset: rank for rank, placed in enumerate(log)}
    return ((placed, len(prefix) <= gone or ranks[placed.offset] < gone) for placed in prefix)


def unlike(found: Counter[str], allowed: Sequence[Allowed]) -> bool:
    """Whether verdicts can't be given to records that allow these, one to each."""
    left = Counter(found)
    for names in sorted(allowed, key=len):
        fitting = [name for name in names if left[name]]
        if not fitting:
            return True
        left[min(fitting, key=lambda name: sum(name in other for other in allowed))] -= 1
    return any(left.values())

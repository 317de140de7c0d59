"""Which offsets of a pair the offset map doesn't cover, and how many records stand there. Pure; used by `local`.

Nothing is said of these records but how many there are: the map alone says which of them belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from replicator.model.partition import Span
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.verdicts import ComparedRecord
from replicator.proof.pairs import Pair

BEFORE = "not covered by the offset map: it begins later"
BROKEN = "not covered by the offset map: its chain is broken there"
BEHIND = "not covered by the offset map: it ends before the position"
NO_MAP = "not covered by the offset map: it has nothing of this partition"
OTHERS = "copied from the source topic before it was created again"
AHEAD = "copied from source offsets at or above the position, which was set back"


@dataclass(slots=True)
class SideCount:
    """Records of one side: how many, offsets of the first and the last one, and the earliest and the latest time."""

    records: int = 0
    offsets: Span | None = None
    times_ms: Span | None = None

    def add(self, row: ComparedRecord) -> None:
        """Count one more, at a higher offset than those before."""
        self.records += 1
        first, _ = self.offsets or (row.offset, 0)
        early, late = self.times_ms or (row.timestamp_ms, row.timestamp_ms)
        self.offsets, self.times_ms = (first, row.offset), (min(early, row.timestamp_ms), max(late, row.timestamp_ms))


@dataclass(slots=True)
class Uncovered:
    """Offsets of both sides that the map says nothing of, and what stands there."""

    why: str
    source_span: Span
    target_span: Span
    source: SideCount = field(default_factory=SideCount)
    target: SideCount = field(default_factory=SideCount)


def compared_map(pair: Pair, mapped: PartitionMap) -> PartitionMap:
    """Return the map with target bounds of what is compared: where it begins with the flow, and where it reaches the
    position, all of the pair's target offsets are. What stands there and isn't claimed was written by others."""
    begin = min(mapped.begin_target, pair.target_range[0])
    end = max(mapped.next_target, pair.target_range[1])
    return replace(
        mapped,
        begin_target=begin if mapped.begin <= pair.source_range[0] else mapped.begin_target,
        next_target=end if mapped.passed >= pair.source_copied_end else mapped.next_target,
    )


def uncovered_of(pair: Pair, mapped: PartitionMap | None) -> list[Uncovered]:
    """Return what a map doesn't cover of a pair, by source offset. `mapped`: see `compared_map`; None: there is
    none.
    """
    (first, end), (target_first, target_end) = pair.source_range, pair.target_range
    if mapped is None:
        return [Uncovered(NO_MAP, (first, end), (target_first, target_end))]
    found = []
    if mapped.begin > first or mapped.begin_target > target_first:
        found.append(Uncovered(BEFORE, (first, mapped.begin), (target_first, mapped.begin_target)))
    found += [
        Uncovered(BROKEN, (max(first, one.first), one.end), (one.target_first, one.target_end))
        for one in mapped.unmapped
    ]
    if mapped.passed < pair.source_copied_end:
        found.append(Uncovered(BEHIND, (mapped.passed, end), (mapped.next_target, target_end)))
    return found


class Coverage:
    """Counts the records of both sides as they are read once, and those that the map doesn't cover apart."""

    def __init__(self, pair: Pair, mapped: PartitionMap | None) -> None:
        self._pair, self._mapped = pair, mapped
        self.uncovered = uncovered_of(pair, mapped)
        self.source_records = self.target_records = 0
        self.others, self.ahead = SideCount(), SideCount()

    def of_source(self, rows: Iterable[ComparedRecord]) -> Iterator[ComparedRecord]:
        """Pass on all records, ascending by offset."""
        spans = [one for one in self.uncovered if one.source_span[0] < one.source_span[1]]
        at = 0
        for row in rows:
            self.source_records += 1
            while at < len(spans) and row.offset >= spans[at].source_span[1]:
                at += 1
            if at < len(spans) and row.offset >= spans[at].source_span[0] and self._unsaid(spans[at], row.offset):
                spans[at].source.add(row)
            yield row

    def _unsaid(self, span: Uncovered, offset: int) -> bool:
        mapped = self._mapped
        if mapped is None or span.why == BEHIND:
            return True
        return mapped.by_source.place(offset) is None and mapped.said(offset) in ("unmapped", "")

    def of_target(self, rows: Iterable[ComparedRecord]) -> Iterator[ComparedRecord]:
        """Pass on all records, ascending by offset."""
        mapped = self._mapped
        spans = sorted(
            (one for one in self.uncovered if one.target_span[0] < one.target_span[1]), key=lambda it: it.target_span
        )
        at = 0
        for row in rows:
            self.target_records += 1
            while at < len(spans) and row.offset >= spans[at].target_span[1]:
                at += 1
            within = at < len(spans) and row.offset >= spans[at].target_span[0]
            if mapped is None:
                if within:
                    spans[at].target.add(row)
            elif row.offset in mapped.others:
                self.others.add(row)
            elif row.offset in mapped.ahead:
                self.ahead.add(row)
            elif within and mapped.by_target.place(row.offset) is None and row.offset not in mapped.truncated:
                spans[at].target.add(row)
            yield row

"""Folds the sections of one target partition, in the order in which they were made, into places of source records.

Invariants
- Invariant M2: a section begins where the last one ended, or as `base`. What lies between is unmapped, never guessed.
- Invariant M4: a section counts once the target's last stable offset has reached the end of its copies, and only with
  all that come before it.
- A log only grows: a section voids older claims at or above its first target offset. So claims that are left are in the
  order of their target offsets, which is the order in which they were made.
- A source offset's last claim is its place.
- A `base` below the position is one of two things, which the count of copied records tells apart. It goes on where the
  source has lost its end and the position was set back for that: offsets from there on belong to other records now. It
  begins again where an operator has adopted what the target has, with a lower offset: the source is what it was, and
  its records from there on stand on the target twice. (Where the map was off behind an adoption for so long that the
  count has reached the old one before the first block, it looks like the other; the copies before it are named so.)

Memory is per run, not per record: 24 bytes, and 24 for each section. Nothing but tests reads a whole map yet.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from replicator.model.partition import Span, merged
from replicator.offset_map.directory import PageRef
from replicator.offset_map.mapped import ExpiredRange, OffsetRanges, PartitionMap, UnmappedRange
from replicator.offset_map.run_index import MappedRun
from replicator.offset_map.section import MapSection
from replicator.offset_map.target_claims import OTHER_TOPIC, TargetClaims
from replicator.offset_map.varints import OFFSET_MAX


class PlacedSection(NamedTuple):
    """A section with its place in the order: generation, offset of its block in the map topic, number in the block.

    `target_topic_id` is that of the claim under which it was written.
    """

    generation: int
    map_offset: int
    number: int
    target_topic_id: bytes
    section: MapSection


class PartitionFold:
    """Takes the committed sections of one target partition, and says what follows for one source topic."""

    def __init__(self, source_topic_id: bytes, target_topic_id: bytes) -> None:
        self._source_topic_id, self._target_topic_id = source_topic_id, target_topic_id
        self._last: tuple[int, int, int] = (-1, -1, -1)
        self._claims = TargetClaims()
        # Of the sections whose copies are all claimed: their ends, and where the map begins by then.
        self._target_ends, self._afters, self._begins = self._ends = array("q"), array("q"), array("q")
        self._begun = self._begin = self._begin_target = -1
        self._position = self._next_target = self._count = 0
        self._unmapped: list[UnmappedRange] = []
        self._expired: list[ExpiredRange] = []
        self._pruned_to = 0
        self._aside: list[Span] = []
        self._dropped: list[Span] = []
        self._gaps: list[Span] = []
        self._lost: list[Span] = []

    def add(self, placed: PlacedSection) -> None:
        """Take the next section. Raises ValueError where it isn't the next one in the order of all."""
        order = placed[:3]
        if order <= self._last:
            raise ValueError(f"section {order} after {self._last}")
        self._last = order
        if placed.target_topic_id != self._target_topic_id:
            return
        section = placed.section
        ours = section.source_topic_id == self._source_topic_id
        if section.claims_target:
            self._void(section.first_target)
        if ours:
            self._go_on(section)
        self._claim(section, ours)
        self._next_target = max(self._next_target, section.target_end)
        if ours:
            self._note(section)
            self._note_end(section.after)

    def pass_over(self, page: PageRef) -> None:
        """Take the sections of a page without reading it, but for the place of its first copy.

        Only of a page that goes on where the last one ended, on both sides: `TURNS` isn't set.
        """
        if page.first_source >= 0:
            self._claims.append(page.first_target, 1, page.first_source)
        self._position, self._next_target = page.after, max(self._next_target, page.target_end)
        self._note_end(page.after)

    def prune(self, log_start: int) -> None:
        """Forget places below the target's log start, but keep of which source offsets they were."""
        self._pruned_to = max(self._pruned_to, log_start)
        for first, end in self._claims.prune(log_start):
            self._expire(ExpiredRange(first, end, end - first))

    def finished(self, stable: int = OFFSET_MAX) -> PartitionMap:
        """Return what can be relied on while `stable` is the target's last stable offset. More sections may follow.

        Args:
            stable: see `reached`; by default all sections count.
        """
        at = bisect_right(self._target_ends, stable) - 1
        begin = self._begins[at] if at >= 0 else self._begun
        passed, next_target = (self._afters[at], self._target_ends[at]) if at >= 0 else (begin, self._begin_target)
        pruned = max((expired.end for expired in self._expired), default=0)
        read = self._claims.read(next_target if at >= 0 else -1, passed, pruned)
        return PartitionMap(
            source_topic_id=self._source_topic_id,
            begun=max(self._begun, 0),
            begin=max(begin, 0),
            begin_target=max(self._begin_target, 0),
            passed=max(passed, 0),
            next_target=max(next_target, 0),
            by_source=read.by_source,
            by_target=read.by_target,
            unmapped=[one._replace(end=min(one.end, passed)) for one in self._unmapped if one.first < passed],
            expired=[part for one in self._expired for part in _without(one, read.by_source)],
            pruned_to=self._pruned_to,
            aside=OffsetRanges(merged(self._aside)),
            dropped=OffsetRanges(merged(self._dropped)),
            gaps=OffsetRanges(merged(self._gaps)),
            lost=OffsetRanges(merged(self._lost)),
            others=OffsetRanges(merged(read.others)),
            truncated=OffsetRanges(merged(read.truncated)),
            ahead=OffsetRanges(merged(read.ahead)),
        )

    def _void(self, first: int) -> None:
        self._lost += self._claims.void(first)
        while self._target_ends and self._target_ends[-1] > first:
            self._forget_last_end()
        self._next_target, self._begin_target = min(self._next_target, first), min(self._begin_target, first)
        self._pruned_to = min(self._pruned_to, first)  # where a copy was written the log began at or below
        self._unmapped = [
            one._replace(target_first=min(one.target_first, first), target_end=min(one.target_end, first))
            for one in self._unmapped
        ]

    def _go_on(self, section: MapSection) -> None:
        if self._begin < 0:
            self._begun = self._begin = section.before
            self._next_target = self._begin_target = max(section.first_target, self._next_target)
        elif section.before > self._position:
            end = section.first_target if section.first_target >= 0 else OFFSET_MAX
            self._unmapped.append(UnmappedRange(self._position, section.before, self._next_target, end))
        elif section.before < self._position and section.base:
            self._begin = min(self._begin, section.before)
            if section.count_before >= self._count:
                self._truncate(section.before)
        self._position, self._count = section.after, section.count

    def _note_end(self, after: int) -> None:
        self._target_ends.append(self._next_target)
        self._afters.append(after)
        self._begins.append(self._begin)

    def _forget_last_end(self) -> None:
        for column in self._ends:
            column.pop()

    def _truncate(self, first: int) -> None:
        """Note that the source has lost its records from `first` on: these offsets belong to others now."""
        while self._afters and self._afters[-1] > first:
            self._forget_last_end()
        for spans in (self._aside, self._dropped, self._gaps, self._lost):
            spans[:] = [(begin, min(end, first)) for begin, end in spans if begin < first]
        self._unmapped = [one._replace(end=min(one.end, first)) for one in self._unmapped if one.first < first]
        self._expired = [one._replace(end=min(one.end, first)) for one in self._expired if one.first < first]
        self._claims.truncate(first)

    def _claim(self, section: MapSection, ours: bool) -> None:
        target = section.first_target
        for first, end in section.runs:
            self._claims.append(target, end - first, first if ours else OTHER_TOPIC)
            target += end - first
        if section.pruned is not None and section.pruned.ranges:
            self._pruned_to = max(self._pruned_to, section.target_end)
            for first, end, copies in section.pruned.ranges if ours else ():
                self._expire(ExpiredRange(first, end, copies))

    def _note(self, section: MapSection) -> None:
        self._aside += [(one.source, one.source + 1) for one in section.aside]
        self._dropped += [(one.source, one.source + 1) for one in section.dropped]
        if section.gap:
            self._gaps.append((section.before, section.after))

    def _expire(self, found: ExpiredRange) -> None:
        last = self._expired[-1] if self._expired else None
        if last is not None and last.end <= found.first and not self._unmapped_between(last.end, found.first):
            self._expired[-1] = ExpiredRange(last.first, found.end, (last.copies or 0) + (found.copies or 0))
        else:
            self._expired.append(found)

    def _unmapped_between(self, first: int, end: int) -> bool:
        return any(one.first < end and first < one.end for one in self._unmapped)


def _without(expired: ExpiredRange, runs: Sequence[MappedRun]) -> Iterator[ExpiredRange]:
    """Yield what was pruned, without what was copied again since."""
    first, whole = expired.first, True
    dense = expired.copies == expired.end - expired.first
    for run in islice(runs, max(0, bisect_right(runs, expired.first, key=lambda run: run.first) - 1), None):
        if run.first >= expired.end:
            break
        if run.end <= first:
            continue
        whole = False
        if first < run.first:
            yield ExpiredRange(first, run.first, run.first - first if dense else None)
        first = run.end
    if first < expired.end:
        yield expired if whole else ExpiredRange(first, expired.end, expired.end - first if dense else None)


def reached(stable: int, end: int) -> int:
    """Return up to which target offset sections count, by the last stable offset and the log's end.

    Both must have been asked for after the map was read. Where no transaction is open, what the map has above the log's
    end isn't to come: the target has lost it. (A new leader that doesn't know its end yet gives none: KIP-207.)
    """
    return OFFSET_MAX if stable == end else stable


def fold(
    sections: Iterable[PlacedSection], source_topic_id: bytes, target_topic_id: bytes, stable: int = OFFSET_MAX
) -> PartitionMap:
    """Fold sections of one target partition that come in any order."""
    folding = PartitionFold(source_topic_id, target_topic_id)
    for placed in sorted(sections, key=lambda placed: placed[:3]):
        folding.add(placed)
    return folding.finished(stable)

"""What the map says of one source partition, up to where it can be relied on. A value; made by `fold`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from replicator.model.partition import Span
from replicator.offset_map.run_index import RunIndex

Said = Literal["aside", "dropped", "gap", "expired", "unmapped", "lost", ""]


class UnmappedRange(NamedTuple):
    """Source offsets [first, end) of which the map says nothing, because its chain is broken there.

    Copies of them stand on the target at `target_first` or above, and below `target_end`.
    """

    first: int
    end: int
    target_first: int
    target_end: int


class ExpiredRange(NamedTuple):
    """Source offsets [first, end), pruned with so many copies (None: not known), which stood below the target log start
    then."""

    first: int
    end: int
    copies: int | None


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """Disjoint ranges of offsets, ascending."""

    spans: Sequence[Span] = ()

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self.spans, offset, key=lambda span: span[0]) - 1
        return at >= 0 and offset < self.spans[at][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMap:
    """Places of the records of one source partition, `by_source` and `by_target` (the same runs, turned).

    Invariant M4: it is compared and translated only below `passed` (a source offset) and `next_target`: what the reader
    of the map has passed, and the target's last stable offset has reached.

    Attributes:
        begin, begin_target: where the map begins, on both sides.
        begun: where it began at first: `begin` is lower where the position was set back below that.
        unmapped: where its chain is broken.
        expired: what was pruned, `pruned_to`: the target offset below which nothing is known any more.
        aside, dropped, gaps: what was set aside, left out by a rule, skipped by a decision.
        lost: claimed once, then voided: the target has lost the copies.
        others: target offsets of copies from the source topic before it was created again; never compared.
        truncated: target offsets of copies of what the source lost by truncation, and has other records instead.
        ahead: target offsets of copies of what lies at or above `passed`, because the position was set back.
    """

    source_topic_id: bytes
    begun: int
    begin: int
    begin_target: int
    passed: int
    next_target: int
    by_source: RunIndex
    by_target: RunIndex
    unmapped: Sequence[UnmappedRange] = ()
    expired: Sequence[ExpiredRange] = ()
    pruned_to: int = 0
    aside: OffsetRanges = field(default_factory=OffsetRanges)
    dropped: OffsetRanges = field(default_factory=OffsetRanges)
    gaps: OffsetRanges = field(default_factory=OffsetRanges)
    lost: OffsetRanges = field(default_factory=OffsetRanges)
    others: OffsetRanges = field(default_factory=OffsetRanges)
    truncated: OffsetRanges = field(default_factory=OffsetRanges)
    ahead: OffsetRanges = field(default_factory=OffsetRanges)

    def said(self, offset: int) -> Said:
        """Say what the map has about a source offset that it gives no place."""
        if offset in self.aside:
            return "aside"
        if offset in self.dropped:
            return "dropped"
        if offset in self.gaps:
            return "gap"
        if _within(self.expired, offset):
            return "expired"
        if _within(self.unmapped, offset):
            return "unmapped"
        return "lost" if offset in self.lost else ""


def _within(ranges: Sequence[ExpiredRange] | Sequence[UnmappedRange], offset: int) -> bool:
    return any(one.first <= offset < one.end for one in ranges)

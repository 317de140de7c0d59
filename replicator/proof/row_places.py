"""What the map says of many records at a time: the rules of `offset_map.places` on columns of offsets. Pure.

Used by `chunk_sums` and `opened_rows` in Spark's Python workers. A binary search for each offset, in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from replicator.model.partition import Span, merged
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.run_index import RunIndex
from replicator.proof.arrays import OffsetArray
from replicator.proof.coverage import BEHIND, Uncovered
from replicator.proof.pairs import Pair

Mask = NDArray[np.bool_]
NOWHERE = -1


class SourcePlaces(NamedTuple):
    """`places`: target offsets, NOWHERE without one; `compared`: the map speaks of the record; `behind`: it stands
    behind a copy of a higher source offset."""

    places: OffsetArray
    compared: Mask
    behind: Mask


class RowPlaces:
    """Of one pair. `mapped`: see `coverage.compared_map`."""

    def __init__(self, pair: Pair, mapped: PartitionMap, uncovered: Sequence[Uncovered]) -> None:
        self._mapped, self._uncovered = mapped, uncovered
        self._of_source, self._of_target = _Runs(mapped.by_source), _Runs(mapped.by_target)
        firsts, places = self._of_source.firsts, self._of_source.places
        later = np.append(np.minimum.accumulate(places[::-1])[::-1][1:], np.iinfo(np.int64).max)[: len(places)]
        self._behind = later < places
        self._origin = pair.source_origin if len(firsts) and firsts[0] < pair.source_origin else None

    def source(self, offsets: OffsetArray) -> SourcePlaces:
        """Say where records of the source should stand."""
        at, places = self._of_source.find(offsets)
        placed = places != NOWHERE
        compared = (offsets < self._mapped.passed) & (placed | (offsets >= self._mapped.begin))
        behind = placed & self._behind[at] if len(self._behind) else np.zeros(len(offsets), dtype=bool)
        return SourcePlaces(np.where(compared, places, NOWHERE), compared, behind)

    def target(self, offsets: OffsetArray) -> tuple[Mask, Mask]:
        """Say which records of the target are the flow's own part of the log, and which of those are compared."""
        own = np.ones(len(offsets), dtype=bool)
        if self._origin is not None:
            _, sources = self._of_target.find(offsets)
            own = (sources == NOWHERE) | (sources >= self._origin)
        others, ahead = self.apart(offsets)
        below = (offsets >= self._mapped.begin_target) & (offsets < self._mapped.next_target)
        return own, own & below & ~others & ~ahead

    def apart(self, offsets: OffsetArray) -> tuple[Mask, Mask]:
        """Say which records of the target are copies of the source topic before it was created again, and which of what
        lies at or above the position."""
        others = inside(offsets, self._mapped.others.spans)
        return others, inside(offsets, self._mapped.ahead.spans) & ~others

    def named(self, offsets: OffsetArray) -> Mask:
        """Say which records of the source were set aside, left out by a rule, or skipped by a decision."""
        found = np.zeros(len(offsets), dtype=bool)
        for spans in (self._mapped.aside.spans, self._mapped.dropped.spans, self._mapped.gaps.spans):
            found |= inside(offsets, spans)
        return found

    def unsaid_source(self, number: int, offsets: OffsetArray) -> Mask:
        """Say which records of the source the map doesn't cover, by the number of the uncovered range: see
        `Coverage`.
        """
        one, mapped = self._uncovered[number], self._mapped
        found = inside(offsets, [one.source_span])
        if one.why == BEHIND or not found.any():
            return found
        found &= self._of_source.find(offsets)[1] == NOWHERE
        expired = merged((each.first, each.end) for each in mapped.expired)
        unmapped = inside(offsets, merged((each.first, each.end) for each in mapped.unmapped))
        lost = inside(offsets, mapped.lost.spans)
        mask: Mask = found & ~self.named(offsets) & ~inside(offsets, expired) & (unmapped | ~lost)
        return mask

    def unsaid_target(self, number: int, offsets: OffsetArray) -> Mask:
        """Say the same of the target, of its own part."""
        found = inside(offsets, [self._uncovered[number].target_span])
        if found.any():
            found &= self._of_target.find(offsets)[1] == NOWHERE
            for others in (self._mapped.others, self._mapped.ahead, self._mapped.truncated):
                found &= ~inside(offsets, others.spans)
        return found


class _Runs:
    """Runs as columns of numpy, without a copy."""

    def __init__(self, runs: RunIndex) -> None:
        self.firsts, self.lengths, self.places = (np.frombuffer(column, dtype=np.int64) for column in runs.columns)

    def find(self, offsets: OffsetArray) -> tuple[NDArray[np.intp], OffsetArray]:
        """Return the number of the last run that begins at or below each offset, and the place; NOWHERE without one."""
        if not len(self.firsts):
            return np.zeros(len(offsets), dtype=np.intp), np.full(len(offsets), NOWHERE, dtype=np.int64)
        at = np.maximum(np.searchsorted(self.firsts, offsets, side="right") - 1, 0)
        into = offsets - self.firsts[at]
        found = (into >= 0) & (into < self.lengths[at])
        return at, np.where(found, self.places[at] + into, NOWHERE)


def inside(offsets: OffsetArray, spans: Sequence[Span]) -> Mask:
    """Say which offsets lie in one of these ranges, which are disjoint and ascend."""
    if not spans:
        return np.zeros(len(offsets), dtype=bool)
    firsts, ends = (np.fromiter((span[edge] for span in spans), np.int64, len(spans)) for edge in (0, 1))
    at = np.searchsorted(firsts, offsets, side="right") - 1
    found: Mask = (at >= 0) & (offsets < ends[np.maximum(at, 0)])
    return found

"""What the sections claim of a target partition, in the order of its offsets: columns of runs. Used by `fold`.

A log only grows, and what a section voids goes from the end: so the order of target offsets is that in which the
claims were made. 24 bytes a run.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from operator import add, le
from typing import NamedTuple

from replicator.model.partition import Span
from replicator.offset_map.last_claims import last_claims
from replicator.offset_map.run_index import MappedRun, RunIndex

OTHER_TOPIC, TRUNCATED = -1, -2
"""In the place of a source offset: the copy is of a record of the source topic before it was created again; of a record
that the source has lost by truncation."""


class ReadClaims(NamedTuple):
    """Places below both bounds in both directions; target offsets of the source topic before it was created again, of
    truncated records, and of what lies at or above the source's bound."""

    by_source: RunIndex
    by_target: RunIndex
    others: list[Span]
    truncated: list[Span]
    ahead: list[Span]


class TargetClaims:
    """Runs of target offsets, ascending, each with its source offset."""

    def __init__(self) -> None:
        self._targets, self._lengths, self._sources = self._columns = array("q"), array("q"), array("q")

    def append(self, target: int, length: int, source: int) -> None:
        """Claim target offsets above all that are claimed."""
        self._targets.append(target)
        self._lengths.append(length)
        self._sources.append(source)

    def void(self, first: int) -> Iterator[Span]:
        """Forget the claims at or above a target offset; return the source offsets that have lost their place."""
        while self._targets and self._targets[-1] + self._lengths[-1] > first:
            kept = max(0, first - self._targets[-1])
            source, length = self._sources[-1], self._lengths[-1]
            if kept:
                self._lengths[-1] = kept
            else:
                for column in self._columns:
                    column.pop()
            if source >= 0:
                yield source + kept, source + length

    def truncate(self, first: int) -> None:
        """Mark the claims of source offsets from `first` on: the source has lost them, and may have others there."""
        runs = list(zip(*self._columns, strict=True))
        for column in self._columns:
            del column[:]
        for target, length, source in runs:
            kept = length if source < 0 else max(0, min(length, first - source))
            if kept:
                self.append(target, kept, source)
            if length > kept:
                self.append(target + kept, length - kept, TRUNCATED)

    def prune(self, log_start: int) -> Iterator[Span]:
        """Forget the claims below a target offset; return their source offsets."""
        at = 0
        while at < len(self._targets) and self._targets[at] < log_start:
            length = min(self._lengths[at], log_start - self._targets[at])
            if self._sources[at] >= 0:
                yield self._sources[at], self._sources[at] + length
                self._sources[at] += length
            self._targets[at] += length
            self._lengths[at] -= length
            if self._lengths[at]:
                break
            at += 1
        for column in self._columns:
            del column[:at]

    def read(self, next_target: int, passed: int, pruned_to: int) -> ReadClaims:
        """Return what is claimed below a target offset and a source offset.

        Args:
            pruned_to: the source offset below which the claims lay that were pruned.
        """
        if self._is_plain(next_target, passed):
            firsts, lengths, places = self._sources[:], self._lengths[:], self._targets[:]
            behind = bisect_left(firsts, pruned_to)
            runs = map(MappedRun, firsts[:behind], lengths[:behind], places[:behind])
            by_source = RunIndex(firsts, lengths, places, runs)
            return ReadClaims(by_source, RunIndex(places, lengths, firsts, ()), [], [], [])
        claims: list[MappedRun] = []
        marked: tuple[list[Span], list[Span]] = [], []
        for target, length, source in zip(*self._columns, strict=True):
            kept = min(length, next_target - target)
            if source < 0:
                marked[source == TRUNCATED].append((target, target + length))
            elif kept > 0:
                claims.append(MappedRun(source, kept, target))
        resolved = last_claims(claims)
        ahead = [
            (run.place + max(0, passed - run.first), run.place + run.length) for run in resolved if run.end > passed
        ]
        kept_runs = [run._replace(length=min(run.length, passed - run.first)) for run in resolved if run.first < passed]
        turned = sorted(run.turned() for run in kept_runs)
        by_source = RunIndex.of_runs(kept_runs, (run.turned() for run in turned), pruned_to)
        by_target = RunIndex.of_runs(turned, (run.turned() for run in kept_runs))
        return ReadClaims(by_source, by_target, *marked, ahead)

    def _is_plain(self, next_target: int, passed: int) -> bool:
        """Return whether all claims count and are ascending on both sides, as they are where nothing was repaired."""
        if not self._targets:
            return True
        if self._targets[-1] + self._lengths[-1] > next_target or self._sources[-1] + self._lengths[-1] > passed:
            return False
        ends = map(add, self._sources, self._lengths)
        return self._sources[0] >= 0 and all(map(le, ends, islice(self._sources, 1, None)))

"""The pure parts of a reconciliation of logs that were cleaned, without Spark, and the repair's decision behind them.

What Spark does with joins over keys (`resolve.explained`, `compaction_proof.settled`) is done here by looking up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from replicator.jobs.repair_decision import Asked
from replicator.jobs.repair_spans import Missing
from replicator.model.partition import Span
from replicator.planes.contract import RecordIdentity
from replicator.proof import verdicts
from replicator.proof.by_content.record_verdicts import Finding, ReadRecord
from replicator.spark.reconcile.compaction_proof import IntervalVerdict, Place, Read, proven_places
from tests.replicator.spark.reconcile.drawn import Content
from tests.replicator.spark.reconcile.histories import Cleaned
from tests.replicator.spark.reconcile.pipeline import compared, records

MORE = (verdicts.EXTRA, verdicts.DOUBLED)


class Last(NamedTuple):
    """The last record of a key: its offset and digest."""

    offset: int = -1
    digest: int | None = None


Lasts = Mapping[int, Last]
NONE = Last()


def reconciled(cleaned: Cleaned, mean: int) -> tuple[list[Finding], bool]:
    """All findings, and whether a gap was divided."""
    sides = cleaned.history.source, cleaned.history.target
    here, there = (records(of, offsets) for of, offsets in zip(sides, cleaned.offsets, strict=True))
    found, divided = compared(here, there, mean, compacted=True)
    lasts = _lasts(here), _lasts(there)
    explained = [_explained(one, *lasts, cleaned.compacted) for one in found]
    return _settled(explained, cleaned), divided


def _lasts(side: Sequence[ReadRecord]) -> Lasts:
    return {one.key_hash: Last(one.offset, one.digest) for one in side if one.key_hash is not None}


def _explained(one: Finding, source: Lasts, target: Lasts, compacted: tuple[bool, bool]) -> Finding:
    here, there = (NONE if one.key_hash is None else lasts.get(one.key_hash, NONE) for lasts in (source, target))
    if one.verdict == verdicts.MISSING and compacted[1]:
        later = here.offset > (one.source_offset or 0) or there.offset > one.other_after
        return _if_cleaned(one, verdicts.COMPACTED, there, later=later)
    if one.verdict in MORE and compacted[0]:
        later = here.offset > one.other_after or there.offset > (one.target_offset or 0)
        return _if_cleaned(one, verdicts.COMPACTED_SOURCE, here, later=later)
    return one


def _if_cleaned(one: Finding, verdict: str, last: Last, *, later: bool) -> Finding:
    """`last`: of the side that doesn't have the record."""
    cleaned = later or (one.tombstone and last is NONE) or one.key_hash is None
    if not cleaned and last.digest != one.digest:
        return one
    after = one.other_after if cleaned else -1
    return one._replace(verdict=verdict, other_after=after, reason=one.verdict)


def _settled(findings: Sequence[Finding], cleaned: Cleaned) -> list[Finding]:
    """With compaction proven, refuted or left unproven."""
    in_order = not any(one.verdict == verdicts.REORDERED for one in findings)
    places = Counter((one.verdict, one.other_after, one.other_before) for one in findings)
    proven: dict[tuple[str, int, int], IntervalVerdict] = {}
    for side, verdict in enumerate((verdicts.COMPACTED_SOURCE, verdicts.COMPACTED)):
        asked = [Place(*at[1:], count) for at, count in places.items() if at[0] == verdict]
        whole = 0, cleaned.ends[side]
        said = proven_places(_reader(cleaned.offsets[side]), asked, whole, in_order=in_order)
        proven |= {(verdict, at.after, at.before): one for at, one in zip(asked, said, strict=True)}
    return [_said(one, proven.get((one.verdict, one.other_after, one.other_before))) for one in findings]


def _said(one: Finding, proven: IntervalVerdict | None) -> Finding:
    if proven is None:
        return one
    verdict = {verdicts.MISSING: one.reason, verdicts.UNPROVEN: proven.verdict}.get(proven.verdict, one.verdict)
    return one._replace(verdict=verdict, reason=proven.why)


def _reader(offsets: Sequence[int]) -> Read:
    """Says of intervals which of their offsets no record has."""

    def read(intervals: Sequence[Span]) -> Sequence[tuple[Sequence[Span], str]]:
        found = []
        for first, end in intervals:
            inside = offsets[bisect_left(offsets, first) : bisect_left(offsets, end)]
            edges = [first - 1, *inside, end]
            found.append(([(a + 1, b) for a, b in pairwise(edges) if a + 1 < b], ""))
        return found

    return read


def repaired(cleaned: Cleaned, findings: Sequence[Finding]) -> list[Content]:
    """The target after a repair of what the findings call missing."""
    sides = cleaned.history.source, cleaned.history.target
    here, there = (
        [_identity(offset, one) for offset, one in zip(offsets, of, strict=True)]
        for of, offsets in zip(sides, cleaned.offsets, strict=True)
    )
    asked = Asked(compacted=cleaned.compacted[1])
    by_offset = {one.offset: rank for rank, one in enumerate(here)}
    missing = sorted((one.source_offset or 0, one.other_after) for one in findings if one.verdict == verdicts.MISSING)
    for offset, after in missing:
        asked.wanted(Missing(offset, offset + 1, 1, after), [here[by_offset[offset]]])
    asked.target(there)
    if asked.needs_source:
        asked.source(here)
    copied = [sides[0][by_offset[span.first]] for span in asked.decide().copied]
    return [*cleaned.history.target, *copied]


def _identity(offset: int, content: Content) -> RecordIdentity:
    return RecordIdentity(offset, repr(content[1:]).encode(), content.key)

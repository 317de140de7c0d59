"""The pure parts of a reconciliation one after the other, without Spark, and the repair's decision behind them.

What Spark does between them with windows over digests (`resolve.doubled`, `moved`, `alone`) is done here by counting.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence

from replicator.jobs.repair_decision import Asked
from replicator.jobs.repair_spans import Missing
from replicator.planes.contract import RecordIdentity
from replicator.proof import verdicts
from replicator.proof.by_content import alterations
from replicator.proof.by_content.alignment import Gap, Side, align, side
from replicator.proof.by_content.record_verdicts import Finding, ReadRecord, compare
from tests.replicator.proof.by_content.test_cutting import cut
from tests.replicator.spark.reconcile.drawn import Content
from tests.replicator.spark.reconcile.histories import History


def hashed(*fields: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(fields).encode(), digest_size=8).digest(), "big")


def records(contents: Sequence[Content], offsets: Sequence[int] | None = None) -> list[ReadRecord]:
    """At these offsets, or at those that are their ranks."""
    return [
        ReadRecord(
            rank,
            rank if offsets is None else offsets[rank],
            content.ms,
            hashed(*content[1:]),
            None if content.key is None else hashed(content.key),
            None if content.value is None else hashed(content.value),
            None,
            content.key,
        )
        for rank, content in enumerate(contents)
    ]


def reconciled(history: History, mean: int) -> tuple[list[Finding], bool]:
    """All findings, and whether a gap was divided."""
    return compared(records(history.source), records(history.target), mean)


def compared(
    here: Sequence[ReadRecord], there: Sequence[ReadRecord], mean: int, *, compacted: bool = False
) -> tuple[list[Finding], bool]:
    """The same of records; `compacted`: a side's topic is."""
    source, target = (side(cut([record.digest for record in one], mean=mean)) for one in (here, there))
    aligned = align(source, target, mean)
    found = [Finding(verdicts.SAME, aligned.matched_records)] if aligned.matched_records else []
    for number, gap in enumerate(aligned.gaps):
        found += _opened(number, gap, aligned.source, aligned.target, here, there, compacted=compacted)
    return resolved(found, {record.digest for record in here}), any(gap.divided for gap in aligned.gaps)


def _opened(
    number: int,
    gap: Gap,
    source: Side,
    target: Side,
    here: Sequence[ReadRecord],
    there: Sequence[ReadRecord],
    *,
    compacted: bool,
) -> list[Finding]:
    (first, end), (target_first, target_end) = (
        (of.ranks[numbers[0]], of.ranks[numbers[1]]) for of, numbers in ((source, gap.source), (target, gap.target))
    )
    edges = _edges(first, end, here), _edges(target_first, target_end, there)
    here, there = here[first:end], there[target_first:target_end]
    return compare(here, there, edges, number=number, from_end=compacted, compacted=compacted)


def _edges(first: int, end: int, side: Sequence[ReadRecord]) -> tuple[int, int]:
    return side[first - 1].offset if first else -1, side[end].offset if end < len(side) else -1


def resolved(findings: Sequence[Finding], source: set[int]) -> list[Finding]:
    """Equal digests over all gaps first, only then alterations."""
    found: list[Finding] = []
    missing: dict[int, list[Finding]] = defaultdict(list)
    more: dict[int, list[Finding]] = defaultdict(list)
    for one in findings:
        if one.verdict not in (verdicts.MISSING, verdicts.EXTRA, verdicts.DOUBLED):
            found.append(one)
            continue
        assert one.digest is not None
        if one.verdict == verdicts.MISSING:
            missing[one.digest].append(one)
        else:
            verdict = verdicts.DOUBLED if one.digest in source else verdicts.EXTRA
            more[one.digest].append(one._replace(verdict=verdict))
    alone: list[Finding] = []
    for digest in missing.keys() | more.keys():
        pairs = min(len(missing[digest]), len(more[digest]))
        found += [was._replace(verdict=verdicts.REORDERED) for was in missing[digest][:pairs]]
        alone += [one for one in (*missing[digest][pairs:], *more[digest][pairs:]) if one.verdict != verdicts.DOUBLED]
        found += [one for one in more[digest][pairs:] if one.verdict == verdicts.DOUBLED]
    return [*found, *alterations.altered(alone)]


def repaired(history: History, findings: Sequence[Finding]) -> list[Content]:
    """The target after a repair of what the findings call missing."""
    here, there = ([_identity(rank, one) for rank, one in enumerate(of)] for of in (history.source, history.target))
    asked = Asked(compacted=False)
    for rank in sorted(one.source_rank or 0 for one in findings if one.verdict == verdicts.MISSING):
        asked.wanted(Missing(rank, rank + 1, 1), [here[rank]])
    asked.target(there)
    if asked.needs_source:
        asked.source(here)
    copied = [one for span in asked.decide().copied for one in history.source[span.first : span.end]]
    return [*history.target, *copied]


def _identity(rank: int, content: Content) -> RecordIdentity:
    return RecordIdentity(rank, repr(content[1:]).encode(), content.key)


def counted(contents: Sequence[Content]) -> Counter[tuple[bytes | None, bytes | None, int]]:
    """As a multiset: by what records say."""
    return Counter(content[1:] for content in contents)

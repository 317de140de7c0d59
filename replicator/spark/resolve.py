"""What a look beyond the opened stretch says about a missing or extra record.

Removed by retention: it stands before the first record that both sides have, and that side's log was cut. Moved far:
missing in one stretch and extra in another. Compacted: a later record of its key exists, or it is a tombstone, and that
side's topic is compacted. Doubled: the source has an equal record anywhere in the compared range.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from replicator.planes.contract import Partition
from replicator.spark import verdicts
from replicator.spark.verdicts import Finding


@dataclass(frozen=True, slots=True)
class Head:
    """Ranks of the first record that both sides have; None when there is none. And whose log was cut."""

    source_rank: int | None
    target_rank: int | None
    source_cut: bool
    target_cut: bool


class Found(NamedTuple):
    """A finding with its source partition."""

    at: Partition
    finding: Finding


@dataclass(slots=True)
class Whereabouts:
    """What the sides say about records looked for. Offsets are the last of that key in the compared range."""

    source_digests: set[tuple[Partition, int]] = field(default_factory=set)
    source_keys: dict[tuple[Partition, int], int] = field(default_factory=dict)
    target_keys: dict[tuple[Partition, int], int] = field(default_factory=dict)


def expired(finding: Finding, head: Head) -> Finding:
    """The finding, or that retention explains it."""
    if finding.verdict == verdicts.MISSING and head.target_cut and _before(finding.source_rank, head.source_rank):
        return finding._replace(verdict=verdicts.EXPIRED)
    if finding.verdict == verdicts.EXTRA and head.source_cut and _before(finding.target_rank, head.target_rank):
        return finding._replace(verdict=verdicts.NEVER_MINE)
    return finding


def _before(rank: int | None, first: int | None) -> bool:
    return first is None or (rank is not None and rank < first)


def moved(found: Sequence[Found]) -> list[Found]:
    """Missing and extra records of one partition with one digest are one record that moved far."""
    away: dict[tuple[Partition, int | None], list[Finding]] = defaultdict(list)
    for at, finding in found:
        if finding.verdict == verdicts.MISSING:
            away[at, finding.digest].append(finding)
    gone: list[Found] = []
    kept: list[Found] = []
    for at, finding in found:
        match = away.get((at, finding.digest))
        if finding.verdict == verdicts.EXTRA and match:
            was = match.pop(0)
            gone.append(Found(at, was))
            now = was._replace(target_offset=finding.target_offset, target_rank=finding.target_rank)
            kept.append(Found(at, now._replace(verdict=verdicts.REORDERED)))
        else:
            kept.append(Found(at, finding))
    away_now = set(gone)
    return [item for item in kept if item not in away_now]


def explained(item: Found, seen: Whereabouts, source_compacted: bool, target_compacted: bool) -> Found:
    """The finding after what was found elsewhere."""
    at, finding = item
    verdict = finding.verdict
    if (
        verdict == verdicts.MISSING
        and target_compacted
        and _compacted(finding, finding.source_offset, seen.source_keys, at)
    ):
        verdict = verdicts.COMPACTED
    elif verdict == verdicts.EXTRA:
        if source_compacted and _compacted(finding, finding.target_offset, seen.target_keys, at):
            verdict = verdicts.COMPACTED_SOURCE
        elif finding.digest is not None and (at, finding.digest) in seen.source_digests:
            verdict = verdicts.DOUBLED
    return Found(at, finding._replace(verdict=verdict))


def _compacted(finding: Finding, offset: int | None, last: Mapping[tuple[Partition, int], int], at: Partition) -> bool:
    if finding.key_hash is None or offset is None:
        return False
    return finding.tombstone or last.get((at, finding.key_hash), -1) > offset

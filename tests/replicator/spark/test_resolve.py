"""Missing and extra records, after a look beyond their stretch."""

from __future__ import annotations

import pytest

from replicator.planes.contract import Partition
from replicator.spark import verdicts
from replicator.spark.resolve import Found, Head, Whereabouts, expired, explained, moved
from replicator.spark.verdicts import Finding

AT = Partition("t", 0)
OTHER = Partition("t", 1)


def missing(rank: int, digest: int = 1, key: int | None = 7, *, tombstone: bool = False) -> Finding:
    return Finding(
        "missing", 1, source_rank=rank, source_offset=10 * rank, digest=digest, key_hash=key, tombstone=tombstone
    )


def extra(rank: int, digest: int = 1, key: int | None = 7, *, tombstone: bool = False) -> Finding:
    return Finding(
        "extra", 1, target_rank=rank, target_offset=20 * rank, digest=digest, key_hash=key, tombstone=tombstone
    )


@pytest.mark.parametrize(
    ("finding", "head", "verdict"),
    [
        (missing(4), Head(5, 0, False, True), verdicts.EXPIRED),
        (missing(5), Head(5, 0, False, True), verdicts.MISSING),
        (missing(4), Head(5, 0, True, False), verdicts.MISSING),
        (missing(4), Head(None, None, False, True), verdicts.EXPIRED),
        (extra(4), Head(0, 5, True, False), verdicts.NEVER_MINE),
        (extra(5), Head(0, 5, True, False), verdicts.EXTRA),
        (extra(4), Head(0, 5, False, True), verdicts.EXTRA),
    ],
)
def test_retention_explains_only_what_stands_before_the_common_part(finding: Finding, head: Head, verdict: str) -> None:
    assert expired(finding, head).verdict == verdict


def test_a_record_that_moved_far_is_one_finding() -> None:
    found = moved([Found(AT, missing(3)), Found(AT, extra(90)), Found(AT, missing(4, 2)), Found(OTHER, extra(5, 2))])
    assert [(item.at, item.finding.verdict) for item in found] == [
        (AT, "reordered"),
        (AT, "missing"),
        (OTHER, "extra"),
    ]
    assert (found[0].finding.source_offset, found[0].finding.target_offset) == (30, 1800)


def test_as_many_move_as_there_are() -> None:
    found = moved([Found(AT, missing(1)), Found(AT, missing(2)), Found(AT, extra(50)), Found(AT, extra(51, 9))])
    assert sorted(item.finding.verdict for item in found) == ["extra", "missing", "reordered"]


@pytest.mark.parametrize(
    ("finding", "seen", "compacted", "verdict"),
    [
        (missing(3), Whereabouts(source_keys={(AT, 7): 31}), True, verdicts.COMPACTED),
        (missing(3), Whereabouts(source_keys={(AT, 7): 31}), False, verdicts.MISSING),
        (missing(3), Whereabouts(source_keys={(AT, 7): 30}), True, verdicts.MISSING),
        (missing(3), Whereabouts(source_keys={(OTHER, 7): 31}), True, verdicts.MISSING),
        (missing(3, tombstone=True), Whereabouts(), True, verdicts.COMPACTED),
        (missing(3, key=None, tombstone=True), Whereabouts(), True, verdicts.MISSING),
        (extra(3), Whereabouts(target_keys={(AT, 7): 61}), True, verdicts.COMPACTED_SOURCE),
        (extra(3), Whereabouts(source_digests={(AT, 1)}), False, verdicts.DOUBLED),
        (extra(3), Whereabouts(source_digests={(OTHER, 1), (AT, 2)}), False, verdicts.EXTRA),
    ],
)
def test_what_is_found_elsewhere_explains_it(
    finding: Finding, seen: Whereabouts, compacted: bool, verdict: str
) -> None:
    assert explained(Found(AT, finding), seen, compacted, compacted).finding.verdict == verdict

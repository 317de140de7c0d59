"""Which pairs of missing and extra records are sure, and which are a guess."""

from __future__ import annotations

from replicator.proof import verdicts
from replicator.proof.by_content.alterations import altered
from replicator.proof.by_content.record_verdicts import Finding


def missing(rank: int, place: int, *, key: int = 7, value: int, ms: int = 5) -> Finding:
    fields = {"key_hash": key, "value_hash": value, "timestamp_ms": ms, "digest": value}
    return Finding(verdicts.MISSING, 1, source_rank=rank, place=place, **fields)  # type: ignore[arg-type]


def extra(rank: int, place: int, *, key: int = 7, value: int, ms: int = 5) -> Finding:
    one = missing(rank, place, key=key, value=value, ms=ms)
    return one._replace(verdict=verdicts.EXTRA, source_rank=None, target_rank=rank)


def found(*findings: Finding) -> set[tuple[str, int | None, int | None, bool]]:
    return {(one.verdict, one.source_rank, one.target_rank, one.guessed) for one in altered(findings)}


def test_two_fields_in_common_between_the_same_matches_are_sure() -> None:
    assert found(missing(1, 10, value=1), extra(1, 10, value=9)) == {(verdicts.ALTERED, 1, 1, False)}


def test_a_pair_is_a_guess_where_a_record_that_is_left_elsewhere_has_as_much_in_common() -> None:
    """The first may be lost, and the second one have moved to its place and been altered."""
    for left, verdict in ((missing(8, 20, value=2), verdicts.MISSING), (extra(8, 20, value=3), verdicts.EXTRA)):
        ranks = (8, None) if verdict == verdicts.MISSING else (None, 8)
        assert found(missing(1, 10, value=1), extra(1, 10, value=9), left) == {
            (verdicts.ALTERED, 1, 1, True),
            (verdict, *ranks, True),
        }
    other = missing(8, 20, key=6, value=2)
    assert (verdicts.ALTERED, 1, 1, False) in found(missing(1, 10, value=1), extra(1, 10, value=9), other)

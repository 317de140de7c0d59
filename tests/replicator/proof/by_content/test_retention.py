"""What retention explains: by count where the position counts, else by offsets, and no record more."""

from __future__ import annotations

import pytest

from replicator.model.partition import Partition
from replicator.proof.by_content.retention import OneSided, RetainedPrefix, retained_prefix
from replicator.proof.pairs import Pair

AT = Partition("t", 0)


def pair(*, source_removed: int = 0, target_removed: int = 0, count: int | None = 20_000, **changes: object) -> Pair:
    return Pair(
        source=AT,
        target=AT,
        source_range=(source_removed, 20_000),
        target_range=(target_removed, 20_100),
        source_start=source_removed,
        target_start=target_removed,
        count=count,
        **changes,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("facts", "source_records", "found", "expected"),
    [
        (pair(), 20_000, OneSided(10_000), RetainedPrefix(0, 0, True)),
        # the log starts at 1: it can have lost one record, not the ten thousand that are missing behind it
        (pair(target_removed=1), 20_000, OneSided(10_000), RetainedPrefix(1, 0, False)),
        # the flow itself has written ten thousand less: nothing has expired
        (pair(target_removed=10_050, count=10_000), 20_000, OneSided(10_000), RetainedPrefix(0, 0, True)),
        (pair(target_removed=10_050), 20_000, OneSided(10_000), RetainedPrefix(10_000, 0, True)),
        # two that stand in front there are somebody else's: the source has its beginning
        (pair(target_removed=10_050), 20_000, OneSided(10_000, 2), RetainedPrefix(10_000, 0, True)),
        (pair(source_removed=5_000), 15_000, OneSided(0, 5_000), RetainedPrefix(0, 5_000, True)),
        # the target has its beginning: what it lacks in front was lost
        (pair(source_removed=5_000), 15_000, OneSided(2, 5_000), RetainedPrefix(0, 5_000, True)),
        # five thousand foreign records in front are not explained by a source that lost one
        (pair(source_removed=1), 19_999, OneSided(0, 5_001), RetainedPrefix(0, 1, True)),
        (pair(source_removed=1, count=25_000), 19_999, OneSided(0, 5_001), RetainedPrefix(0, 1, False)),
        (pair(source_removed=5_000, target_removed=7_050), 15_000, OneSided(2_000), RetainedPrefix(2_000, 0, True)),
        (pair(source_removed=5_000, target_removed=6_999), 15_000, OneSided(2_000), RetainedPrefix(2_000, 0, False)),
        (pair(source_removed=7_000, target_removed=5_050), 13_000, OneSided(0, 2_000), RetainedPrefix(0, 2_000, True)),
        # either log may begin later: nothing tells which of these were removed from the other one
        (pair(source_removed=5_000, target_removed=7_050), 15_000, OneSided(2_000, 1), RetainedPrefix(2_000, 1, False)),
        # of the ten thousand that the source has lost a hundred were copied again, and stand behind all others
        (
            pair(source_removed=10_000, target_removed=9_910),
            10_000,
            OneSided(10, copied_again=100),
            RetainedPrefix(10, 0, True),
        ),
        (
            pair(source_removed=10_000, target_removed=9_909),
            10_000,
            OneSided(10, copied_again=100),
            RetainedPrefix(10, 0, False),
        ),
    ],
)
def test_by_count(facts: Pair, source_records: int, found: OneSided, expected: RetainedPrefix) -> None:
    assert retained_prefix(facts, source_records, found) == expected


def test_what_is_missing_behind_the_first_common_record_was_not_written_and_has_not_expired() -> None:
    cut = pair(target_removed=10_050, count=19_997)
    assert retained_prefix(cut, 20_000, OneSided(10_000, missing=3)) == RetainedPrefix(10_000, 0, True)
    assert retained_prefix(cut, 20_000, OneSided(10_000, missing=1)) == RetainedPrefix(9_998, 0, True)


@pytest.mark.parametrize(
    "unknown",
    [{"count": None}, {"exactly_once": False}, {"source_compacted": True}, {"target_compacted": True}],
)
def test_without_a_count_offsets_bound_it_and_nothing_is_proven(unknown: dict[str, object]) -> None:
    cut = pair(source_removed=3, target_removed=5, **unknown)  # type: ignore[arg-type]
    assert retained_prefix(cut, 10, OneSided(7, 7)) == RetainedPrefix(5, 3, False)
    assert retained_prefix(pair(**unknown), 10, OneSided(7, 7)) == RetainedPrefix(0, 0, True)  # type: ignore[arg-type]

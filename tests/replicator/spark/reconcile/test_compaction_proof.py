"""What a log's empty offsets prove of records that compaction may have taken."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from replicator.model.errors import Unreachable
from replicator.model.partition import Span
from replicator.proof import verdicts
from replicator.spark.reconcile import compaction_proof
from replicator.spark.reconcile.compaction_proof import Place, proven_places

WHOLE = (10, 1_000)
EMPTY = [(20, 30), (50, 51), (60, 70), (500, 600)]


class Log:
    """Answers as `wire.log_evidence` does."""

    def __init__(self, empty: Sequence[Span], below_start: int = 0) -> None:
        self.empty, self.below_start = empty, below_start
        self.asked: list[list[Span]] = []

    def __call__(self, intervals: Sequence[Span]) -> Sequence[tuple[Sequence[Span], str]]:
        self.asked.append(list(intervals))
        return [
            (
                [(max(first, a), min(end, b)) for a, b in self.empty if a < end and first < b],
                "below the log start" if first < self.below_start else "",
            )
            for first, end in intervals
        ]


@pytest.mark.parametrize(
    ("place", "verdict"),
    [
        (Place(30, 49, 1), verdicts.MISSING),
        (Place(19, 30, 10), verdicts.COMPACTED),
        (Place(19, 30, 11), verdicts.UNPROVEN),
        (Place(22, 27, 4), verdicts.COMPACTED),
        (Place(22, 27, 5), verdicts.UNPROVEN),
        (Place(45, 65, 6), verdicts.COMPACTED),
        (Place(-1, 20, 1), verdicts.MISSING),
        (Place(-1, -1, 121), verdicts.COMPACTED),
        (Place(600, -1, 1), verdicts.MISSING),
        (Place(40, 41, 1), verdicts.MISSING),
    ],
)
def test_enough_empty_offsets_between_the_neighbours_or_not(place: Place, verdict: str) -> None:
    (found,) = proven_places(Log(EMPTY), [place], WHOLE)
    assert found.verdict == verdict
    assert bool(found.why) == (verdict == verdicts.UNPROVEN)


def test_places_are_read_together_in_order_and_no_offset_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_proof, "INTERVALS_AT_ONCE", 2)
    log = Log(EMPTY)
    places = [Place(70, 80, 1), Place(19, 30, 1), Place(22, 27, 1), Place(-1, 15, 1), Place(499, 600, 1)]
    found = proven_places(log, places, WHOLE)
    assert [item.verdict for item in found] == [
        verdicts.MISSING,
        verdicts.COMPACTED,
        verdicts.COMPACTED,
        verdicts.MISSING,
        verdicts.COMPACTED,
    ]
    assert log.asked == [[(10, 15), (20, 30)], [(71, 80), (500, 600)]]


def test_what_the_log_cannot_tell_is_unproven_unless_enough_is_known() -> None:
    log = Log(EMPTY, below_start=15)
    found = proven_places(log, [Place(-1, 19, 1), Place(-1, 40, 10), Place(30, 49, 1)], WHOLE)
    assert [item.verdict for item in found] == [verdicts.UNPROVEN, verdicts.COMPACTED, verdicts.UNPROVEN]
    assert "below the log start" in found[0].why


def test_a_record_that_may_have_stood_elsewhere_is_lost_only_where_nothing_was_compacted() -> None:
    places = [Place(30, 49, 1), Place(19, 30, 10), Place(40, 41, 1)]
    found = proven_places(Log(EMPTY), places, WHOLE, in_order=False)
    assert [item.verdict for item in found] == [verdicts.UNPROVEN, verdicts.COMPACTED, verdicts.UNPROVEN]
    assert "another order" in found[0].why
    found = proven_places(Log([]), places, WHOLE, in_order=False)
    assert {item.verdict for item in found} == {verdicts.MISSING}


def test_a_log_that_cannot_be_read_proves_nothing() -> None:
    def read(_: Sequence[Span]) -> Sequence[tuple[Sequence[Span], str]]:
        raise Unreachable("cluster 'b': no answer")

    (found,) = proven_places(read, [Place(19, 30, 10)], WHOLE)
    assert found.verdict == verdicts.UNPROVEN
    assert "cluster 'b': no answer" in found.why

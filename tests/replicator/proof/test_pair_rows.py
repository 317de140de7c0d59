"""What can't be told of a missing record: an equal one elsewhere, a log that shows nothing, a later one of its key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from replicator.model.partition import Partition, Span
from replicator.offset_map.verdicts import ComparedRecord, MapComparison, MapFinding, MapVerdict
from replicator.proof.coverage import Coverage
from replicator.proof.pair_comparison import PairComparison
from replicator.proof.pair_rows import EQUAL_UNCOVERED, LATER_KEY, PairRows
from replicator.proof.pairs import Pair
from replicator.proof.partition_side import PartitionSide
from replicator.wire.committed_log import Passed

pytestmark = pytest.mark.tier("default")
PAIR = Pair(
    source=Partition("t", 0),
    target=Partition("c", 0),
    source_range=(0, 10),
    target_range=(0, 10),
    source_copied_end=10,
    source_log_end=20,
)


class Side:
    """Rows and empty offsets of one side, in memory."""

    def __init__(self, rows: list[ComparedRecord] = [], emptied: tuple[int, ...] = (), untold: str = "") -> None:  # noqa: B006
        self._rows, self._emptied, self._untold = rows, emptied, untold

    def rows(self, span: Span, passed: Passed | None = None) -> Iterator[ComparedRecord]:
        return iter([row for row in self._rows if span[0] <= row.offset < span[1]])

    def emptied(self, offset: int) -> bool:
        return offset in self._emptied

    def untold(self, offset: int) -> str:
        return self._untold


def unproven(found: MapComparison, source: Side = Side(), target: Side = Side()) -> dict[int, str]:  # noqa: B008
    sides = cast(PartitionSide, source), cast(PartitionSide, target)
    return PairRows(PAIR, *sides, Coverage(PAIR, None), lambda offsets: None).unproven(found)


def missing(*, compacted: bool = False) -> MapComparison:
    found = MapComparison(target_compacted=compacted)
    found.say(MapFinding(MapVerdict.MISSING, 5, 7))
    found.records[5] = ComparedRecord(5, b"five", b"k")
    return found


@pytest.mark.parametrize(("there", "untold"), [(5, 0), (3, 2), (7, 0)])
def test_what_the_map_says_nothing_of_may_be_lost_where_the_target_has_less(there: int, untold: int) -> None:
    coverage = Coverage(PAIR, None)
    for passed, records in ((coverage.of_source, 5), (coverage.of_target, there)):
        assert len(list(passed([ComparedRecord(offset, b"") for offset in range(records)]))) == records
    assert PairComparison(coverage=coverage).choice().untold == untold


def test_a_missing_record_is_missing_where_nothing_speaks_against_it() -> None:
    assert unproven(missing()) == {}


def test_an_equal_record_where_the_map_says_nothing_may_be_its_copy() -> None:
    found = missing()
    found.not_compared[b"five"] = 1
    assert unproven(found) == {5: EQUAL_UNCOVERED}


def test_a_log_that_shows_nothing_of_the_place_proves_no_loss_where_it_is_compacted() -> None:
    assert unproven(missing(), target=Side(untold="old")) == {}
    assert "doesn't tell" in unproven(missing(compacted=True), target=Side(untold="old"))[5]


def test_a_later_record_of_the_key_behind_the_position_may_have_been_copied_since() -> None:
    later = Side([ComparedRecord(15, b"later", b"k")])
    assert unproven(missing(compacted=True), later, Side(emptied=(7,))) == {5: LATER_KEY}
    assert unproven(missing(compacted=True), later, Side()) == {}
    other = Side([ComparedRecord(15, b"later", b"another")])
    assert unproven(missing(compacted=True), other, Side(emptied=(7,))) == {}

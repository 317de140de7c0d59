"""What a repair copies of a comparison that is given: the histories of `tests.model` have the rest."""

from __future__ import annotations

import pytest

from replicator.offset_map.repair_rule import is_superseded, records_to_copy
from replicator.offset_map.verdicts import ComparedRecord, LastOfKey, MapComparison, MapFinding, MapVerdict


def missing(*rows: ComparedRecord, compacted: bool = False) -> MapComparison:
    found = MapComparison(target_compacted=compacted)
    for row in rows:
        found.records[row.offset] = row
        found.say(MapFinding(MapVerdict.MISSING, row.offset, 100 + row.offset))
    return found


def test_what_nothing_tells_to_be_lost_is_left_with_the_reason() -> None:
    found = missing(ComparedRecord(1, b"a"), ComparedRecord(2, b"b"), ComparedRecord(3, b"c"))
    found.not_compared = {b"c": 1}
    choice = records_to_copy(found, unproven={2: "the log doesn't tell", 3: "an equal one stands"})
    assert choice.copied == [1]
    assert choice.left == {2: "unproven", 3: "standing"}
    assert choice.unproven == {2: "the log doesn't tell"}


def test_a_compacted_target_takes_no_record_without_a_key() -> None:
    rows = ComparedRecord(1, b"a"), ComparedRecord(2, b"b", b"k")
    assert records_to_copy(missing(*rows)).copied == [1, 2]
    choice = records_to_copy(missing(*rows, compacted=True))
    assert (choice.copied, choice.left) == ([2], {1: "without_key"})


@pytest.mark.parametrize(
    ("last_here", "there", "superseded"),
    [
        (7, None, False),
        (8, None, True),
        (None, LastOfKey(60, b"of others"), True),
        (7, LastOfKey(60, b"of others"), True),
        (7, LastOfKey(50, b"of others"), False),
        (7, LastOfKey(60, b"older", 3), False),
        (7, LastOfKey(60, b"newer", 8), True),
        (7, LastOfKey(60, b"mine", 7), False),
    ],
)
def test_a_later_record_of_the_key_on_either_side_is_not_buried(
    last_here: int | None, there: LastOfKey | None, superseded: bool
) -> None:
    assert is_superseded(7, b"mine", last_here, there, 50) is superseded


def test_of_a_key_two_records_without_a_digest_are_not_the_same() -> None:
    assert is_superseded(7, b"", 7, LastOfKey(60, b""), 50)

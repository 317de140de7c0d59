"""Numbers with their noun, in the singular and in the plural, and the first of many."""

from __future__ import annotations

import pytest

from replicator.model.counting import counted, named


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (counted(1, "partition"), "1 partition"),
        (counted(0, "partition"), "0 partitions"),
        (counted(2_000, "partition"), "2,000 partitions"),
        (counted(1, "range that differs", "ranges that differ"), "1 range that differs"),
        (counted(1_200, "range that differs", "ranges that differ"), "1,200 ranges that differ"),
    ],
)
def test_the_noun_fits_the_number(said: str, expected: str) -> None:
    assert said == expected


def test_of_many_the_first_are_named_and_the_others_counted() -> None:
    assert named([]) == ""
    assert named(["a"]) == "a"
    assert named(["a", "b", "c"]) == "a, b, c"
    assert named(["a", "b", "c", "d"], "; ") == "a; b; c and 1 more"
    assert named(["a"] * 1_003) == "a, a, a and 1,000 more"

"""Numbers with their noun, in the singular and in the plural."""

from __future__ import annotations

import pytest

from replicator.model.counting import counted


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

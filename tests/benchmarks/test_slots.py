"""What the benchmark of slots says about its figures."""

from __future__ import annotations

from benchmarks import slots
from benchmarks.slots import ONE, TWO, verdicts


def rates(backfill: float, one: float, two: float) -> dict[str, dict[str, float]]:
    return {name: {"records_per_s": rate} for name, rate in (("backfill", backfill), (ONE, one), (TWO, two))}


def test_the_backfill_is_compared_with_both_by_data() -> None:
    made = verdicts({"even": rates(240.0, 200.0, 300.0), "skewed": rates(199.0, 200.0, 190.0)})
    assert [(found["data"], found["beside"], found["ratio"], found["met"]) for found in made] == [
        ("even", ONE, 1.2, False),
        ("even", TWO, 0.8, False),
        ("skewed", ONE, 0.995, False),
        ("skewed", TWO, 1.047, True),
    ]
    assert verdicts({"even": {ONE: {"records_per_s": 1.0}}}) == [], "no figure, no verdict"
    assert set(slots.DATA) == {data for data, _ in slots.BARS}

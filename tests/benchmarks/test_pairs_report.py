"""Pairs of two checkouts are judged by ratios that are better above 1, beside the older one's own spread."""

from __future__ import annotations

import pytest

from benchmarks import pairs_report, report

FIGURES = dict.fromkeys(pairs_report.FIGURES, 10.0)
SAME = {"before": FIGURES, "again": FIGURES}


def series(**now: float) -> dict[str, list[dict[str, dict[str, float]]]]:
    """Five pairs in which this checkout has other figures than the one before."""
    return {"new": [{"before": FIGURES, "after": FIGURES | now}] * 5, "old": [SAME] * 5}


def test_a_higher_rate_is_better_and_so_is_less_of_anything_else() -> None:
    found = pairs_report.verdicts(series(records_per_s=20.0, p50_ms=5.0, cpu_s_steady=20.0))
    assert found["records_per_s"]["ratio"] == found["p50_ms"]["ratio"] == 2
    assert found["cpu_s_steady"]["ratio"] == 0.5
    assert not found["cpu_s_steady"]["passes"]


def test_p99_is_reported_and_has_no_verdict() -> None:
    assert pairs_report.verdicts(series(p99_ms=100.0))["p99_ms"]["passes"] is None


@pytest.mark.tier("default")
@pytest.mark.parametrize(("worst", "passes"), [(10.1, True), (30.0, False)])
def test_the_lower_bound_is_compared_with_the_spread_of_the_older_one(worst: float, passes: bool) -> None:
    found = series()
    found["new"] = [{"before": FIGURES, "after": FIGURES | {"p50_ms": value}} for value in (10, 10, 10, worst, worst)]
    verdict = pairs_report.verdicts(found)["p50_ms"]
    assert verdict["ratio"] == 1
    assert verdict["passes"] is passes


def test_the_document_has_the_place_for_them() -> None:
    document = report.DEVELOPERS.read_text()
    assert document.count(pairs_report.BEGIN) == document.count(pairs_report.END) == 1

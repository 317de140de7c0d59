"""The pause after a commit follows what the target's refusals cost."""

from __future__ import annotations

import pytest

from replicator.lane.pace import PAUSE_S, PAUSE_S_MAX, REFUSED_S, Pace, Rate

QUICK_S = REFUSED_S / 4


def test_a_refusal_makes_the_pause_longer_up_to_its_bound() -> None:
    pace = Pace()
    pace.on_committed(10.0, REFUSED_S, drained=True)
    assert PAUSE_S < pace.pause_s < PAUSE_S_MAX
    for _ in range(100):
        pace.on_committed(10.0, REFUSED_S, drained=True)
    assert pace.pause_s == PAUSE_S_MAX


def test_without_refusals_it_goes_back_to_nothing_slowly() -> None:
    pace = Pace()
    pace.on_committed(10.0, REFUSED_S, drained=True)
    longer = pace.pause_s
    pace.on_committed(11.0, QUICK_S, drained=True)
    assert longer * 0.9 < pace.pause_s < longer
    for _ in range(1_000):
        pace.on_committed(11.0, QUICK_S, drained=True)
    assert pace.pause_s == 0.0


def test_it_is_counted_from_the_commit_and_only_where_little_was_waiting() -> None:
    pace = Pace()
    assert pace.left_s(10.0) == 0.0
    pace.on_committed(10.0, QUICK_S, drained=True)
    assert 0.0 < pace.left_s(10.001) < pace.pause_s
    assert pace.left_s(11.0) == 0.0
    pace.on_committed(12.0, 1.0, drained=False)
    assert pace.left_s(12.0) == 0.0


def test_a_rate_bounds_transactions_and_the_time_between_them() -> None:
    rate = Rate(100.0)
    assert rate.records(1_000, interval_s=2.0) == 200
    assert rate.records(50, interval_s=2.0) == 50
    assert rate.left_s(10.0) == 0.0
    rate.spent(began_s=10.0, records=200)
    assert rate.left_s(10.5) == pytest.approx(1.5), "it took half a second of its two"
    assert rate.left_s(12.5) == 0.0
    rate.spent(began_s=20.0, records=200)
    assert rate.left_s(20.0) == pytest.approx(2.0), "an idle time earns nothing"


def test_without_a_rate_nothing_waits() -> None:
    rate = Rate(None)
    rate.spent(began_s=0.0, records=10**9)
    assert (rate.left_s(0.0), rate.records(7, 1.0)) == (0.0, 7)

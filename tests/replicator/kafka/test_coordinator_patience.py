"""How long the position group's coordinator is waited for."""

from __future__ import annotations

from replicator.kafka.coordinator_patience import LATE_S, CoordinatorPatience


def test_a_slow_coordinator_gets_more_time_and_a_quick_one_less() -> None:
    patience = CoordinatorPatience(60.0)
    assert patience.limit_s == LATE_S
    patience.timed_out(patience.limit_s)
    patience.timed_out(patience.limit_s)
    assert patience.limit_s == 4 * LATE_S
    patience.answered()
    assert patience.limit_s == 2 * LATE_S
    for _ in range(3):
        patience.answered()
    assert patience.limit_s == LATE_S


def test_lanes_that_time_out_together_double_it_once() -> None:
    patience, limit_s = CoordinatorPatience(60.0), LATE_S
    for _ in range(16):
        patience.timed_out(limit_s)
    assert patience.limit_s == 2 * LATE_S


def test_it_is_never_longer_than_the_transaction_lasts() -> None:
    patience = CoordinatorPatience(10.0)
    for _ in range(10):
        patience.timed_out(patience.limit_s)
    assert patience.limit_s == 10.0

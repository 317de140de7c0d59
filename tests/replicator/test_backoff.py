"""Delays between tries grow to a bound and begin again after a success."""

from __future__ import annotations

import pytest

from replicator.backoff import Backoff


def test_delays_double_up_to_the_bound() -> None:
    backoff = Backoff(0.5, 3, jitter=lambda: 1.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1, 2, 3, 3]
    assert backoff.failures == 5


def test_jitter_takes_away_at_most_half() -> None:
    backoff = Backoff(1, 8, jitter=lambda: 0.0)
    assert [backoff.next_s() for _ in range(3)] == [0.5, 1, 2]


def test_a_success_begins_a_new_series() -> None:
    backoff = Backoff(1, 8, jitter=lambda: 1.0)
    backoff.next_s()
    backoff.next_s()
    backoff.reset()
    assert (backoff.failures, backoff.next_s()) == (0, 1)


@pytest.mark.parametrize(("first_s", "max_s"), [(0, 1), (2, 1), (-1, 1)])
def test_bounds_that_make_no_sense_are_refused(first_s: float, max_s: float) -> None:
    with pytest.raises(ValueError, match="back-off"):
        Backoff(first_s, max_s)

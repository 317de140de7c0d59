"""The pause after a commit follows what the target's refusals cost."""

from __future__ import annotations

from replicator.pace import PAUSE_S, PAUSE_S_MAX, REFUSED_S, Pace

QUICK_S = REFUSED_S / 4


def test_a_refusal_makes_the_pause_longer_up_to_its_bound() -> None:
    pace = Pace()
    pace.committed(10.0, REFUSED_S, drained=True)
    assert PAUSE_S < pace.pause_s < PAUSE_S_MAX
    for _ in range(100):
        pace.committed(10.0, REFUSED_S, drained=True)
    assert pace.pause_s == PAUSE_S_MAX


def test_without_refusals_it_goes_back_to_nothing_slowly() -> None:
    pace = Pace()
    pace.committed(10.0, REFUSED_S, drained=True)
    longer = pace.pause_s
    pace.committed(11.0, QUICK_S, drained=True)
    assert longer * 0.9 < pace.pause_s < longer
    for _ in range(1_000):
        pace.committed(11.0, QUICK_S, drained=True)
    assert pace.pause_s == 0.0


def test_it_is_counted_from_the_commit_and_only_where_little_was_waiting() -> None:
    pace = Pace()
    assert pace.left_s(10.0) == 0.0
    pace.committed(10.0, QUICK_S, drained=True)
    assert 0.0 < pace.left_s(10.001) < pace.pause_s
    assert pace.left_s(11.0) == 0.0
    pace.committed(12.0, 1.0, drained=False)
    assert pace.left_s(12.0) == 0.0

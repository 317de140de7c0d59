"""The schedule: a pure function of its seed, with all the kills that were asked for inside the flow of data."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cli.demo.schedule import DANGEROUS, NTH, draw
from replicator import failpoints


@given(st.integers(), st.floats(2, 100), st.integers(0, 30), st.integers(0, 10))
def test_all_kills_fall_into_the_time_of_the_load(seed: int, seconds: float, kills: int, broker_kills: int) -> None:
    plan = draw(seed, seconds, kills, broker_kills)
    assert (len(plan.worker), len(plan.broker)) == (kills, broker_kills)
    moments = [kill.at_s for kill in plan.worker]
    assert moments == sorted(moments)
    assert list(plan.broker) == sorted(plan.broker)
    assert all(0 < at_s <= seconds for at_s in (*moments, *plan.broker))
    assert not any(kill.point for kill in plan.worker)


def test_the_seed_alone_decides() -> None:
    assert draw(1, 12, 5, 1) == draw(1, 12, 5, 1)
    assert draw(1, 12, 5, 1) != draw(2, 12, 5, 1)


@given(st.integers(), st.integers(2, 30))
def test_kills_at_steps_hit_both_weaker_modes(seed: int, kills: int) -> None:
    points = [kill.point for kill in draw(seed, 12, kills, 1, at_steps=True).worker]
    steps = [point.partition("@")[0] for point in points]
    assert set(steps) >= set(DANGEROUS)
    assert steps.count("") == kills // 3, "every third at a random moment"
    for point in filter(None, points):
        assert NTH[0] <= int(point.partition("@")[2].partition("=")[0]) <= NTH[1]
        failpoints.parse(point)  # the worker understands it


def test_the_brokers_kill_comes_in_any_place() -> None:
    places = {
        sum(kill.at_s < plan.broker[0] for kill in plan.worker) for plan in (draw(s, 12, 5, 1) for s in range(99))
    }
    assert places == set(range(6))

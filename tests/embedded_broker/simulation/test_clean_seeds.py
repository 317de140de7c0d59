"""Whole runs of the broker in simulated time, of many seeds in a row, in which nothing goes wrong."""

from __future__ import annotations

import pytest

from embedded_broker.simulation.run import simulate
from tests.budget import budget

SEEDS, PARTS = budget(8, 10_000), budget(8, 400)
"""Of a part are seeds in a row, so that a run that went half the way has looked at all seeds below some number."""
pytestmark = pytest.mark.tier("default")


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_goes_wrong(part: int) -> None:
    count = SEEDS // PARTS
    found, events = {}, 0
    for seed in range(part * count, (part + 1) * count):
        result = simulate(seed)
        assert result.crashes > 0
        events += result.events
        if result.violations:
            found[seed] = result.violations
    assert found == {}
    assert events > 100 * count, "some seeds draw one short workload; most are long"

"""A run that takes long on a slow disk is waited for; one in which nothing happens any more hangs."""

from __future__ import annotations

import asyncio

import pytest

from embedded_broker.simulation import world
from embedded_broker.simulation.history import ViolationKind
from embedded_broker.simulation.producer_workload import ProducerWorkload
from embedded_broker.simulation.run import simulate
from embedded_broker.simulation.world import DEADLINE_S, STALLED_S

pytestmark = pytest.mark.tier("full")
SLOW = (150, 228, 335, 345)
"""Seeds with fsyncs of up to 0.2 s: their transactions, one after the other, take about `DEADLINE_S`."""
SHORT_S = 20.0
"""A deadline that all of them miss by far, however many steps a request takes: that moves the end of a run by half a
minute."""


@pytest.mark.tier("long")
@pytest.mark.parametrize("seed", SLOW)
def test_a_run_that_goes_on_is_waited_for(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "DEADLINE_S", SHORT_S)
    result = simulate(seed)
    assert result.violations == ()
    assert SHORT_S + STALLED_S < result.virtual_s < DEADLINE_S + STALLED_S


def test_a_run_in_which_nothing_is_acknowledged_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(_: ProducerWorkload) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(ProducerWorkload, "work", work)
    result = simulate(0)
    assert [(each.kind, each.detail) for each in result.violations] == [
        (ViolationKind.BROKEN, f"the work isn't done after {DEADLINE_S + STALLED_S:.0f} s")
    ]

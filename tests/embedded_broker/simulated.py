"""Runs a test in simulated time."""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

from embedded_broker.simulation.loop import SimulatedLoop

T = TypeVar("T")


def simulated(work: Coroutine[Any, Any, T]) -> T:
    """Run in simulated time: nothing expires because this machine is busy."""
    loop = SimulatedLoop(Random(1), 0.0)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()

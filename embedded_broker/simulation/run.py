"""One simulated run: a broker that crashes, clients that don't give up, a network in between; all from one seed."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from embedded_broker.simulation.history import Kind, Violation
from embedded_broker.simulation.keeping import Keeping
from embedded_broker.simulation.loop import SimulatedLoop, Stuck
from embedded_broker.simulation.schedule import Play, Schedule
from embedded_broker.simulation.sharing import Sharing
from embedded_broker.simulation.world import Drama, World
from embedded_broker.simulation.writing import Writing

DRAMAS: Mapping[Play, Callable[[World], Drama]] = {Play.WRITING: Writing, Play.SHARING: Sharing, Play.KEEPING: Keeping}


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run."""

    seed: int
    plays: tuple[str, ...]
    violations: tuple[Violation, ...]
    digest: str
    """Of everything that happened: the same for the same seed."""
    events: int
    crashes: int
    virtual_s: float
    lines: tuple[str, ...]
    """The last events."""


@contextmanager
def _no_collector() -> Iterator[None]:
    """Cycles of the dead are not collected while the others live: their finalisers would run in between."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _ToTrace(logging.Handler):
    """What a broker logs is an event as any other."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.trace.note(self._world.loop.now_s, record.getMessage())


@contextmanager
def _logging_to(world: World) -> Iterator[None]:
    log, handler = logging.getLogger("embedded_broker"), _ToTrace(world)
    before, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before


def simulate(seed: int) -> Result:
    """Run the schedule of a seed. What is wrong with the broker stands in the result; raises only for a bug in here."""
    schedule = Schedule.of(seed)
    loop = SimulatedLoop(Random(f"{seed} threads"), schedule.disk_delay_s_max)
    world: list[World] = []

    async def main() -> None:
        it = World(seed, loop, schedule)
        world.append(it)
        with _logging_to(it):
            await it.run([DRAMAS[play](it) for play in schedule.plays])

    with _no_collector():
        try:
            loop.run_until_complete(main())
        except Stuck as error:
            world[0].history.found(Kind.BROKEN, f"not done after {loop.now_s:.0f} s: {error!r}")
        it = world[0]
        for failure in loop.failures:
            it.history.found(Kind.BROKEN, failure)
        result = Result(
            seed,
            tuple(schedule.plays),
            tuple(it.history.violations),
            it.trace.digest,
            it.trace.events,
            it.machine.crashes,
            loop.now_s,
            tuple(it.trace.lines),
        )
        for process in (*it.machine.processes, *it.groups):
            loop.kill(process)
            loop.bury(process)
        loop.close()
    return result

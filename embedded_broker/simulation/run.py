"""`simulate` runs the schedule of one seed: called by the command `simulate` and by tests."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from embedded_broker.simulation.admin_workload import AdminWorkload
from embedded_broker.simulation.durability_workload import DurabilityWorkload
from embedded_broker.simulation.group_workload import GroupWorkload
from embedded_broker.simulation.history import Violation, ViolationKind
from embedded_broker.simulation.loop import Deadlock, SimulatedLoop
from embedded_broker.simulation.producer_workload import ProducerWorkload
from embedded_broker.simulation.retention_workload import RetentionWorkload
from embedded_broker.simulation.schedule import RunSchedule, WorkloadKind
from embedded_broker.simulation.world import Workload, World

WORKLOADS: Mapping[WorkloadKind, Callable[[World], Workload]] = {
    WorkloadKind.PRODUCERS: ProducerWorkload,
    WorkloadKind.GROUPS: GroupWorkload,
    WorkloadKind.RETENTION: RetentionWorkload,
    WorkloadKind.ADMIN: AdminWorkload,
    WorkloadKind.DURABILITY: DurabilityWorkload,
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of one run."""

    seed: int
    workloads: tuple[str, ...]
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
    """Collect no cycles of the dead while the others live: their finalisers would run in between."""
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


def simulate(seed: int) -> RunResult:
    """Run the schedule of a seed. What is wrong with the broker stands in the result; raises only for a bug in here."""
    schedule = RunSchedule.of(seed)
    random, syncs_pause = Random(f"{seed} threads"), schedule.sync_s_max > 0
    loop = SimulatedLoop(random, schedule.disk_delay_s_max, schedule.step_s_max, syncs_pause=syncs_pause)
    world: list[World] = []

    async def main() -> None:
        it = World(seed, loop, schedule)
        world.append(it)
        with _logging_to(it):
            await it.run([WORKLOADS[kind](it) for kind in schedule.workloads])

    with _no_collector():
        try:
            loop.run_until_complete(main())
        except Deadlock as error:
            world[0].history.found(ViolationKind.BROKEN, f"not done after {loop.now_s:.0f} s: {error!r}")
        it = world[0]
        for failure in loop.failures:
            it.history.found(ViolationKind.BROKEN, failure)
        result = RunResult(
            seed,
            tuple(schedule.workloads),
            tuple(it.history.violations),
            it.trace.digest,
            it.trace.events,
            it.machine.crashes,
            loop.now_s,
            tuple(it.trace.lines),
        )
        for process in (*it.machine.processes, *it.groups):
            loop.kill(process)
            loop.discard_tasks(process)
        loop.close()
    return result

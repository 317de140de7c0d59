"""What happens in one failover under load: everything is drawn from a seed. Times are seconds since the load began."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random

from replicator.failover.steps import DONE, RUN, FailoverStep

HOOKS = {FailoverStep.ON_FREEZE, FailoverStep.ON_VERDICT}
STEPS = (*(step.failpoint for step in RUN if step not in HOOKS), "failover_write", DONE)


class Fault(Enum):
    """What befalls the flow."""

    WORKER_DIES = "a worker is killed"
    WORKER_RESTARTS = "a worker is killed, and another one started"
    WORKER_STANDS_STILL = "a worker is stopped until the failover is over"
    WORKER_PAUSES = "a worker is stopped for two seconds"
    SOURCE_RESTARTS = "the source is killed and restarted"
    SOURCE_DIES = "the source is killed, and restarted when the failover is over"
    TARGET_RESTARTS = "the target is killed and restarted"
    LEFT_OPEN = "a transaction is left open at the source"


WEIGHTS = {
    Fault.WORKER_DIES: 3,
    Fault.WORKER_RESTARTS: 2,
    Fault.WORKER_STANDS_STILL: 3,
    Fault.WORKER_PAUSES: 2,
    Fault.SOURCE_RESTARTS: 2,
    Fault.SOURCE_DIES: 4,
    Fault.TARGET_RESTARTS: 3,
}
OF_WORKERS = {Fault.WORKER_DIES, Fault.WORKER_RESTARTS, Fault.WORKER_STANDS_STILL, Fault.WORKER_PAUSES}
OF_SOURCE = {Fault.SOURCE_RESTARTS, Fault.SOURCE_DIES}


@dataclass(frozen=True, slots=True)
class Kill:
    """Of the command: at a step, or so long after its start."""

    step: str
    after_s: float


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A consumer group at the source.

    Attributes:
        protocol: `classic` or `consumer`.
        most: how many records it consumes.
        every: how many it consumes before it commits.
        pause_s: after each commit.
    """

    protocol: str
    most: int
    every: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """All that is drawn. `records`: that stand in each partition before the load; `partitions`: of both topics."""

    seed: int
    partitions: tuple[int, int]
    records: int
    engine: str
    lanes: int
    workers: int
    writers: int
    pause_s: float
    group: GroupPlan
    interval_ms: int
    failover_s: float
    faults: tuple[tuple[float, Fault], ...]
    kills: tuple[Kill, ...]
    undo: bool

    def has(self, *faults: Fault) -> bool:
        """Whether one of these happens."""
        return any(fault in faults for _, fault in self.faults)

    @classmethod
    def draw(cls, seed: int) -> FailoverPlan:
        """The plan of a seed."""
        draw = Random(f"failover {seed}")  # small numbers alone give draws that are alike
        failover_s = draw.uniform(0.5, 4.0)
        return cls(
            seed=seed,
            partitions=(draw.randint(1, 4), draw.randint(1, 2)),
            records=draw.choice((0, 20, 200, 1_000)),
            engine=draw.choice(("records", "batches")),
            lanes=draw.randint(1, 4),
            workers=draw.choice((1, 1, 2, 3)),
            writers=draw.randint(1, 3),
            pause_s=draw.choice((0.01, 0.05, 0.2)),
            group=GroupPlan(
                draw.choice(("classic", "consumer")),
                draw.choice((30, 150, 400, 10**9)),
                draw.choice((1, 7, 50)),
                draw.choice((0.0, 0.02, 0.1)),
            ),
            interval_ms=draw.choice((100, 200, 500)),
            failover_s=failover_s,
            faults=_faults(draw, failover_s),
            kills=tuple(
                Kill(draw.choice(("", draw.choice(STEPS))), draw.uniform(0.2, 1.5))
                for _ in range(draw.choice((0, 0, 1, 2)))
            ),
            undo=draw.random() < 0.4,
        )


def _faults(draw: Random, failover_s: float) -> tuple[tuple[float, Fault], ...]:
    """None, or a few, most of them before the failover or soon after it has begun. The source dies once."""
    found = list[tuple[float, Fault]]()
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        (fault,) = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if fault in OF_SOURCE and any(it in OF_SOURCE for _, it in found):
            continue
        near = draw.random() < 0.5
        at_s = failover_s + draw.uniform(-0.3, 0.8) if near else draw.uniform(0.0, failover_s)
        found.append((max(0.0, at_s), fault))
    found += [(draw.uniform(0.0, failover_s), Fault.LEFT_OPEN) for _ in range(draw.choice((0, 0, 1, 2)))]
    return tuple(sorted(found, key=lambda it: it[0]))

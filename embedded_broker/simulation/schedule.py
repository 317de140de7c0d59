"""The schedule of a run, derived from its seed: network conditions, faults and workloads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from embedded_broker.simulation.network import NetworkConditions

KILL = -1
"""Instead of a number of operations until the power fails: only the process is killed."""
CRASH_TARGETS = (
    *("end_txn",) * 4,
    "produce",
    "txn_offset_commit",
    "offset_commit",
    "sync_group",
    "consumer_group_heartbeat",
)


class WorkloadKind(StrEnum):
    """What clients do in a run."""

    PRODUCERS = "producers"
    """Idempotent and transactional producers, readers, a copier."""
    GROUPS = "groups"
    """Consumers share a topic in groups of both protocols."""
    RETENTION = "retention"
    """Compaction and retention work while others write and read."""


KINDS_BY_SEED = (
    (WorkloadKind.PRODUCERS,),
    (WorkloadKind.GROUPS,),
    (WorkloadKind.RETENTION,),
    (WorkloadKind.PRODUCERS, WorkloadKind.GROUPS, WorkloadKind.RETENTION),
)
"""By the seed's remainder."""


@dataclass(frozen=True, slots=True)
class TargetedCrash:
    """A crash when the broker gets the `count`-th request of an API, or a client gets its `count`-th response."""

    api: str
    count: int
    on_request: bool
    operations: int
    """Of the disk until the power goes, or KILL."""


@dataclass(frozen=True, slots=True)
class DiskFullPeriod:
    """From `at_s` on, for `lasts_s`, the disk has space for only `bytes_left` more."""

    at_s: float
    lasts_s: float
    bytes_left: int


@dataclass(frozen=True, slots=True)
class FailedSync:
    """One fsync fails, after `operations` that succeed."""

    at_s: float
    operations: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """All parameters of one run."""

    workloads: tuple[WorkloadKind, ...]
    conditions: NetworkConditions
    client_timeout_s: float
    disk_delay_s_max: float
    crashes: tuple[tuple[float, int], ...]
    """(seconds, operations of the disk until the power goes, or KILL)."""
    targeted_crashes: tuple[TargetedCrash, ...]
    disk_full: DiskFullPeriod | None
    failed_sync: FailedSync | None
    batches: int
    """Of each plain producer."""
    transactions: int
    """Of each transactional producer."""
    takeover_s: float
    """When a second holder of a transactional id appears."""

    @classmethod
    def of(cls, seed: int) -> Schedule:
        """The same for the same seed, always."""
        random = Random(f"{seed} schedule")
        is_good = random.random() < 0.2
        conditions = NetworkConditions(
            random.choice((0.002, 0.01, 0.05)),
            8.0,
            0.0 if is_good else random.choice((0.0, 0.005, 0.02)),
            random.choice((0.0, 0.2)),
            0.0 if is_good else random.choice((0.0, 0.01, 0.03)),
        )
        crashes = [(random.uniform(0.05, 5.0), _operations(random)) for _ in range(random.randint(1, 6))]
        targeted_crashes = [_targeted_crash(random) for _ in range(random.randint(2, 5))]
        full = DiskFullPeriod(random.uniform(0.3, 3.0), random.uniform(0.5, 6.0), random.randrange(1_000))
        failed = FailedSync(random.uniform(0.3, 3.0), random.randrange(20))
        return cls(
            KINDS_BY_SEED[seed % len(KINDS_BY_SEED)],
            conditions,
            random.choice((1.0, 5.0)),
            random.choice((0.005, 0.05, 0.2)),
            tuple(sorted(crashes)),
            tuple(targeted_crashes),
            full if random.random() < 0.35 else None,
            failed if random.random() < 0.25 else None,
            random.randint(10, 40),
            random.randint(5, 20),
            random.uniform(0.1, 2.0),
        )


def _targeted_crash(random: Random) -> TargetedCrash:
    api, count, on_request = random.choice(CRASH_TARGETS), random.randint(1, 15), random.random() < 0.5
    # What a request leads to on the disk comes within few operations.
    return TargetedCrash(api, count, on_request, random.randrange(1, 10) if on_request else _operations(random))


def _operations(random: Random) -> int:
    return random.choice((KILL, 0, 0, random.randrange(1, 40)))

"""The schedule of a run, derived from its seed: network conditions, faults and workloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from embedded_broker.config.settings import Fsync
from embedded_broker.simulation import settings
from embedded_broker.simulation.network import NetworkConditions

KILL, STOP, FAIL_SYNC = -1, -2, -3
"""Instead of a number of operations until the power fails: the process is killed, or stopped cleanly, or the next fsync
of data fails."""
CRASH_TARGETS = (
    *("end_txn",) * 4,
    "produce",
    "txn_offset_commit",
    "offset_commit",
    "sync_group",
    "consumer_group_heartbeat",
)


LOG_START = "log start"
"""In the place of an API: that the start of any log is raised."""


class WorkloadKind(StrEnum):
    """What clients do in a run."""

    PRODUCERS = "producers"
    """Idempotent and transactional producers, readers, a copier."""
    GROUPS = "groups"
    """Consumers share a topic in groups of both protocols."""
    RETENTION = "retention"
    """Compaction and retention work while others write and read."""
    ADMIN = "admin"
    """Administrators change topics, configs, ACLs, users and quotas, and leave before they are answered."""
    DURABILITY = "durability"
    """Producers without any promise but that of the fsync mode."""


SYNCS_OF_A_REQUEST = 12
"""As many as it may have to wait for, if not longer: a client with less patience would hardly ever get on."""
STEPS_S_MAX = {False: (0.0, 0.0001, 0.001), True: (0.0, 0.00002, 0.0002)}
"""By whether several workloads share the event loop."""
FSYNC_MODES = {
    False: (*(Fsync.ALWAYS,) * 6, Fsync.INTERVAL, Fsync.NEVER),
    True: (Fsync.ALWAYS, *(Fsync.INTERVAL,) * 3, *(Fsync.NEVER,) * 2),
}
"""By whether the workload is about them."""
KINDS_BY_SEED = (
    (WorkloadKind.PRODUCERS,),
    (WorkloadKind.GROUPS,),
    (WorkloadKind.RETENTION, WorkloadKind.ADMIN),
    (WorkloadKind.PRODUCERS, WorkloadKind.GROUPS, WorkloadKind.RETENTION, WorkloadKind.ADMIN),
    (WorkloadKind.DURABILITY,),
)
"""By the seed's remainder."""


@dataclass(frozen=True, slots=True)
class TargetedCrash:
    """A crash when the broker gets the `count`-th request of an API, or a client gets its `count`-th response (of Fetch
    only those with records count), or when the start of a log has been raised for the `count`-th time."""

    api: str
    count: int
    on_request: bool
    operations: int
    """Of the disk until the power goes, or KILL, STOP or FAIL_SYNC."""


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
    of_data: bool
    """Whether syncs of small files, which are far more, don't count."""


@dataclass(frozen=True, slots=True)
class RunSchedule:
    """All parameters of one run."""

    workloads: tuple[WorkloadKind, ...]
    conditions: NetworkConditions
    client_timeout_s: float
    disk_delay_s_max: float
    step_s_max: float
    """How long one iteration of the event loop takes at most, of broker and clients."""
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
    sync_s_max: float
    """How long an fsync takes at most."""
    clock_steps: tuple[tuple[float, int], ...]
    """(seconds, ms by which the clock on the wall is ahead from then on)."""
    segment_ms: int | None
    """Of topics that nothing removes records from; None: the usual one."""
    settings: Mapping[str, Any]
    """Of BrokerConfig."""

    @property
    def power_fails(self) -> bool:
        """Whether power cuts are among the crashes; else the process is killed in their place.

        A weaker fsync mode admits that a power cut takes what was acknowledged: the usual clients then can't be
        promised anything. What the mode does promise, the durability workload checks.
        """
        return self.settings["fsync"] is Fsync.ALWAYS or WorkloadKind.DURABILITY in self.workloads

    @classmethod
    def of(cls, seed: int) -> RunSchedule:
        """Draw a schedule, always the same for the same seed."""
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
        failed = FailedSync(random.uniform(0.3, 3.0), random.randrange(10), random.random() < 0.7)
        workloads = KINDS_BY_SEED[seed % len(KINDS_BY_SEED)]
        if workloads == (WorkloadKind.PRODUCERS,):
            targeted_crashes += _power_cuts_at_fetches(Random(f"{seed} power cuts at fetches"))
            targeted_crashes += _power_cuts_at_commits(Random(f"{seed} power cuts at commits"))
            targeted_crashes += _power_cuts_at_acks(Random(f"{seed} power cuts at acknowledgements"))
            targeted_crashes += _failed_syncs_of_records(Random(f"{seed} failed syncs of records"))
        if WorkloadKind.PRODUCERS in workloads:
            targeted_crashes += _crashes_at_log_starts(Random(f"{seed} crashes at log starts"))
        if WorkloadKind.DURABILITY in workloads:
            crashes += _kills_and_power_cuts(Random(f"{seed} kills and power cuts"))
            targeted_crashes += _failed_syncs_of_records(Random(f"{seed} failed syncs of records"))
        client_timeout_s, disk_delay_s_max = random.choice((1.0, 5.0)), random.choice((0.005, 0.05, 0.2))
        numbers = random.randint(10, 40), random.randint(5, 20)
        takeover_s, sync_s_max = random.uniform(0.1, 2.0), random.choice((0.0, 0.01, 0.05, 0.2))
        return cls(
            workloads,
            conditions,
            max(client_timeout_s, disk_delay_s_max + SYNCS_OF_A_REQUEST * sync_s_max),
            disk_delay_s_max,
            Random(f"{seed} steps").choice(STEPS_S_MAX[len(workloads) > 1]),
            tuple(sorted(crashes)),
            tuple(targeted_crashes),
            full if random.random() < 0.35 else None,
            failed if random.random() < 0.35 else None,
            *numbers,
            takeover_s,
            sync_s_max,
            tuple(_clock_steps(random)) if random.random() < 0.5 else (),
            random.choice((None, 50, 500)),
            settings.draw(Random(f"{seed} settings"), random.choice(FSYNC_MODES[WorkloadKind.DURABILITY in workloads])),
        )


def _power_cuts_at_fetches(random: Random) -> Iterator[TargetedCrash]:
    """Draw power cuts at fetches: what a reader has just been given must be there when the power is back."""
    for _ in range(3):
        yield TargetedCrash("fetch", random.randint(1, 100), False, 0)


def _power_cuts_at_commits(random: Random) -> Iterator[TargetedCrash]:
    """Draw power cuts at commits: between the first and the last that a commit writes are few operations of the
    disk.
    """
    for _ in range(3):
        yield TargetedCrash("end_txn", random.randint(1, 15), True, random.randint(1, 6))


def _power_cuts_at_acks(random: Random) -> Iterator[TargetedCrash]:
    """Draw power cuts at acknowledgements: what was just acknowledged, perhaps appended during the fsync before, must
    have had an fsync of its own.
    """
    for _ in range(random.randint(1, 4)):
        yield TargetedCrash("produce", random.randint(1, 60), False, 0)


def _failed_syncs_of_records(random: Random) -> Iterator[TargetedCrash]:
    """Draw failures of the fsync after a request that writes records. What it was to secure can be read after the
    restart, and producers send it again; a later power cut takes it unless it was written again before.
    """
    for _ in range(random.randint(1, 3)):
        yield TargetedCrash("produce", random.randint(1, 60), True, FAIL_SYNC)


def _crashes_at_log_starts(random: Random) -> Iterator[TargetedCrash]:
    """Draw crashes at log starts: what a compaction has written again is all that there is now."""
    for _ in range(random.randint(2, 5)):
        yield TargetedCrash(LOG_START, random.randint(1, 40), False, random.choice((KILL, 0, random.randrange(1, 5))))


def _kills_and_power_cuts(random: Random) -> Iterator[tuple[float, int]]:
    """Draw kills with power cuts after them: what a kill leaves with the operating system, a start finds, and the power
    takes before anything else is synced unless the start has seen to it."""
    for _ in range(random.randint(1, 4)):
        at_s = random.uniform(0.3, 6.0)
        yield at_s, KILL
        yield at_s + random.uniform(0.2, 1.5), 0


def _clock_steps(random: Random) -> Iterator[tuple[float, int]]:
    """Draw steps of the clock: small corrections, and large ones; never as large as what a record's timestamp may be
    ahead of the broker's.
    """
    for _ in range(random.randint(1, 4)):
        yield random.uniform(0.1, 15.0), random.choice((1, -1)) * random.choice((50, 5_000, 1_500_000))


def _targeted_crash(random: Random) -> TargetedCrash:
    api, count, on_request = random.choice(CRASH_TARGETS), random.randint(1, 15), random.random() < 0.5
    # What a request leads to on the disk comes within few operations.
    return TargetedCrash(api, count, on_request, random.randrange(1, 10) if on_request else _operations(random))


def _operations(random: Random) -> int:
    return random.choice((KILL, STOP, 0, 0, random.randrange(1, 40)))

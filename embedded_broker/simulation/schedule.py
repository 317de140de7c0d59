"""What a seed stands for, besides every single delay: the weather, the disasters, and which plays are given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from embedded_broker.simulation.network import Weather

KILL = -1
"""Instead of a number of operations until the power goes: only the process dies."""
AMBUSHED = (
    *("end_txn",) * 4,
    "produce",
    "txn_offset_commit",
    "offset_commit",
    "sync_group",
    "consumer_group_heartbeat",
)


class Play(StrEnum):
    """What clients do in a run."""

    WRITING = "writing"
    """Idempotent and transactional producers, readers, a copier."""
    SHARING = "sharing"
    """Consumers share a topic in groups of both protocols."""
    KEEPING = "keeping"
    """Compaction and retention work while others write and read."""


PLAYBILL = (
    (Play.WRITING,),
    (Play.SHARING,),
    (Play.KEEPING,),
    (Play.WRITING, Play.SHARING, Play.KEEPING),
)
"""Seed by seed, over and over."""


@dataclass(frozen=True, slots=True)
class Ambush:
    """A crash at the moment that the broker gets the `count`-th request of an API, or a client that answer."""

    api: str
    count: int
    on_request: bool
    operations: int
    """Of the disk until the power goes, or KILL."""


@dataclass(frozen=True, slots=True)
class FullDisk:
    """For a while the disk takes only `bytes_left` more."""

    at_s: float
    lasts_s: float
    bytes_left: int


@dataclass(frozen=True, slots=True)
class FailedSync:
    """An fsync reports an error, once, after `operations` that don't."""

    at_s: float
    operations: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Of one seed."""

    plays: tuple[Play, ...]
    weather: Weather
    client_timeout_s: float
    disk_delay_s_max: float
    crashes: tuple[tuple[float, int], ...]
    """(seconds, operations of the disk until the power goes, or KILL)."""
    ambushes: tuple[Ambush, ...]
    full_disk: FullDisk | None
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
        is_calm = random.random() < 0.2
        weather = Weather(
            random.choice((0.002, 0.01, 0.05)),
            8.0,
            0.0 if is_calm else random.choice((0.0, 0.005, 0.02)),
            random.choice((0.0, 0.2)),
            0.0 if is_calm else random.choice((0.0, 0.01, 0.03)),
        )
        crashes = [(random.uniform(0.05, 5.0), _operations(random)) for _ in range(random.randint(1, 6))]
        ambushes = [_ambush(random) for _ in range(random.randint(2, 5))]
        full = FullDisk(random.uniform(0.3, 3.0), random.uniform(0.5, 6.0), random.randrange(1_000))
        failed = FailedSync(random.uniform(0.3, 3.0), random.randrange(20))
        return cls(
            PLAYBILL[seed % len(PLAYBILL)],
            weather,
            random.choice((1.0, 5.0)),
            random.choice((0.005, 0.05, 0.2)),
            tuple(sorted(crashes)),
            tuple(ambushes),
            full if random.random() < 0.35 else None,
            failed if random.random() < 0.25 else None,
            random.randint(10, 40),
            random.randint(5, 20),
            random.uniform(0.1, 2.0),
        )


def _ambush(random: Random) -> Ambush:
    api, count, on_request = random.choice(AMBUSHED), random.randint(1, 15), random.random() < 0.5
    # What a request leads to on the disk comes within few operations.
    return Ambush(api, count, on_request, random.randrange(1, 10) if on_request else _operations(random))


def _operations(random: Random) -> int:
    return random.choice((KILL, 0, 0, random.randrange(1, 40)))

"""The schedule of kills, drawn from a seed. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

HEAD_S = 1.0  # the first kill comes after this
AT_WORK_S = (0.05, 0.5)  # how long a worker has committed before it is killed
NTH = (3, 12)  # at which arrival at its step a worker kills itself
DANGEROUS = ("after_end_txn", "before_end_txn")
"""Failpoints at which the weaker modes fail. After the end of the transaction at_most_once has committed the position
and not yet written the records: they are lost. Before it at_least_once has written the records and not yet committed
the position: they are written again. exactly_once has nothing between the two."""


@dataclass(frozen=True, slots=True)
class WorkerKill:
    """One SIGKILL of the worker.

    With a `point` (EOS_FAILPOINTS) it kills itself there; without, the demo kills it `at_s` seconds after the load has
    begun, but not before it has been committing for `at_work_s`.
    """

    at_s: float
    at_work_s: float
    point: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """All kills of a run, each list in order of time; moments are seconds from the start of the flow of data."""

    worker: tuple[WorkerKill, ...]
    broker: tuple[float, ...]


def draw(seed: int, seconds: float, kills: int, broker_kills: int, at_steps: bool = False) -> Schedule:
    """Spread the kills over `seconds` in random order, one in each of as many slots of time.

    `at_steps`: of three kills in a row the first two come at the steps in `DANGEROUS`, the third at a moment.
    """
    chance = random.Random(seed)
    victims = ["worker"] * kills + ["broker"] * broker_kills
    chance.shuffle(victims)
    slot_s = max(0.0, seconds - HEAD_S) / max(1, len(victims))
    moments = [HEAD_S + slot_s * (slot + chance.random()) for slot in range(len(victims))]
    workers = [at_s for at_s, victim in zip(moments, victims, strict=True) if victim == "worker"]
    return Schedule(
        tuple(
            WorkerKill(at_s, chance.uniform(*AT_WORK_S), _point(number, chance) if at_steps else "")
            for number, at_s in enumerate(workers)
        ),
        tuple(at_s for at_s, victim in zip(moments, victims, strict=True) if victim == "broker"),
    )


def _point(number: int, chance: random.Random) -> str:
    nth = chance.randint(*NTH)
    return f"{DANGEROUS[number % 3]}@{nth}=kill" if number % 3 < len(DANGEROUS) else ""

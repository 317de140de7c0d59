"""Applications that read and write topics, drawn by a seed, and which topics they couple."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

from replicator.coupling.sets import CoupledSet

Pairs = set[frozenset[str]]


@dataclass
class Application:
    """A producer, transactional or not, and the groups for which it reads."""

    transactional_id: str
    producer_ids: list[int]
    writes: set[str]
    reads: dict[str, set[str]] = field(default_factory=dict)

    @property
    def topics(self) -> set[str]:
        return self.writes.union(*self.reads.values())


class Graph:
    """Drawn by a seed."""

    def __init__(self, seed: int, prefix: str = "") -> None:
        """`prefix`: of all names."""
        random = Random(seed)
        self.topics = [f"{prefix}t{number}" for number in range(random.randint(2, 14))]
        groups = [f"{prefix}g{number}" for number in range(random.randint(1, 4))]
        ids = iter(range(100, 1000))
        self.applications: list[Application] = []
        for number in range(random.randint(0, 3)):
            reads: dict[str, set[str]] = {}
            for group in random.sample(groups, random.choice((1, 1, 1, min(2, len(groups))))):
                reads[group] = set(random.sample(self.topics, random.choice((1, 1, 2))))
            own = [next(ids) for _ in range(random.choice((1, 1, 2)))]
            writes = set(random.sample(self.topics, random.choice((0, 1, 1, 2))))
            self.applications.append(Application(f"{prefix}loop-{number}", own, writes, reads))
        for number in range(random.randint(0, 3)):
            writes = set(random.sample(self.topics, random.choice((1, 2, 2))))
            self.applications.append(Application(f"{prefix}tx-{number}", [next(ids)], writes))
        self.plain = [
            Application("", [next(ids)], set(random.sample(self.topics, min(3, len(self.topics))))) for _ in range(3)
        ]

    def pairs(self) -> Pairs:
        """All coupled pairs: joined over and over, until nothing changes."""
        sets = [it.topics | set(it.reads) for it in self.applications]
        changed = True
        while changed:
            changed = False
            for one, other in combinations(sets, 2):
                if one & other and one != other:
                    one |= other
                    other |= one
                    changed = True
        return {frozenset(pair) for it in sets for pair in combinations(sorted(it & set(self.topics)), 2)}


def pairs_of(sets: Iterable[CoupledSet]) -> Pairs:
    """The pairs that were found."""
    return {frozenset(pair) for it in sets for pair in combinations(it.topics, 2)}

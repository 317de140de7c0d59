"""Which Kafka each side of a flow runs in the tests on real Kafka.

EOS_SOURCE_KAFKA=3.9 EOS_TARGET_KAFKA=4.3 choose; both may also be a whole version (3.9.1) or an image. A side that
isn't chosen runs EOS_KAFKA_IMAGE, or the version that the project is made for. EOS_TARGET_TRANSACTIONS=1 has a target
that could speak the second transaction protocol (KIP-890) offer the first one only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Side = Literal["source", "target"]
SIDES: tuple[Side, ...] = ("source", "target")
RELEASES = {"3.9": "3.9.1", "4.0": "4.0.0", "4.3": "4.3.0"}
"""The release of each minor version that is tested."""
TRANSACTIONS = {"3.9": (1,), "4.0": (2, 1), "4.3": (2, 1)}
"""The transaction protocols that a target of each version can be had with; the first one is what a new cluster has."""
_FIRST = (("4.3", "4.3"), ("3.9", "4.3"), ("4.3", "3.9"), ("4.0", "4.0"), ("3.9", "3.9"))
"""These go first: they say most."""
TRANSACTIONS_VARIABLE = "EOS_TARGET_TRANSACTIONS"


@dataclass(frozen=True, slots=True)
class VersionPair:
    """Kafka's versions at the source and at the target, and the target's transaction protocol; how many brokers each
    cluster has, and each partition replicas."""

    source: str
    target: str
    transactions: int
    brokers: int = 1

    @property
    def name(self) -> str:
        """What its results are recorded under."""
        brokers = f", {self.brokers} brokers" if self.brokers > 1 else ""
        return f"{self.source} to {self.target}, transactions {self.transactions}{brokers}"

    def environment(self) -> dict[str, str]:
        """The variables that choose it."""
        return {
            "EOS_SOURCE_KAFKA": self.source,
            "EOS_TARGET_KAFKA": self.target,
            TRANSACTIONS_VARIABLE: str(self.transactions),
        }


def _pairs() -> Iterator[VersionPair]:
    others = tuple((source, target) for source in RELEASES for target in RELEASES if (source, target) not in _FIRST)
    order = (*_FIRST, *others)
    for nth in range(2):
        for source, target in order:
            if nth < len(TRANSACTIONS[target]):
                yield VersionPair(source, target, TRANSACTIONS[target][nth])


BROKERS = 3
ON_THREE_BROKERS = tuple(VersionPair(source, target, TRANSACTIONS[target][0], BROKERS) for source, target in _FIRST[:3])
"""Clusters of three brokers, each partition on all of them."""
PAIRS = (*_pairs(), *ON_THREE_BROKERS)
"""All that are tested: with one broker on each side, the most telling ones first, then with three."""


def image(side: Side, default: str, environment: Mapping[str, str] = os.environ) -> str:
    """The image of a side's brokers; `default` where none is chosen."""
    chosen = environment.get(f"EOS_{side.upper()}_KAFKA")
    if not chosen:
        return default
    return chosen if ":" in chosen else f"apache/kafka:{RELEASES.get(chosen, chosen)}"


def target_transactions(environment: Mapping[str, str] = os.environ) -> int | None:
    """The transaction protocol that the target is to offer; None: its own."""
    chosen = environment.get(TRANSACTIONS_VARIABLE)
    return int(chosen) if chosen else None

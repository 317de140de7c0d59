"""How many producers partitions may know: a limit on what clients leave behind in memory. The broker has one.

A producer without a transactional id is known to nobody but the partitions that it has written to, each of which
remembers it for `producer.id.expiration.ms`, a day. Kafka has no bound (KIP-936, not in a release, has one of their
rate). Here the ones that have been idle for long go sooner when there are many, and then new ones are refused.

Invariants
- All together are `producers_max` at most, but for what was there at the start; past it only the broker itself adds
  more, for data that it has taken.
- What clients of one address have brought since the start is three quarters of it at most, and what came by one
  connection a quarter: the rest is for others.
"""

from __future__ import annotations

import sys
from collections import Counter

from embedded_broker.state.owners import SOMEBODY, Owner

UNBOUNDED = sys.maxsize
SOONER = ((0.875, 600_000), (0.75, 3_600_000))
"""From what part of a share on, how long a producer may be idle (ms)."""


class ProducerQuota:
    """Producers of all partitions by who has brought them; one that is known to two partitions counts twice."""

    def __init__(self, producers_max: int = UNBOUNDED) -> None:
        """`producers_max`: in all."""
        self._max = producers_max
        self._by_owner: Counter[Owner] = Counter()
        self._by_address: Counter[str] = Counter()
        self.total = 0

    @property
    def is_full(self) -> bool:
        """Whether nobody may add one."""
        return self.total >= self._max

    def fits(self, owner: Owner) -> bool:
        """Return whether a client may have a partition remember one more."""
        return not self.is_full and (
            owner == SOMEBODY
            or (self._by_owner[owner] < self._max // 4 and self._by_address[owner.address] < self._max - self._max // 4)
        )

    def add(self, owner: Owner) -> None:
        """Count one more."""
        self.total += 1
        self._by_owner[owner] += 1
        self._by_address[owner.address] += 1

    def remove(self, owner: Owner) -> None:
        """Count one less."""
        self.total -= 1
        self._by_owner[owner] -= 1
        if not self._by_owner[owner]:
            del self._by_owner[owner]
        self._by_address[owner.address] -= 1
        if not self._by_address[owner.address]:
            del self._by_address[owner.address]

    def idle_ms_max(self, owner: Owner, usual_ms: int) -> int:
        """Return how long those of an owner may be idle now."""
        used = self.total / self._max
        if owner != SOMEBODY:
            used = max(used, self._by_owner[owner] * 4 / self._max, self._by_address[owner.address] * 4 / 3 / self._max)
        return min(usual_ms, next((idle_ms for part, idle_ms in SOONER if used >= part), usual_ms))

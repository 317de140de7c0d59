"""A limit on what clients leave behind in memory, long after they have gone: committed offsets, transactional ids.

Used by `OffsetManager` and `TransactionCoordinator`. Nothing that is kept is taken away: what is new is refused. So
clients that leave much can't harm those who were there.

Invariants
- All together hold `bytes_max` at most, but for what was there at the start.
- What clients of one address have brought since the start holds three quarters of it at most, and what came by one
  connection a quarter: the rest is for others. It counts for who has brought it, whoever has begun what it is in: so
  nobody spends the part of another, and what was there at the start is nobody's way around their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from embedded_broker.state.counting import add
from embedded_broker.state.owners import SOMEBODY, Owner


class MemoryQuota:
    """Bytes by what they are kept for, and by who has brought it."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: in all."""
        self._bytes_max = bytes_max
        self._held: dict[str, dict[Owner, int]] = {}
        self._by_owner: Counter[Owner] = Counter()
        self._by_address: Counter[str] = Counter()
        self.total_bytes = 0

    def has(self, key: str) -> bool:
        """Return whether anything is kept under `key`."""
        return key in self._held

    def fits(self, owner: Owner, more_bytes: int) -> bool:
        """Return whether a client may leave so many bytes more. What takes no more than what it replaces always
        fits.
        """
        if more_bytes <= 0:
            return True
        if self.total_bytes + more_bytes > self._bytes_max:
            return False
        return owner == SOMEBODY or (
            self._by_owner[owner] + more_bytes <= self._bytes_max // 4
            and self._by_address[owner.address] + more_bytes <= self._bytes_max * 3 // 4
        )

    def note(self, key: str, held: Mapping[Owner, int], own_bytes: int = 0) -> None:
        """Note that under `key` are so many bytes now, by who has brought them; nothing removes it.

        `own_bytes`: of what is kept, beside that; they count for the first of those.
        """
        now = {owner: size for owner, size in held.items() if size}
        if now:
            now[next(iter(now))] += own_bytes
        before = self._held.pop(key, {})
        if now:
            self._held[key] = now
        if now != before:
            self._count(before, -1)
            self._count(now, 1)

    def _count(self, held: Mapping[Owner, int], times: int) -> None:
        for owner, size in held.items():
            self.total_bytes += times * size
            add(self._by_owner, owner, times * size)
            add(self._by_address, owner.address, times * size)

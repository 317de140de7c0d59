"""A limit on what clients leave behind in memory, long after they have gone: committed offsets, transactional ids.

Used by `OffsetManager` and `TransactionCoordinator`. Nothing that is kept is taken away: what is new is refused. So
clients that leave much can't harm those who were there.

Invariants
- All together hold `bytes_max` at most, but for what was there at the start.
- What clients of one address have brought since the start holds three quarters of it at most, and what came by one
  connection a quarter: the rest is for others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TypeVar

from embedded_broker.state.owners import SOMEBODY, Owner

Key = TypeVar("Key", bound=Hashable)


class MemoryQuota:
    """Bytes by what they are kept for, and by who has brought it."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: in all."""
        self._bytes_max = bytes_max
        self._held: dict[str, tuple[Owner, int]] = {}
        self._by_owner: Counter[Owner] = Counter()
        self._by_address: Counter[str] = Counter()
        self.total_bytes = 0

    def has(self, key: str) -> bool:
        """Whether anything is kept under `key`."""
        return key in self._held

    def fits(self, key: str, owner: Owner, more_bytes: int) -> bool:
        """Whether a client may leave so many bytes more under `key`, which count for who has brought the first of them.
        Fewer always fit."""
        owner = self._held[key][0] if key in self._held else owner
        if more_bytes <= 0:
            return True
        if self.total_bytes + more_bytes > self._bytes_max:
            return False
        return owner == SOMEBODY or (
            self._by_owner[owner] + more_bytes <= self._bytes_max // 4
            and self._by_address[owner.address] + more_bytes <= self._bytes_max * 3 // 4
        )

    def note(self, key: str, now_bytes: int, owner: Owner = SOMEBODY) -> None:
        """Under `key` are so many bytes now; 0 removes it. They count for who has brought the first of them."""
        owner, before = self._held.pop(key, (owner, 0))
        if now_bytes:
            self._held[key] = owner, now_bytes
        self.total_bytes += now_bytes - before
        _add(self._by_owner, owner, now_bytes - before)
        _add(self._by_address, owner.address, now_bytes - before)


def _add(counter: Counter[Key], key: Key, more: int) -> None:
    """So that what is 0 isn't in it."""
    counter[key] += more
    if not counter[key]:
        del counter[key]

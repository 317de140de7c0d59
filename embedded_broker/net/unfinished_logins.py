"""Bounds the connections whose client isn't known yet: in a TLS handshake, or before the end of a login by SASL.

Each costs the broker up to 60 KiB, and its client nothing. `Server` has one `UnfinishedLogins`.

Invariants
- There are at most `most` of them, and at most half of those of one address, so that no client can keep those at other
  addresses out.
- Beyond that the oldest one gives way to a newcomer: of its own address, or else of the address that has most. One
  younger than `GRACE_S` only gives way to an address that has less than half as many; otherwise the newcomer is closed.
  So a client that logs in without delay succeeds, however many logins others begin and leave.
- A connection whose client is known is none of these: it never gives way.

OpenSSH (`MaxStartups`) and Linux (half-open TCP connections) bound in the same way what isn't known yet; Kafka doesn't.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

GRACE_S = 2.0
"""Longer than a login takes over a slow network, TLS handshake and SCRAM included."""


class UnknownClient(Protocol):
    """A connection whose client isn't known."""

    @property
    def client_host(self) -> str:
        """Its address."""
        ...

    def shed(self, what: str) -> None:
        """Close it at once; `what` is the reason, in words."""


C = TypeVar("C", bound=UnknownClient)


class UnfinishedLogins(Generic[C]):
    """All of one broker."""

    def __init__(self, most: Callable[[], int], most_of_one: int = 0) -> None:
        """`most`: how many there may be now; `most_of_one`: of one address, 0 for half of all."""
        self._most, self._most_of_one = most, most_of_one
        self._begun_s = dict[str, dict[C, float]]()  # by address, the oldest first
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def refuse(self, address: str, now_s: float) -> str:
        """Make room for one more of an address: why there is none, or an empty text."""
        most = max(1, self._most())
        most_of_one = min(self._most_of_one or max(1, most - most // 2), most)
        own = len(self._begun_s.get(address, ()))
        if own >= most_of_one:
            return self._give_way(address, now_s, f"its address has {own} unfinished logins")
        if self._total < most:
            return ""
        most_crowded = max(self._begun_s, key=lambda each: len(self._begun_s[each]))
        if len(self._begun_s[most_crowded]) > 2 * (own + 1):
            now_s = float("inf")
        return self._give_way(most_crowded, now_s, f"there are {self._total} unfinished logins")

    def _give_way(self, address: str, now_s: float, why: str) -> str:
        oldest, begun_s = next(iter(self._begun_s[address].items()))
        if now_s - begun_s < GRACE_S:
            return why
        self.end(oldest)
        oldest.shed(f"unfinished login: {why}, and this was the oldest")
        return ""

    def begin(self, connection: C, now_s: float) -> None:
        """Count one more, for which there is room."""
        self._begun_s.setdefault(connection.client_host, {})[connection] = now_s
        self._total += 1

    def end(self, connection: C) -> None:
        """Note that the client is known now, or has left; nothing happens when that was told before."""
        of_address = self._begun_s.get(connection.client_host, {})
        if of_address.pop(connection, None) is not None:
            self._total -= 1
            if not of_address:
                del self._begun_s[connection.client_host]

"""How many connections there may be, of one address too, and how fast they may come; `Server` asks for each new one.

Invariants
- A connection that was taken is never closed by a limit that is lowered later.
- Above `max.connection.creation.rate` a connection waits for its turn unread, at most `WAITING_MAX` of them; above
  the rate of its address it is closed after a moment. A burst of `BURST_S` times the rate passes at once.

Source: Kafka `ConnectionQuotas`, KIP-402, KIP-612.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from embedded_broker.metadata.dynamic_configs import ConnectionLimits

BURST_S = 10.0
"""Kafka measures a rate over eleven samples of a second, of which one is incomplete."""
WAITING_MAX = 50
"""Kafka leaves those that wait in the queue of the socket, `socket.listen.backlog.size`."""
REFUSAL_S_MAX = 1.0
"""For how long a connection above its address's rate is held before it is closed, so that its client comes back later.
Kafka: `quota.window.size.seconds`."""
ADDRESSES_MAX = 1_000
"""Before those are forgotten that have come slowly."""


class Turn(NamedTuple):
    """What becomes of a new connection."""

    refusal: str = ""
    """Why it is closed; empty: it isn't."""
    wait_s: float = 0.0
    """Until it is read, or closed."""


TAKEN = Turn()


class ConnectionQuotas:
    """Counts the connections of one broker."""

    def __init__(
        self, limits: Callable[[], ConnectionLimits], rate_of: Callable[[str], float | None], files_max: int
    ) -> None:
        """
        Args:
            limits: those that hold now.
            rate_of: the quota `connection_creation_rate` of an address; None: it has none.
            files_max: how many sockets there may be, whatever the limits say.
        """
        self._limits, self._rate_of, self._files_max = limits, rate_of, files_max
        self._by_address = Counter[str]()
        self._total = 0
        self._due_s = 0.0  # when all that have come would have come at the rate
        self._due_s_of = dict[str, float]()

    @property
    def most(self) -> int:
        """How many connections there may be now."""
        return min(self._limits().most, self._files_max)

    def of(self, address: str) -> int:
        """Return how many an address has."""
        return self._by_address[address]

    def take(self, address: str, now_s: float) -> Turn:
        """Count a new connection; call `gone` for it later, unless it is refused at once."""
        limits, most = self._limits(), self.most
        if self._total >= most:
            return Turn(f"there are {most} connections already")
        most_of_one = limits.most_of(address, most)
        if self._by_address[address] >= most_of_one:
            return Turn(f"its address has {most_of_one} connections already")
        turn = self._turn_of(address, now_s)
        if not turn.refusal and limits.rate is not None:
            turn = self._turn(limits.rate, now_s)
        if not turn.refusal or turn.wait_s:
            self._by_address[address] += 1
            self._total += 1
        return turn

    def gone(self, address: str) -> None:
        """Note that a connection that was counted has closed."""
        self._total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _turn_of(self, address: str, now_s: float) -> Turn:
        """Return the turn by the rate of the address."""
        rate = self._rate_of(address)
        if rate is None:
            return TAKEN
        due_s = max(self._due_s_of.get(address, 0.0), now_s)
        if (wait_s := due_s + 1 / rate - now_s - BURST_S) > 0:
            return Turn(f"more than {rate:g} connections come from its address in a second", min(wait_s, REFUSAL_S_MAX))
        self._due_s_of[address] = due_s + 1 / rate
        if len(self._due_s_of) > ADDRESSES_MAX:
            self._due_s_of = {each: due_s for each, due_s in self._due_s_of.items() if due_s > now_s}
        return TAKEN

    def _turn(self, rate: int, now_s: float) -> Turn:
        """Return the turn by the rate of all."""
        due_s = max(self._due_s, now_s)
        wait_s = max(0.0, due_s + 1 / rate - now_s - BURST_S)
        if wait_s * rate > WAITING_MAX:
            return Turn(f"more than {rate} connections come in a second, and {WAITING_MAX} wait already")
        self._due_s = due_s + 1 / rate
        return Turn(wait_s=wait_s)

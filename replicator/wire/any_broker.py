"""Questions that any broker of a cluster can answer, asked of one that lives: no dead or frozen one holds them up.

One connection is kept. A broker that can't be reached, closes the connection or doesn't answer for `ATTEMPT_S` is left
for the next one and avoided for a while. Used by `topics` and `offsets`.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

from replicator.backoff import Backoff
from replicator.config import Cluster
from replicator.model.errors import ReplicatorError, Unreachable, Unsupported
from replicator.wire.access import access
from replicator.wire.connection import Address, Connection, ConnectionLost, address_of
from replicator.wire.response_limits import BadResponse

ATTEMPT_S, ATTEMPT_S_MAX = 1.0, 4.0
"""How long one broker may take, to connect or to answer; doubled whenever none of them has answered in time, for a slow
line."""
AVOIDED_S = 60.0
AGAIN_FIRST_S, AGAIN_MAX_S = 0.1, 0.5  # after all of them have refused
RESPONSE_BYTES_MAX = 2**28

BrokerRequest = Callable[[Connection], bytes]
"""Writes a request for a connection, whose versions it asks for."""
_THROTTLE_AT, _BODY_AT = 1, 5  # behind the tagged fields of the response's header, of which there are none


def body_at(data: bytes, connection: Connection | None = None) -> int:
    """Return where a response goes on behind its header and its throttle time, which `connection` takes note of.

    Raises BadResponse.
    """
    if len(data) < _BODY_AT or data[0] != 0:
        raise BadResponse("a response without its header")
    if connection is not None:
        connection.throttled_s = int.from_bytes(data[_THROTTLE_AT:_BODY_AT], "big") / 1000
    return _BODY_AT


class AnyBroker:
    """Asks one broker at a time. Used by one thread; a later question connects again after `close`."""

    def __init__(self, cluster: Cluster, client_id: str, kept_s: float = math.inf, *, features: bool = False) -> None:
        """`kept_s`: after so long another broker is asked. `features`: as of `Connection`. Raises Unsupported (a login
        that isn't spoken here), ConfigError."""
        self._kept_s, self._since_s, self._features = kept_s, 0.0, features
        self._access, self._client_id = access(cluster), client_id
        self._bootstrap = [address_of(text) for text in cluster.bootstrap_servers]
        self._known: list[Address] = []
        self._avoided: dict[Address, float] = {}  # until when, monotonic
        self._attempt_s = ATTEMPT_S
        self._connection: Connection | None = None
        self._address: Address | None = None
        self._tried: set[Address] = set()  # since one has answered
        self._leave = False  # for another broker
        self._backoff = Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
        self.last: ReplicatorError | None = None
        """Why the last broker that was tried didn't answer; None once one has."""

    def learn(self, brokers: list[Address]) -> None:
        """Take the brokers of the cluster, as one of them has told."""
        self._known = brokers

    def ask(self, request: BrokerRequest) -> Question:
        """Send a question; returns at once if there is a connection, and otherwise within `ATTEMPT_S`.

        After a broker that did not answer it is sent where the answer is waited for: each attempt to connect takes its
        time.
        """
        asked = Question(self, request)
        if self._connection is not None or self.last is None:
            asked.send()
        return asked

    def connection(self) -> Connection:
        """Return the connection that there is, or a new one to the next broker.

        Raises ConnectionLost: that one can't be reached. Unreachable: the login is refused. Unsupported.
        """
        if self._connection is not None and (self._connection.expired or self._kept_for_long or self._leave):
            self.close()
        self._leave = False
        if self._connection is None:
            address = self._next()
            self._tried.add(address)
            deadline_s = time.monotonic() + self._attempt_s
            try:
                made = Connection(
                    address,
                    self._access,
                    self._client_id,
                    deadline_s=deadline_s,
                    response_bytes_max=RESPONSE_BYTES_MAX,
                    features=self._features,
                )
            except ConnectionLost:
                self._avoided[address] = time.monotonic() + AVOIDED_S
                raise
            self._connection, self._address, self._since_s = made, address, time.monotonic()
        return self._connection

    def another(self) -> None:
        """Have another broker asked next, if there is one: the answer of this one was of no help."""
        self._leave = len({*self._known, *self._bootstrap}) > 1

    @property
    def _kept_for_long(self) -> bool:
        return time.monotonic() >= self._since_s + self._kept_s

    def _next(self) -> Address:
        """Choose any of those that aren't avoided, then those for which that ends soonest; the last one only if there
        is no other."""
        all_ = list(dict.fromkeys([*self._known, *self._bootstrap]))
        if not all_:
            raise Unreachable(f"cluster {self._access.cluster!r}: bootstrap.servers names no address")
        now_s = time.monotonic()
        left = [address for address in all_ if address not in self._tried]
        if not left:
            self._tried.clear()
            self._attempt_s = min(ATTEMPT_S_MAX, 2 * self._attempt_s)
            left = all_
        random.shuffle(left)
        return min(left, key=lambda address: (max(now_s, self._avoided.get(address, 0.0)), address == self._address))

    @property
    def exhausted(self) -> bool:
        """Whether all brokers that are known have failed since one has answered."""
        return self._tried >= {*self._known, *self._bootstrap}

    def pause_s(self) -> float:
        """Return how long to wait before the next one is tried, after one has failed."""
        return self._backoff.next_s() if self.exhausted else 0.0

    @property
    def patience_s(self) -> float:
        """How long the broker may take for an answer."""
        return self._attempt_s

    def lost(self, connection: Connection, error: ReplicatorError) -> None:
        """Close `connection`, which is of no use any more, and avoid its broker."""
        self.last = error
        if connection is self._connection:
            if self._address is not None:
                self._avoided[self._address] = time.monotonic() + AVOIDED_S
                self._tried.add(self._address)
            self.close()

    def answered(self) -> None:
        """Note that a broker has answered."""
        if self._tried or self.last is not None:
            self._tried.clear()
            self._attempt_s, self.last = ATTEMPT_S, None
            self._backoff.reset()
            if self._address is not None:
                self._avoided.pop(self._address, None)

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Question:
    """One question, asked of one broker after the other until one answers."""

    def __init__(self, brokers: AnyBroker, request: BrokerRequest) -> None:
        self._brokers, self._request = brokers, request
        self._sent: tuple[Connection, int] | None = None
        self._give_up_s = self._not_before_s = 0.0
        self.answer: bytes | None = None
        """The response behind its correlation id."""
        self.connection: Connection | None = None
        """From which it came."""
        self.failed: ReplicatorError | None = None
        """Why no broker will answer: a login that is refused, a version that isn't spoken."""

    def send(self) -> None:
        """Send it to the broker that is connected, or to the next one."""
        brokers, connection = self._brokers, None
        try:
            connection = brokers.connection()
            self._sent = connection, connection.send(self._request(connection), time.monotonic() + brokers.patience_s)
            self._give_up_s = time.monotonic() + brokers.patience_s + connection.throttled_s
        except ConnectionLost as error:
            self._lost(connection, error)
        except (Unreachable, Unsupported) as error:
            brokers.close()
            self.failed = brokers.last = error

    def _lost(self, connection: Connection | None, error: ReplicatorError) -> None:
        """Give up a connection, and wait before the next one. `connection`: None if none was made."""
        if connection is not None:
            self._brokers.lost(connection, error)
        self._sent, self._brokers.last = None, error
        self._not_before_s = time.monotonic() + self._brokers.pause_s()

    def poll(self, timeout_s: float) -> bool:
        """Wait so long at most, and for a connection besides; whether there is an answer, or never will be."""
        deadline_s = time.monotonic() + timeout_s
        while self.answer is None and self.failed is None:
            now_s = time.monotonic()
            if self._sent is None:
                if timeout_s <= 0:  # who doesn't want to wait doesn't want to connect either
                    break
                if self._not_before_s > now_s:
                    time.sleep(max(0.0, min(self._not_before_s, deadline_s) - now_s))
                if self._not_before_s <= time.monotonic():
                    self.send()
            else:
                self._receive(min(deadline_s, self._give_up_s))
            if time.monotonic() >= deadline_s:
                break
        return self.answer is not None or self.failed is not None

    def _receive(self, deadline_s: float) -> None:
        assert self._sent is not None
        connection, number = self._sent
        try:
            self.answer = connection.receive(number, deadline_s)
        except ConnectionLost as error:
            self._lost(connection, error)
        except (Unreachable, Unsupported) as error:
            self._brokers.lost(connection, error)
            self.failed = error
        else:
            self.connection = connection
            if self.answer is not None:
                self._brokers.answered()
            elif time.monotonic() >= self._give_up_s:
                self._lost(connection, ConnectionLost(f"{connection.where}: no answer in time"))

"""The brokers of one cluster: connections to them by node and purpose, and questions that any of them answers.

Used by `reader` and `writer`. What a broker is asked for one purpose waits for nothing that it is asked for another: a
fetch may wait for records, and a commit stands behind no batches.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from dataclasses import dataclass

from replicator.config import Cluster
from replicator.model.errors import ReplicatorError, Unreachable
from replicator.planes.batches.part_read import ToldBy
from replicator.planes.batches_io.link import AnswerLate, BrokerLink, framed
from replicator.planes.batches_io.loop import LinkLoop
from replicator.wire import metadata_response
from replicator.wire.access import Access
from replicator.wire.any_broker import body_at
from replicator.wire.connection import Address, Connection, address_of
from replicator.wire.metadata_request import metadata_request
from replicator.wire.metadata_response import Metadata

ATTEMPT_S = 4.0
"""How long a broker that others could stand in for may take to connect, or to answer."""
OUT_S = 10.0
"""How long `any` leaves out a broker that couldn't be connected to, or didn't answer, while others are left: a frozen
one takes `ATTEMPT_S` each time that it is its turn, and the look-up waits."""
NAMED_S = 3600.0
"""How long a broker that was named beside others may know better than one that names itself alone, as one does that was
cut off while the others were down. Brokers that have been taken out of the cluster count no longer than that."""
_AGAIN_S, _AGAIN_S_MAX = 0.02, 1.0
DATA, COORDINATION, ANY = "data", "coordination", "any"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """How the brokers of a cluster are reached. `connect_s`: how long one may take to connect and to log in."""

    cluster: Cluster
    access: Access
    client_id: str
    response_bytes_max: int
    connect_s: float


@dataclass(slots=True)
class _Attempts:
    not_before_s: float = 0.0
    again_s: float = _AGAIN_S


class Brokers:
    """Of one cluster, for one lane."""

    def __init__(self, settings: BrokerSettings, loop: LinkLoop, told: Callable[[str], None]) -> None:
        """`told` takes, for the log, why a connection has ended."""
        self._settings, self._loop, self._told = settings, loop, told
        self._bootstrap = [address_of(text) for text in settings.cluster.bootstrap_servers]
        self._addresses: dict[int, Address] = {}
        self._links: dict[tuple[str, Address], BrokerLink] = {}
        self._attempts: dict[tuple[str, Address], _Attempts] = {}
        self._turn = self._bootstrap[0]  # whom `any` asks; or whoever stands behind, once it isn't known any more
        self._out_until_s: dict[Address, float] = {}  # monotonic
        self._named_s: dict[Address, float] = {}  # when one broker of several was named last, monotonic
        self.last: ReplicatorError | None = None
        """Why the last connection that ended did; None once a broker has answered since."""

    def learn(self, brokers: dict[int, Address]) -> None:
        """Take the brokers of the cluster, as one of them has told."""
        if brokers:
            self._addresses = dict(brokers)
        if len(brokers) > 1:
            self._named_s.update(dict.fromkeys(brokers.values(), time.monotonic()))

    def learn_one(self, node: int, address: Address) -> None:
        """Take the address of one broker."""
        self._addresses[node] = address

    def link(self, node: int, purpose: str) -> BrokerLink | None:
        """Return the connection to a broker, which may have to be made first; None: there is none to be had now."""
        address = self._addresses.get(node)
        return None if address is None else self._link(address, purpose)

    def _link(self, address: Address, purpose: str) -> BrokerLink | None:
        key, now_s = (purpose, address), time.monotonic()
        found = self._links.get(key)
        if found is not None and found.error is None and found.expired(now_s) and not found.waiting:
            found.lose(Unreachable(f"{found.where}: the login has to be renewed"))
        elif found is not None and found.error is not None:
            self._ended(key, found)
            found = None
        if found is not None and found.error is None:
            if found.ready:
                self._attempts.pop(key, None)
            return found
        attempts = self._attempts.setdefault(key, _Attempts())
        if now_s < attempts.not_before_s:
            return None
        return self._connect(key)

    def _ended(self, key: tuple[str, Address], link: BrokerLink) -> None:
        del self._links[key]
        attempts = self._attempts.setdefault(key, _Attempts())
        purpose, address = key
        if purpose == ANY and (link.socket is None or isinstance(link.error, AnswerLate)):
            self._out_until_s[address] = time.monotonic() + OUT_S
        if link.ended_requests:
            attempts.again_s = _AGAIN_S
        attempts.not_before_s = time.monotonic() + attempts.again_s * random.uniform(0.5, 1.0)
        attempts.again_s = min(_AGAIN_S_MAX, 2 * attempts.again_s)
        if self.last is None or str(self.last) != str(link.error):
            self._told(str(link.error))
        self.last = link.error

    def _connect(self, key: tuple[str, Address]) -> BrokerLink:
        settings, (purpose, address) = self._settings, key
        where = f"cluster {settings.cluster.name!r}, broker {address[0]}:{address[1]}"
        link = self._links[key] = BrokerLink(address, where, settings.response_bytes_max)
        patience_s = min(settings.connect_s, ATTEMPT_S) if purpose == ANY else settings.connect_s

        def connect() -> Connection:
            return Connection(
                address,
                settings.access,
                settings.client_id,
                deadline_s=time.monotonic() + patience_s,
                response_bytes_max=settings.response_bytes_max,
                features=True,
            )

        self._loop.open(link, connect)
        return link

    def any(self) -> BrokerLink | None:
        """Return a connection to any broker; after one that has failed, to the next one. None: all have, just now."""
        for address in self._in_turn():
            link = self._link(address, ANY)
            if link is not None:
                self._turn = address
                return link
        return None

    @property
    def _all(self) -> list[Address]:
        """In one order, so that each has its turn whoever has told of them."""
        others = () if len(self._addresses) > 1 else self._named_s
        return sorted({*self._addresses.values(), *self._bootstrap, *others})

    def _in_turn(self) -> list[Address]:
        """Return whom to ask first, and then: those that are out come last."""
        all_, now_s = self._all, time.monotonic()
        at = bisect_left(all_, self._turn)
        return sorted([*all_[at:], *all_[:at]], key=lambda address: self._out_until_s.get(address, 0.0) > now_s)

    def another(self, than: Address) -> None:
        """Have another broker asked next. One that is cut off from the controllers answers all the same, for ever with
        what it knew last."""
        if self._turn == than:
            all_ = self._all
            self._turn = all_[bisect_right(all_, than) % len(all_)]

    def ask_topics(
        self, topics: Collection[str], answered: Callable[[Metadata, ToldBy], bool], lost: Callable[[str], None]
    ) -> None:
        """Ask any broker for these topics, with all leaders. `answered` says whether that was of any help: if not,
        another broker is asked next. `lost` takes why there is no answer: maybe at once."""
        link, client_id, asked = self.any(), self._settings.client_id, sorted(topics)
        if link is None:
            lost(str(self.last))
            return

        def take(link: BrokerLink, data: bytes | bytearray) -> None:
            version = link.version("metadata", metadata_response.VERSIONS[1])
            found = metadata_response.read(bytes(data), body_at(bytes(data[:5])), version, leaders=True)
            self.last = None
            self.learn(found.brokers)
            if not answered(found, ToldBy(link.address, self._voters())):
                self.another(link.address)

        link.ask(
            lambda link, number: framed(metadata_request(link, client_id, asked), number),
            take,
            lambda error: lost(str(error)),
            time.monotonic() + ATTEMPT_S + (0 if link.ready else ATTEMPT_S),
        )

    def _voters(self) -> frozenset[Address]:
        """Return all who may know better than one that answers: not only those that it names itself."""
        since_s = time.monotonic() - NAMED_S
        self._named_s = {address: named_s for address, named_s in self._named_s.items() if named_s >= since_s}
        return frozenset({*self._addresses.values(), *self._named_s})

    def hurry(self, node: int, why: str) -> None:
        """End the connection for records to a broker that is asked for what it doesn't lead any more."""
        address = self._addresses.get(node)
        link = None if address is None else self._links.get((DATA, address))
        if link is not None:
            link.lose(Unreachable(f"{link.where}: {why}"))

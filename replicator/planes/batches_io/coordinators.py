"""The two coordinators of a lane on the target, and what is asked of them. Used by `writer`.

Each request of the producer session is sent to whoever coordinates the transactional id, or the position group; found
anew where an answer says that it is another one, or none comes. A request has one answer or is lost; it is never sent
twice by this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from replicator.model.errors import ReplicatorError, Unsupported
from replicator.model.partition import Committed, Partition
from replicator.planes.batches.answer_classes import AnswerClass, TxnApi, classify_answer
from replicator.planes.batches.session import TxnFailure, TxnRequest
from replicator.planes.batches.txn_protocol import TxnProtocol, version_of
from replicator.planes.batches_io.brokers import ATTEMPT_S, COORDINATION, Brokers
from replicator.planes.batches_io.link import BrokerLink, Pieces, framed
from replicator.wire import protocol, transaction_requests
from replicator.wire.connection import Address
from replicator.wire.protocol import SPOKEN
from replicator.wire.transaction_requests import Coordinated, TransactionOf

_GROUP, _TRANSACTION = 0, 1
_ONE_KEY = 3  # version of FindCoordinator; later ones have several keys at a time
_AGAIN_S, _AGAIN_S_MAX = 0.02, 0.5

OnAnswer = Callable[[Coordinated], None]
OnLost = Callable[[str], None]
OnDenied = Callable[[AnswerClass, int], None]
"""Takes why no coordinator can be found, as FindCoordinator says, where waiting doesn't help."""


@dataclass(slots=True)
class _Coordinator:
    """`node` -1: to be looked up. `told_by`: the broker that has said which one it is. `denied`: what the last look-up
    was answered, where waiting doesn't help."""

    key: str
    key_type: int
    node: int = -1
    looking: bool = False
    not_before_s: float = 0.0
    again_s: float = _AGAIN_S
    told_by: Address | None = None
    denied: TxnFailure | None = None
    waiting: list[tuple[TxnRequest, OnAnswer, OnLost, OnDenied]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TransactionTerms:
    """Whose transactions they are, and their timeout."""

    transactional_id: str
    group: str
    client_id: str
    timeout_ms: int


class Coordinators:
    """Of one producer session."""

    def __init__(self, terms: TransactionTerms, brokers: Brokers) -> None:
        self._terms, self._brokers = terms, brokers
        self._of_id = _Coordinator(terms.transactional_id, _TRANSACTION)
        self._of_group = _Coordinator(terms.group, _GROUP)
        self.protocol = TxnProtocol.V1
        self.offsets: list[Mapping[Partition, Committed]] = []
        """Of TxnOffsetCommit, by part."""
        self.why = ""
        """Why the last attempt to reach one of them has failed; empty once one has answered."""

    def _whose(self, api: TxnApi) -> _Coordinator:
        return self._of_group if api is TxnApi.TXN_OFFSET_COMMIT else self._of_id

    def denied(self, api: TxnApi) -> TxnFailure | None:
        """Return why the coordinator for an API's requests can't be found, where waiting doesn't help: as it was told
        since `forget_denied`."""
        return self._whose(api).denied

    def forget_denied(self, api: TxnApi) -> None:
        """Let nothing count that was told before: a right that was missing may be back, as the next look-up says."""
        self._whose(api).denied = None

    def look_up(self, api: TxnApi) -> None:
        """Have the coordinator for this request found anew, after a pause."""
        whose = self._whose(api)
        self._denied_by(whose)
        self._pause(whose)

    def _denied_by(self, whose: _Coordinator) -> None:
        """Look a coordinator up that isn't there, or isn't one: not at the broker that has named it."""
        whose.node = -1
        if whose.told_by is not None:
            self._brokers.another(whose.told_by)

    def _pause(self, whose: _Coordinator) -> None:
        whose.not_before_s = max(whose.not_before_s, time.monotonic() + whose.again_s)
        whose.again_s = min(_AGAIN_S_MAX, 2 * whose.again_s)

    def send(self, request: TxnRequest, answered: OnAnswer, lost: OnLost, denied: OnDenied) -> None:
        """Send a request as soon as its coordinator is known and connected. Exactly one of the three is called."""
        self._whose(request.api).waiting.append((request, answered, lost, denied))

    def drop(self) -> None:
        """Forget what hasn't been sent."""
        for whose in (self._of_id, self._of_group):
            whose.waiting.clear()

    def wake_s(self, now_s: float) -> float:
        """Say in how many seconds there may be something to send."""
        waits = [
            each.not_before_s - now_s for each in (self._of_id, self._of_group) if each.waiting and not each.looking
        ]
        return max(0.0, min([*waits, 1.0]))

    def ready_link(self, api: TxnApi) -> BrokerLink | None:
        """Return the connection to the coordinator of an API's requests; None while there is none: it is looked up and
        connected to meanwhile."""
        whose, now_s = self._whose(api), time.monotonic()
        link = self._brokers.link(whose.node, COORDINATION) if whose.node >= 0 else None
        if link is None and whose.node >= 0:
            self.why = str(self._brokers.last or "it isn't known where the coordinator is")
            self._denied_by(whose)
            self._pause(whose)
        if whose.node < 0 and not whose.looking and now_s >= whose.not_before_s:
            self._look(whose)
        return link if link is not None and link.ready else None

    def terms_of_cluster(self) -> tuple[Mapping[str, int], Mapping[TxnApi, tuple[int, int]]] | None:
        """Return the target's finalized features, and the versions that both sides speak of each API, as the
        coordinator of the id says; None while it isn't connected. Raises Unsupported."""
        link = self.ready_link(TxnApi.END_TXN)
        if link is None:
            return None
        names = [api.name.lower() for api in TxnApi]
        return link.features, {
            api: (SPOKEN[name][1], link.version(name)) for api, name in zip(TxnApi, names, strict=True)
        }

    def pump(self, now_s: float, until_s: float) -> None:
        """Send what can be sent now; `until_s`: when an answer is given up."""
        for whose in (self._of_id, self._of_group):
            if not whose.waiting or whose.looking or now_s < whose.not_before_s:
                continue
            link = self._brokers.link(whose.node, COORDINATION) if whose.node >= 0 else None
            if whose.node < 0:
                self._look(whose)
            elif link is None:
                self.why = str(self._brokers.last or "it isn't known where the coordinator is")
                self._denied_by(whose)
                self._pause(whose)
            elif link.ready and now_s >= link.quiet_until_s:
                ready, whose.waiting = whose.waiting, []
                for request, answered, lost, _ in ready:
                    self._send(whose, link, request, answered, lost, until_s)

    def _look(self, whose: _Coordinator) -> None:
        link = self._brokers.any()
        if link is None:
            self.why = str(self._brokers.last)
            self._pause(whose)
            return
        whose.looking = True

        def write(link: BrokerLink, number: int) -> Pieces:
            exchange = protocol.exchange("find_coordinator", link.version("find_coordinator", _ONE_KEY))
            fields = {"key": whose.key, "key_type": whose.key_type}
            return framed(exchange.write(0, self._terms.client_id, fields), number)

        def answered(link: BrokerLink, data: bytes | bytearray) -> None:
            exchange = protocol.exchange("find_coordinator", link.version("find_coordinator", _ONE_KEY))
            _, found = exchange.read(bytes(4) + data)
            whose.looking, whose.told_by, whose.denied = False, link.address, None
            class_ = classify_answer(TxnApi.FIND_COORDINATOR, int(found.error_code))
            if class_ is AnswerClass.DONE:
                whose.node, whose.again_s = found.node_id, _AGAIN_S
                self._brokers.learn_one(found.node_id, (found.host, found.port))
                return
            self.why = f"{link.where}: cannot find the coordinator of {whose.key!r}: {found.error_code.name.upper()}"
            self._pause(whose)
            self._brokers.another(link.address)
            if class_ not in (AnswerClass.RETRY, AnswerClass.LOOK_UP):
                whose.denied = TxnFailure(class_, TxnApi.FIND_COORDINATOR, int(found.error_code), detail=whose.key)
                waiting, whose.waiting = whose.waiting, []
                for *_, denied in waiting:
                    denied(class_, int(found.error_code))

        def lost(error: ReplicatorError) -> None:
            whose.looking, self.why = False, str(error)
            self._pause(whose)

        link.ask(write, answered, lost, time.monotonic() + ATTEMPT_S)

    def _send(
        self, whose: _Coordinator, link: BrokerLink, request: TxnRequest, on_answer: OnAnswer, on_lost: OnLost,
        until_s: float,
    ) -> None:  # fmt: skip
        name, protocol_ = request.api.name.lower(), self.protocol.name

        def version(link: BrokerLink) -> int:
            offered = (SPOKEN[name][1], link.version(name))
            found = version_of(self.protocol, request.api, offered)
            if found is None:
                raise Unsupported(
                    f"{link.where}: it speaks {name} of {offered} only, in transaction protocol {protocol_}"
                )
            return found

        def answered(link: BrokerLink, data: bytes | bytearray) -> None:
            found = transaction_requests.read(name, version(link), bytes(data))
            link.throttle(found.throttled_s, time.monotonic())
            self.why, whose.again_s = "", _AGAIN_S
            on_answer(found)

        def lost(error: ReplicatorError) -> None:
            self.why = str(error)
            self._denied_by(whose)
            self._pause(whose)
            on_lost(str(error))

        link.ask(lambda link, number: framed(self._written(version(link), request), number), answered, lost, until_s)

    def _written(self, version: int, request: TxnRequest) -> bytes:
        terms, of = self._terms, TransactionOf(self._terms.transactional_id, *request.producer)
        client_id = terms.client_id
        match request.api:
            case TxnApi.INIT_PRODUCER_ID:
                return transaction_requests.init_producer_id(client_id, version, of, terms.timeout_ms)
            case TxnApi.ADD_PARTITIONS_TO_TXN:
                return transaction_requests.add_partitions(client_id, version, of, request.partitions)
            case TxnApi.ADD_OFFSETS_TO_TXN:
                return transaction_requests.add_offsets(client_id, version, of, terms.group)
            case TxnApi.TXN_OFFSET_COMMIT:
                offsets = self.offsets[request.part]
                return transaction_requests.commit_offsets(client_id, version, of, terms.group, offsets)
            case _:
                return transaction_requests.end_transaction(client_id, version, of, commit=request.commit)

"""Metadata of brokers that don't all know the same: whoever is cut off from the controllers isn't asked for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast
from unittest.mock import Mock

import pytest

from replicator.kafka.fetch_size import FetchSize
from replicator.model.partition import Partition, Seek
from replicator.planes.batches.answer_classes import TxnApi
from replicator.planes.batches.fetcher_terms import FetcherSettings
from replicator.planes.batches.part_read import ToldBy
from replicator.planes.batches.session import TransactionalSession
from replicator.planes.batches.txn_protocol import TxnProtocol
from replicator.planes.batches_io import producing as producing_module
from replicator.planes.batches_io.brokers import Brokers, BrokerSettings
from replicator.planes.batches_io.budget import FetchBudget
from replicator.planes.batches_io.coordinators import Coordinators, TransactionTerms
from replicator.planes.batches_io.link import BrokerLink
from replicator.planes.batches_io.loop import LinkLoop
from replicator.planes.batches_io.producing import Producing
from replicator.planes.batches_io.reader import LEADERS_AGE_S, ReaderSettings, SourceReader
from replicator.planes.contract import ReadPlan
from replicator.planes.fetch_watch import FetchWatch
from replicator.wire.access import access
from replicator.wire.fetch import FetchLimits
from replicator.wire.metadata_response import Metadata
from tests.replicator.wire.fake_broker import TOPIC, Answer, FakeBroker, Leader, flow_of

pytestmark = pytest.mark.tier("default")  # over sockets
AT = Partition(TOPIC, 0)
LIMIT_S = 10.0


class Broker(Leader):
    """One of two, which both name both: knows who leads since which epoch, and who coordinates."""

    def __init__(self, number: int, cluster: list[FakeBroker]) -> None:
        super().__init__()
        self.number, self.cluster = number, cluster
        self.leader, self.epoch = 0, 5
        self.alone = False
        self.topic: dict[str, Any] = {}

    def answer_metadata(self, request: Any) -> Answer:
        known = [{"node_id": n, "host": "127.0.0.1", "port": each.port} for n, each in enumerate(self.cluster)]
        known = [known[self.number]] if self.alone else known
        return {**self.metadata(self.topic, leader_id=self.leader, leader_epoch=self.epoch), "brokers": known}

    def answer_fetch(self, request: Any) -> Answer:
        return b""  # nothing new

    def answer_find_coordinator(self, request: Any) -> Answer:
        return {"error_code": 0, "node_id": self.leader, "host": "127.0.0.1", "port": self.cluster[self.leader].port}


class Scene:
    """Connections to both; the first one that is asked is `stale`: it knows no more than epoch 5 of leader 0."""

    def __init__(self, stack: ExitStack) -> None:
        self.cluster: list[FakeBroker] = []
        answering = [Broker(number, self.cluster) for number in range(2)]
        self.cluster += [stack.enter_context(FakeBroker(each)) for each in answering]
        self.stale, self.current = answering
        self.loop = LinkLoop()
        stack.callback(self.loop.close)
        flow = flow_of(self.cluster[0])
        settings = BrokerSettings(flow.source, access(flow.source), "me", 1 << 20, 5.0)
        self.brokers = Brokers(settings, self.loop, lambda _: None)

    def turn(self, until: Callable[[], Any]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not until():
            assert time.monotonic() < deadline_s
            self.loop.turn(0.01)

    def asked(self, broker: int) -> int:
        return sum(api in ("metadata", "find_coordinator") for api, _, _ in self.cluster[broker].asked)

    def ask(self, *, helps: bool) -> tuple[Metadata, ToldBy]:
        found: list[tuple[Metadata, ToldBy]] = []

        def answered(metadata: Metadata, told: ToldBy) -> bool:
            found.append((metadata, told))
            return helps

        self.brokers.ask_topics([TOPIC], answered, pytest.fail)
        self.turn(lambda: found)
        return found[0]


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


def test_a_broker_that_helps_is_asked_again_and_one_that_doesnt_is_not(scene: Scene) -> None:
    addresses = [each.address for each in scene.cluster]
    told = [scene.ask(helps=helps)[1] for helps in (True, True, False, True, False, True)]
    assert [addresses.index(cast(tuple[str, int], each.broker)) for each in told] == [0, 0, 0, 1, 1, 0]
    assert all(each.all == set(addresses) for each in told)


def test_a_broker_that_names_itself_alone_does_not_speak_for_all(scene: Scene) -> None:
    """It was cut off while the others were down."""
    scene.stale.alone = True
    assert scene.ask(helps=True)[1].all == {scene.cluster[0].address}, "of a cluster with one broker"
    scene.stale.alone = False
    scene.ask(helps=True)
    scene.stale.alone = True
    assert scene.ask(helps=False)[1].all == {each.address for each in scene.cluster}
    assert scene.ask(helps=True)[1].broker == scene.cluster[1].address


def test_who_leads_is_asked_of_others_where_one_names_an_old_leader_for_ever(scene: Scene) -> None:
    """The leader that it names is itself, and acknowledges nothing."""
    producing = Producing(scene.brokers, "me", "id", 1_000, lambda _: None)
    producing.writes(AT)

    late = cast(TransactionalSession, Mock(unacknowledged={AT: 1}))

    def looked_up() -> bool:
        now_s = time.monotonic()
        with producing.paused():
            producing.pump(cast(TransactionalSession, None), now_s, now_s + LIMIT_S)
        return AT in producing._leaders

    def answered_again() -> None:
        before = scene.asked(0) + scene.asked(1)
        scene.turn(lambda: looked_up() and scene.asked(0) + scene.asked(1) > before and not producing._looking)

    scene.turn(looked_up)
    assert producing._leaders == {AT: 0}
    scene.current.leader, scene.current.epoch = 1, 6
    now_s = time.monotonic()
    for _ in range(3):  # acknowledgements stay late
        now_s += producing_module._STALL_LOOK_S
        producing.stalled(late, now_s)
        answered_again()
    assert producing._leaders == {AT: 1}
    scene.stale.epoch = 4
    producing._unknown.add(TOPIC)
    scene.brokers._turn, before = scene.cluster[0].address, scene.asked(0)
    answered_again()
    assert scene.asked(0) == before + 1
    assert producing._leaders == {AT: 1}, "an older leader is not believed"


def source_reader(scene: Scene) -> SourceReader:
    settings = ReaderSettings(FetcherSettings("east"), FetchLimits(1 << 20, 500), "me", 1 << 20, 5.0)
    return SourceReader(settings, scene.brokers, FetchBudget(1 << 20), FetchWatch("east", FetchSize()))


def test_a_topic_that_one_broker_does_not_know_is_read_once_it_is_sought_again(scene: Scene) -> None:
    """That broker is cut off since before the topic was created. Whoever seeks it again was told of it by others."""
    scene.stale.topic = {"error_code": 3, "partitions": []}
    scene.current.leader = 1
    reader = source_reader(scene)

    def turn(until: Callable[[], bool]) -> None:
        def turned() -> bool:
            reader.pump(time.monotonic())
            return until()

        scene.turn(turned)

    reader.seek({AT: ReadPlan(Seek(0, -1))})
    turn(lambda: AT in reader.take().failed)
    reader.seek({AT: ReadPlan(Seek(0, -1))})
    turn(lambda: any(api == "fetch" for api, _, _ in scene.cluster[1].asked))
    assert not reader.take().failed
    assert [scene.asked(broker) for broker in range(2)] == [1, 1]


def test_an_old_leader_that_answers_is_not_read_for_ever(scene: Scene) -> None:
    """It is cut off from the controllers: there is nothing new in its log, and it says so."""
    reader = source_reader(scene)
    reader.seek({AT: ReadPlan(Seek(0, -1))})

    def read_from(leader: int) -> bool:
        now_s = time.monotonic()
        reader.pump(now_s)
        return reader._fetcher.brokers(now_s) == {leader} and not reader._looking

    scene.turn(lambda: read_from(0))
    scene.current.leader, scene.current.epoch = 1, 6

    def refreshed() -> None:
        before, reader._refresh_s = scene.asked(0) + scene.asked(1), 0.0

        def asked() -> bool:
            reader.pump(time.monotonic())
            return scene.asked(0) + scene.asked(1) > before

        scene.turn(asked)

    refreshed()  # of the stale one
    refreshed()
    scene.turn(lambda: read_from(1))
    assert reader._refresh_s > time.monotonic() + LEADERS_AGE_S / 2


def test_a_coordinator_that_denies_it_is_looked_up_elsewhere(scene: Scene) -> None:
    scene.current.leader = 1
    coordinators = Coordinators(TransactionTerms("id", "group", "me", 1_000), scene.brokers)
    coordinators.protocol = TxnProtocol.V1
    scene.ask(helps=True)

    def found() -> tuple[str, int]:
        links: list[BrokerLink] = []

        def ready() -> bool:
            link = coordinators.ready_link(TxnApi.END_TXN)
            links.extend([] if link is None else [link])
            return bool(links)

        scene.turn(ready)
        return links[0].address

    assert found() == scene.cluster[0].address
    coordinators.look_up(TxnApi.END_TXN)  # NOT_COORDINATOR
    assert found() == scene.cluster[1].address

"""Fixtures of the integration tests: the same tests on the embedded broker and on real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.clients import warm_up
from integration_tests.harness.copying import Copying
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.kafka_container import IMAGE, KafkaContainer, need_kafka
from integration_tests.harness.kafka_tools import KafkaTools
from integration_tests.harness.proxy import Proxy
from integration_tests.harness.secured import Secured, secured_broker
from integration_tests.harness.versions import SIDES, image, target_transactions

MakeCopying = Callable[..., Copying]
IMAGES = {side: image(side, IMAGE) for side in SIDES}
BOTH = [pytest.param("embedded"), pytest.param("kafka", marks=pytest.mark.kafka)]


@dataclass(frozen=True, slots=True)
class Pair:
    """The two clusters of a flow."""

    source: BrokerHandle
    target: BrokerHandle


@pytest.fixture(scope="session", params=BOTH)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Which broker this test runs on. Without Docker real Kafka is skipped; EOS_REQUIRE_KAFKA=1 makes that fail."""
    chosen: Kind = request.param
    if chosen == "kafka":
        need_kafka(*IMAGES.values())
    return chosen


@pytest.fixture(scope="session")
def brokers(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both brokers of the session, started side by side."""
    handles: list[BrokerHandle]
    if kind == "kafka":
        source = KafkaContainer(image=IMAGES["source"])
        handles = [source, KafkaContainer(image=IMAGES["target"], transactions=target_transactions())]
    else:
        root = tmp_path_factory.mktemp("brokers")
        handles = [EmbeddedBroker(root / "source"), EmbeddedBroker(root / "target")]
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(_start, handles))
        yield Pair(*handles)
    finally:
        for handle in handles:
            handle.stop()


def _start(handle: BrokerHandle) -> None:
    handle.start()
    warm_up(handle.bootstrap)


@pytest.fixture(scope="session")
def secured(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A protected broker with the topic `t`, of which nobody but the admin may know."""
    with secured_broker(kind, tmp_path_factory.mktemp("secured")) as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def source(brokers: Pair) -> Iterator[BrokerHandle]:
    """The cluster that flows read. A test that killed it has left it running again, or it is started here."""
    yield from _running(brokers.source)


@pytest.fixture
def target(brokers: Pair) -> Iterator[BrokerHandle]:
    """The cluster that flows write."""
    yield from _running(brokers.target)


@pytest.fixture
def target_tools(target: BrokerHandle) -> Iterator[KafkaTools]:
    """Kafka's command-line tools, for the target."""
    started = KafkaTools(target.bootstrap)
    started.start()
    yield started
    started.stop()


def _running(handle: BrokerHandle) -> Iterator[BrokerHandle]:
    """A broker that ends in a test which hasn't killed it is what the test fails for, whatever else it met."""
    if not handle.alive():
        handle.restart()
    yield handle
    if isinstance(handle, EmbeddedBroker):
        assert not (why := handle.unexpected_end()), why


@pytest.fixture
def proxy(target: BrokerHandle) -> Iterator[Proxy]:
    """A fault-injecting proxy in front of the target."""
    with Proxy(target.bootstrap) as running:
        yield running


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test has used: `unique("orders")` → `orders-3f9a1c2b`."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def make_copying(source: BrokerHandle, target: BrokerHandle, tmp_path: Path) -> Iterator[MakeCopying]:
    """Makes flows from source to target; keywords as of `Copying`. Their processes end with the test."""
    made: list[Copying] = []

    def make(**settings: Any) -> Copying:
        made.append(Copying(source, target, tmp_path, **settings))
        return made[-1]

    yield make
    for copying in made:
        copying.close()

"""On clusters that create topics for whoever asks for them (auto.create.topics.enable, Kafka's default) no client of a
flow asks so: a topic that was deleted stays deleted, and the incident says that it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.conftest import Pair
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.copying import Copying
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.kafka_container import KafkaContainer
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Event
from replicator.model import names

INCIDENT = 4
LONG = pytest.mark.tier("long", kafka="long")
MAP_PARTITIONS = 16


@pytest.fixture(scope="module")
def creating(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two clusters that create topics."""
    handles: list[BrokerHandle]
    if kind == "kafka":
        handles = [KafkaContainer(auto_create=True) for _ in range(2)]
    else:
        root = tmp_path_factory.mktemp("creating")
        handles = [EmbeddedBroker(root / side, "--auto-create") for side in ("source", "target")]
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda handle: handle.start(), handles))
        yield Pair(*handles)
    finally:
        for handle in handles:
            handle.stop()


@pytest.fixture
def copying(creating: Pair, tmp_path: Path) -> Iterator[Copying]:
    """A flow of one topic between them, which is not yet run."""
    made = Copying(creating.source, creating.target, tmp_path)
    yield made
    made.close()


def assert_it_is_made_for_who_asks(bootstrap: str, name: str) -> None:
    """Ask as librdkafka's producers do unless told otherwise."""
    asking = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asking.list_topics(name, timeout=clients.TIMEOUT_S)
    wait_until(lambda: name in clients.topics(bootstrap), f"{name} is made", str)


def says_that_it_is_gone(name: str, event: Event) -> bool:
    """Whether a client has asked for a topic that it knew, and that wasn't there."""
    return event["event"] == "client" and f"Topic {name} " in event["detail"] and "to 0" in event["detail"]


def incident_of_start(copying: Copying) -> dict[str, Any]:
    """Start the flow, which ends with an incident."""
    worker = copying.run()
    found = worker.wait_event("incident")
    assert worker.wait_exit() == INCIDENT, worker.tail()
    return found


@LONG
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_target_topic_that_was_deleted_stays_so(copying: Copying, delivery: str) -> None:
    copying.file.write(delivery=delivery)
    assert_it_is_made_for_who_asks(copying.target, f"{copying.name}.other")
    copying.load.plain(300)
    worker = copying.running()
    copying.wait_positions()
    clients.delete_topic(copying.target, copying.copy)
    copying.load.plain(300)
    found = worker.wait_event("incident", topic=copying.topic)
    assert found["name"] == "target_topic_deleted", found
    assert worker.wait_exit() == INCIDENT, worker.tail()
    assert incident_of_start(copying)["name"] == "target_topic_deleted"
    assert copying.copy not in clients.topics(copying.target)


@LONG
@pytest.mark.parametrize("which", ["control", "claims"])
def test_a_topic_of_the_flow_itself_that_was_deleted_stays_so(copying: Copying, which: str) -> None:
    name = {"control": names.control_topic, "claims": names.claims_topic}[which](copying.name)
    copying.load.plain(300)
    worker = copying.running()
    copying.wait_positions()
    clients.delete_topic(copying.target, name)
    copying.load.plain(300)
    if which == "control":
        worker.wait_event("incident", name="control_topic_lost")
        assert worker.wait_exit() == INCIDENT, worker.tail()
    else:  # nobody reads it before the next start; clients ask for it every ten seconds
        worker.wait_any(partial(says_that_it_is_gone, name), "word of a client that asked for it")
        worker.kill()
    assert name not in clients.topics(copying.target)
    found = incident_of_start(copying)
    assert found["name"] == f"{which}_topic_lost"
    assert name in found["detail"], found
    assert name not in clients.topics(copying.target)


@LONG
def test_the_map_topic_is_made_again_by_the_flow_and_not_by_the_cluster(copying: Copying) -> None:
    copying.file.write(limits={"discovery_interval_ms": 10_000})  # the lane asks for it much sooner
    name = names.offsets_topic(copying.name)
    copying.load.plain(300)
    worker = copying.running()
    copying.wait_positions()
    clients.delete_topic(copying.target, name)
    with copying.writing():
        wait_until(lambda: name in clients.topics(copying.target), "the map topic is there again", worker.tail)
        assert clients.topics(copying.target)[name] == MAP_PARTITIONS
    copying.finish(worker)


@LONG
def test_a_source_topic_that_was_deleted_stays_so(copying: Copying) -> None:
    assert_it_is_made_for_who_asks(copying.source, f"{copying.name}.other")
    copying.load.plain(300)
    worker = copying.running()
    copying.wait_positions()
    clients.delete_topic(copying.source, copying.topic)
    worker.wait_event("incident", name="unknown_source_topic", topic=copying.topic)
    worker.kill()
    assert incident_of_start(copying)["name"] in ("source_topic_deleted", "unknown_source_topic")
    assert copying.topic not in clients.topics(copying.source)

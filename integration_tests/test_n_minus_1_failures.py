"""Of three brokers two are killed, each in the middle of a transaction: what a cluster adds to one broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message
from confluent_kafka.admin import NewTopic

from integration_tests.harness import clients
from integration_tests.harness.broker import POLL_S
from integration_tests.harness.kafka_cluster import KafkaCluster, running

pytestmark = [pytest.mark.kafka, pytest.mark.tier(kafka="full")]

BROKERS = 3
HALF = 10  # records before a transaction's middle, and behind it


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with running(BROKERS) as made:
        yield made


def create(bootstrap: str, topic: str, copies_min: int) -> None:
    """A topic with a copy on each broker; `copies_min` must have a record before it is acknowledged."""
    admin = clients.admin(bootstrap)
    new = NewTopic(topic, 1, BROKERS, config={"min.insync.replicas": str(copies_min)})
    admin.create_topics([new])[topic].result(clients.TIMEOUT_S)
    clients.settle(bootstrap, topic, 1)


def leader(bootstrap: str, topic: str, dead: set[int]) -> int:
    """The living broker that leads the topic's partition."""
    admin = clients.admin(bootstrap)
    deadline = time.monotonic() + clients.TIMEOUT_S
    while time.monotonic() < deadline:
        found: int = admin.list_topics(topic, clients.TIMEOUT_S).topics[topic].partitions[0].leader
        if found != -1 and found not in dead:
            return found
        time.sleep(POLL_S)
    raise AssertionError(f"{topic} has no leader")


def attempt(bootstrap: str, topic: str) -> KafkaError | None:
    """Try to write a record that as many brokers must have as the topic says; the refusal of the topic's leader."""
    errors: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    writer = clients.producer(bootstrap, enable_idempotence=False, retries=0, acks="all")
    deadline = time.monotonic() + clients.TIMEOUT_S
    while time.monotonic() < deadline:
        writer.produce(topic, b"one", partition=0, on_delivery=delivered)
        assert writer.flush(clients.TIMEOUT_S) == 0
        error = errors.pop()
        if error is None or error.code() not in clients.ON_ITS_WAY:
            return error
        time.sleep(POLL_S)  # it was sent to a broker that led the topic until just now
    raise AssertionError(f"{topic} has no leader")


def test_what_is_committed_survives_all_brokers_but_one(cluster: KafkaCluster) -> None:
    bootstrap, dead = cluster.bootstrap, set[int]()
    create(bootstrap, "ledger", 1)
    create(bootstrap, "careful", 2)
    writer = clients.transactional(bootstrap, "writer")
    written: list[bytes] = []

    def write() -> None:
        values = [b"%d" % number for number in range(len(written), len(written) + HALF)]
        clients.put(writer, "ledger", *values)
        written.extend(values)

    for killing in (False, True, False, True, False):
        writer.begin_transaction()
        write()
        if killing:
            dead.add(victim := leader(bootstrap, "ledger", dead))
            cluster.kill(victim)
        write()
        writer.commit_transaction(clients.TIMEOUT_S)
        refused = attempt(bootstrap, "careful")
        if len(dead) < BROKERS - 1:
            assert refused is None
    assert len(dead) == BROKERS - 1
    assert refused is not None
    assert refused.code() == KafkaError.NOT_ENOUGH_REPLICAS
    clients.wait_value(bootstrap, "ledger", 0, written[-1])
    assert clients.values(clients.read(bootstrap, "ledger")) == written

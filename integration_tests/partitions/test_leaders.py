"""Offsets are asked of the leaders: three real brokers, of which one is dead and another one frozen."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from integration_tests.harness import clients
from integration_tests.harness.kafka_cluster import KafkaCluster
from integration_tests.harness.kafka_container import need_kafka
from integration_tests.planes.conftest import make_flow
from replicator.config import Cluster, Properties
from replicator.flow.topics import reading_topics
from replicator.kafka.offset_questions import LATEST, ListedOffset, ListedOffsets
from replicator.kafka.topic_questions import within
from replicator.model import names
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition
from replicator.state.claims import Claim
from replicator.state.flow_state import FlowState
from replicator.wire.topics import AnyBrokerTopics, topic_questions

pytestmark = [pytest.mark.kafka, pytest.mark.tier(kafka="full")]

PARTITIONS = 9
SOON_S = 2.0
LIMIT_S = 30.0


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[KafkaCluster]:
    """A cluster of which brokers are killed and frozen."""
    need_kafka()
    cluster = KafkaCluster(3)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def asking(bootstrap: str) -> AnyBrokerTopics:
    made = topic_questions(Cluster(name="east", properties=Properties({"bootstrap.servers": bootstrap})), "me", LIMIT_S)
    assert isinstance(made, AnyBrokerTopics)
    return made


def ask(questions: AnyBrokerTopics, at: list[Partition], *, patient: bool = False) -> tuple[ListedOffsets, float]:
    began_s = time.monotonic()
    (found,) = within(questions.list_offsets(at, (LATEST,), patient=patient), LIMIT_S)
    return found, time.monotonic() - began_s


def test_a_frozen_leader_of_other_lanes_claims_delays_no_start(three_brokers: KafkaCluster) -> None:
    """A lane reads its own partition of the claims topic; the flow never had another number of lanes."""
    flow = make_flow(three_brokers.bootstrap, three_brokers.bootstrap)
    topic = names.claims_topic(flow.name)
    admin = clients.admin(three_brokers.bootstrap)
    admin.create_topics([NewTopic(topic, 3, replica_assignment=[[1], [2], [3]])])[topic].result(clients.TIMEOUT_S)
    clients.settle(three_brokers.bootstrap, topic, 3)
    claims = [Claim(Partition("a.t", at), Partition("t", at), "s", "t", 0, 0, 1, "me", 1) for at in range(3)]
    writer = clients.producer(three_brokers.bootstrap)
    for number, claim in enumerate(claims):
        key, value = claim.encode()
        clients.put(writer, topic, value, partition=number, key=key)
    three_brokers.suspend(2)
    try:
        for lane in (0, 2):
            with reading_topics(flow, flow.target) as reader:
                began_s = time.monotonic()
                found = FlowState(flow, reader, claim_partitions=3).claims(lane)
                assert found.claims == {claims[lane].target: claims[lane]}
                assert time.monotonic() - began_s < flow.limits.request_timeout_ms / 2000
    finally:
        three_brokers.resume(2)


def test_dead_and_frozen_brokers_delay_nobody_else(three_brokers: KafkaCluster) -> None:
    admin = clients.admin(three_brokers.bootstrap)
    admin.create_topics([NewTopic("spread", PARTITIONS, 1)])["spread"].result(clients.TIMEOUT_S)
    clients.settle(three_brokers.bootstrap, "spread", PARTITIONS)
    described = admin.list_topics("spread", clients.TIMEOUT_S).topics["spread"].partitions
    leads = {Partition("spread", number): it.leader for number, it in described.items()}
    led = {broker: [at for at, leader in leads.items() if leader == broker] for broker in (1, 2, 3)}
    assert all(led.values())
    questions = asking(three_brokers.bootstrap)
    assert ask(questions, list(leads))[0] == dict.fromkeys(leads, ListedOffset(0, -1))
    three_brokers.suspend(2)
    three_brokers.kill(3)
    for fresh in (False, True):
        if fresh:
            questions.close()
        found, took_s = ask(questions, led[1])
        assert found == dict.fromkeys(led[1], ListedOffset(0, -1))
        assert took_s < SOON_S
    found, _ = ask(questions, list(leads))
    assert {at for at, it in found.items() if isinstance(it, ListedOffset)} == set(led[1])
    assert all(isinstance(found[at], ReplicatorError) for at in (*led[2], *led[3]))
    three_brokers.resume(2)
    assert ask(questions, led[2], patient=True)[0] == dict.fromkeys(led[2], ListedOffset(0, -1))
    questions.close()

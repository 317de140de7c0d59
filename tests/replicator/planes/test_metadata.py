"""A consumer that has been told of a topic reads it at once, and not at librdkafka's next look round."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.harness.embedded import EmbeddedBroker
from replicator.kafka import metadata

TOPICS = ("one", "two", "three", "four")
UNTOLD_S = len(TOPICS) - 1  # a second for each after the first


def read_first(consumer: Consumer, topic: str) -> None:
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(10)
    assert message is not None
    assert message.error() is None
    consumer.unassign()


@pytest.mark.tier("default")
def test_topics_read_one_after_the_other_do_not_wait_for_the_timer(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in TOPICS]).values():
            future.result(10)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for topic in TOPICS:
            producer.produce(topic, b"x")
        producer.flush(10)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "fetch.wait.max.ms": 50})
        read_first(consumer, TOPICS[0])
        began = time.monotonic()
        for topic in TOPICS[1:]:
            metadata.learn(consumer, {topic})
            read_first(consumer, topic)
        assert time.monotonic() - began < UNTOLD_S / 2
        consumer.close()
    finally:
        broker.stop()


@pytest.mark.parametrize("topics", [{"one"}, {"one", "two"}, set()])
def test_a_cluster_that_does_not_answer_is_no_error_here(topics: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "HINT_S_MAX", 0.1)
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    metadata.learn(consumer, topics)
    consumer.close()

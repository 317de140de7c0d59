"""The control plane: topics, configs, partitions, ids."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle

# All configs that a flow carries over to its target topic, each with a value that is nobody's default.
COPIED = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "86400001",
    "retention.bytes": "1073741825",
    "compression.type": "lz4",
    "max.message.bytes": "2000001",
    "message.timestamp.type": "LogAppendTime",
    "message.timestamp.before.max.ms": "86400002",
    "message.timestamp.after.max.ms": "3600001",
    "min.compaction.lag.ms": "1001",
    "delete.retention.ms": "86400003",
    "segment.ms": "3600002",
    "segment.bytes": "1048577",
}


def topic_id(broker: BrokerHandle, name: str) -> str:
    admin = clients.admin(broker.bootstrap)
    described = admin.describe_topics(TopicCollection([name]))[name].result(clients.TIMEOUT_S)
    return str(described.topic_id)


def test_a_topic_has_the_partitions_and_configs_that_it_was_created_with(
    target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    name = unique("configured")
    clients.create_topic(target.bootstrap, name, 3, COPIED)
    assert clients.topics(target.bootstrap)[name] == 3
    described = clients.topic_configs(target.bootstrap, name)
    assert {key: described[key] for key in COPIED} == COPIED


def test_configs_that_nobody_set_are_described_with_their_defaults(
    target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    name = unique("plain")
    clients.create_topic(target.bootstrap, name)
    described = clients.topic_configs(target.bootstrap, name)
    assert described["cleanup.policy"] == "delete"
    assert described["message.timestamp.type"] == "CreateTime"
    assert described["compression.type"] == "producer"
    assert described["max.message.bytes"] == "1048588"
    assert described.keys() >= COPIED.keys()


def test_a_config_can_be_altered_and_the_others_stay(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    name = unique("altered")
    clients.create_topic(target.bootstrap, name, configs={"retention.ms": "1000", "segment.ms": "7000"})
    clients.set_topic_config(target.bootstrap, name, "retention.ms", "2000")
    described = clients.topic_configs(target.bootstrap, name)
    assert (described["retention.ms"], described["segment.ms"]) == ("2000", "7000")


@pytest.mark.parametrize("name", ["a b", "a/b", "..", "x" * 250, ""])
def test_a_name_that_kafka_forbids_is_refused(target: BrokerHandle, name: str) -> None:
    with pytest.raises((KafkaException, ValueError)) as caught:
        clients.create_topic(target.bootstrap, name)
    if isinstance(caught.value, KafkaException):
        codes = (KafkaError.TOPIC_EXCEPTION, KafkaError._INVALID_ARG)
        assert caught.value.args[0].code() in codes


@pytest.mark.parametrize(
    ("key", "value"), [("retention.ms", "soon"), ("cleanup.policy", "burn"), ("no.such.config", "1")]
)
def test_a_config_that_makes_no_sense_is_refused(
    target: BrokerHandle, unique: Callable[[str], str], key: str, value: str
) -> None:
    name = unique("senseless")
    with pytest.raises(KafkaException) as caught:
        clients.create_topic(target.bootstrap, name, configs={key: value})
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert name not in clients.topics(target.bootstrap)


def test_creating_a_topic_twice_is_refused(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    name = unique("twice")
    clients.create_topic(target.bootstrap, name)
    with pytest.raises(KafkaException) as caught:
        clients.create_topic(target.bootstrap, name)
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_partitions_can_be_added_and_not_taken_away(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    name = unique("grown")
    clients.create_topic(target.bootstrap, name, 1)
    clients.put(clients.producer(target.bootstrap), name, b"kept")
    clients.grow_topic(target.bootstrap, name, 3)
    assert clients.topics(target.bootstrap)[name] == 3
    clients.put(clients.producer(target.bootstrap), name, b"new", partition=2)
    assert clients.values(clients.read(target.bootstrap, name, 0)) == [b"kept"]
    assert clients.values(clients.read(target.bootstrap, name, 2)) == [b"new"]
    with pytest.raises(KafkaException) as caught:
        clients.grow_topic(target.bootstrap, name, 2)
    assert caught.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_a_client_that_knew_fewer_partitions_waits_until_the_new_ones_answer(
    target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    name = unique("grown")
    clients.create_topic(target.bootstrap, name, 1)
    client = clients.consumer(target.bootstrap)
    with pytest.raises(KafkaException) as caught:
        client.get_watermark_offsets(TopicPartition(name, 2), timeout=30)
    assert caught.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
    clients.grow_topic(target.bootstrap, name, 3)
    clients.wait_for_leaders(client, name, 3)
    assert client.get_watermark_offsets(TopicPartition(name, 2), timeout=30) == (0, 0)
    client.close()


def test_a_topic_that_was_deleted_and_created_again_is_empty_and_has_another_id(
    target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    name = unique("recreated")
    clients.create_topic(target.bootstrap, name)
    clients.put(clients.producer(target.bootstrap), name, b"old")
    before = topic_id(target, name)
    clients.delete_topic(target.bootstrap, name)
    assert name not in clients.topics(target.bootstrap)
    clients.create_topic(target.bootstrap, name)
    assert topic_id(target, name) != before
    assert clients.read(target.bootstrap, name) == []


def test_deleting_what_is_not_there_is_refused(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    with pytest.raises(KafkaException) as caught:
        clients.delete_topic(target.bootstrap, unique("never"))
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_deleted_records_move_the_log_start_and_nothing_else(
    target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    name = unique("trimmed")
    clients.create_topic(target.bootstrap, name)
    clients.put(clients.producer(target.bootstrap), name, *[b"%d" % number for number in range(10)])
    clients.delete_records(target.bootstrap, name, 0, 4)
    client = clients.consumer(target.bootstrap)
    assert client.get_watermark_offsets(TopicPartition(name, 0), timeout=30) == (4, 10)
    client.close()
    assert clients.values(clients.read(target.bootstrap, name, 0, 4))[0] == b"4"
    with pytest.raises(KafkaException) as caught:
        clients.delete_records(target.bootstrap, name, 0, 11)
    assert caught.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_cluster_has_one_id_whoever_asks(target: BrokerHandle, source: BrokerHandle) -> None:
    ids = []
    for broker in (target, target, source):
        admin = clients.admin(broker.bootstrap)
        described = admin.describe_cluster().result(clients.TIMEOUT_S)
        assert described.cluster_id == admin.list_topics(timeout=clients.TIMEOUT_S).cluster_id
        assert [f"{node.host}:{node.port}" for node in described.nodes] == [broker.bootstrap]
        ids.append(described.cluster_id)
    assert ids[0] == ids[1] != ids[2]


def test_the_broker_tells_the_limits_that_a_flow_must_fit_into(target: BrokerHandle) -> None:
    admin = clients.admin(target.bootstrap)
    node = next(iter(admin.list_topics(timeout=clients.TIMEOUT_S).brokers))
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node))
    described = admin.describe_configs([resource])[resource].result(clients.TIMEOUT_S)
    for name in ("transaction.max.timeout.ms", "offsets.retention.minutes", "message.max.bytes"):
        assert int(described[name].value) > 0

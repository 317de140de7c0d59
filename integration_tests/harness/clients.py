"""Short forms of the clients that tests use: confluent-kafka for writing and the control plane."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from integration_tests.harness.processes import POLL_S, wait_until

TIMEOUT_S = 90.0
FETCH_MS_MAX = 500  # for which a lane's fetch waits for new records
ON_ITS_WAY = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
}
COORDINATOR_ON_ITS_WAY = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
FOR_EVER = {"retention.ms": "-1"}  # tests write old timestamps: retention would take their records
QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


def admin(bootstrap: str) -> AdminClient:
    """An admin client that keeps quiet about restarting brokers. Keep it while its futures are open."""
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, replicas: int = 1
) -> None:
    """Create a topic and return once every partition has a leader that clients can see."""
    client = admin(bootstrap)
    new = NewTopic(name, partitions, replicas, config={**FOR_EVER, **(configs or {})})
    client.create_topics([new], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
    settle(bootstrap, name, partitions)


def settle(bootstrap: str, name: str, partitions: int) -> None:
    """Return once the leader of every partition answers: a topic is there a little before its leaders are."""
    client = consumer(bootstrap)
    wait_for_leaders(client, name, partitions)
    client.close()


def wait_for_leaders(client: Consumer, name: str, partitions: int) -> None:
    """Return once the leader of every partition answers this client, which may have known fewer partitions before.

    librdkafka keeps the metadata of a topic (topic.metadata.refresh.interval.ms) and calls a partition that isn't in it
    unknown without asking again, so metadata that was a little too old is asked for here.
    """
    deadline = time.monotonic() + TIMEOUT_S
    waiting = list(range(partitions))
    while waiting:
        try:
            client.get_watermark_offsets(TopicPartition(name, waiting[-1]), timeout=TIMEOUT_S)
        except KafkaException as error:
            if time.monotonic() > deadline or error.args[0].code() not in ON_ITS_WAY:
                raise
            client.list_topics(timeout=TIMEOUT_S)
            client.poll(0.01)
        else:
            waiting.pop()


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic and return once the broker knows: the controller knows before it."""
    client = admin(bootstrap)
    client.delete_topics([name], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
    wait_until(lambda: name not in topics(bootstrap), f"{name} is gone", str)


def recreate_topic(bootstrap: str, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    """Delete a topic and create another one under its name; returns once that one's leaders answer."""
    delete_topic(bootstrap, name)
    create_topic(bootstrap, name, partitions, configs)


def grow_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Raise the partition count."""
    client = admin(bootstrap)
    client.create_partitions([NewPartitions(name, partitions)])[name].result(TIMEOUT_S)
    settle(bootstrap, name, partitions)


def topic_id(bootstrap: str, name: str) -> uuid.UUID:
    """The id that the cluster gave the topic when it was made."""
    client = admin(bootstrap)
    found = client.describe_topics(TopicCollection([name]))[name].result(TIMEOUT_S).topic_id
    return uuid.UUID(bytes=base64.urlsafe_b64decode(f"{found}=="))


def topic_configs(bootstrap: str, name: str) -> dict[str, str]:
    """All configs of a topic as the broker describes them."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    client = admin(bootstrap)
    found = client.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {key: entry.value for key, entry in found.items()}


def set_topic_config(bootstrap: str, name: str, key: str, value: str) -> None:
    """Set one config of a topic, leave the others, and return once the broker has it: the controller has it before."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    client = admin(bootstrap)
    client.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    wait_until(lambda: topic_configs(bootstrap, name).get(key) == value, f"{key} of {name} is {value}", str)


def topics(bootstrap: str) -> dict[str, int]:
    """Topics with their partition counts."""
    listed = admin(bootstrap).list_topics(timeout=TIMEOUT_S).topics
    return {name: len(topic.partitions) for name, topic in listed.items()}


def group_members(bootstrap: str, group: str) -> list[str]:
    """The client.id of each member of a group, also while it rebalances; none of a group that doesn't exist."""
    client, deadline = admin(bootstrap), time.monotonic() + TIMEOUT_S
    while True:
        try:
            found = client.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        except KafkaException as error:
            if time.monotonic() > deadline or error.args[0].code() not in COORDINATOR_ON_ITS_WAY:
                raise
            time.sleep(POLL_S)
        else:
            return [member.client_id for member in found.members]


def delete_records(bootstrap: str, topic: str, partition: int, before: int) -> None:
    """Move a partition's log start to `before`."""
    at = TopicPartition(topic, partition, before)
    client = admin(bootstrap)
    client.delete_records([at])[at].result(TIMEOUT_S)


def producer(bootstrap: str, **properties: Any) -> Producer:
    """An idempotent producer; keyword names are librdkafka's with underscores for dots."""
    dotted = _dotted(properties)
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, **QUIET, **dotted})


def _dotted(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {name if name.endswith("_cb") else name.replace("_", "."): value for name, value in properties.items()}


def transactional(bootstrap: str, transactional_id: str, **properties: Any) -> Producer:
    """A transactional producer after its InitProducerId."""
    made = producer(bootstrap, transactional_id=transactional_id, **properties)
    made.init_transactions(TIMEOUT_S)
    return made


def put(client: Producer, topic: str, *values: bytes | None, partition: int = 0, **fields: Any) -> list[Message]:
    """Produce `values`, wait for all acks, and return the delivery reports. Raises AssertionError on a failed one."""
    reports: list[Message] = []
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        reports.append(message)

    for value in values:
        client.produce(topic, value, partition=partition, on_delivery=delivered, **fields)
    left = client.flush(TIMEOUT_S)
    assert left == 0, f"{left} records without ack after {TIMEOUT_S} s"
    assert not failed, f"refused: {failed}"
    return reports


def consumer(bootstrap: str, **properties: Any) -> Consumer:
    """A consumer that never commits by itself, with partition EOF; read_committed unless told otherwise."""
    dotted = _dotted(properties)
    base: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": f"reader-{uuid.uuid4().hex[:8]}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 50,
        **QUIET,
    }
    return Consumer({**base, **dotted})


def read(
    bootstrap: str, topic: str, partition: int = 0, offset: int = 0, *, isolation: str = "read_committed"
) -> list[Message]:
    """All records of a partition from `offset` to its end (read_committed: the last stable offset)."""
    client = consumer(bootstrap, isolation_level=isolation)
    client.assign([TopicPartition(topic, partition, offset)])
    found: list[Message] = []
    try:
        while True:
            message = client.poll(TIMEOUT_S)
            assert message is not None, f"{topic}[{partition}]: no end of partition within {TIMEOUT_S} s"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise AssertionError(f"{topic}[{partition}]: {error}")
    finally:
        client.close()


def outwait_fetches(bootstrap: str, topic: str, partition: int = 0) -> None:
    """Wait until the broker has answered all fetches that wait for new records of a partition now: one of ours, which
    may wait longer, comes back empty. Then a client that stands still is sent nothing that is written later."""
    client = consumer(bootstrap, fetch_wait_max_ms=2 * FETCH_MS_MAX)
    try:
        client.assign([TopicPartition(topic, partition, stable_end(bootstrap, topic, partition))])
        began_s = time.monotonic()
        message = client.poll(TIMEOUT_S)
        assert message is not None, "no answer"
        error = message.error()
        assert error is not None, "a record"
        assert error.code() == KafkaError._PARTITION_EOF, error
        assert time.monotonic() - began_s >= FETCH_MS_MAX / 1000, "it has not waited"
    finally:
        client.close()


def stable_end(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The last stable offset: where the earliest open transaction begins, or the end."""
    client = consumer(bootstrap)
    try:
        return int(client.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S, cached=False)[1])
    finally:
        client.close()


def wait_value(bootstrap: str, topic: str, partition: int, value: bytes) -> None:
    """Return once a read_committed reader gets a record with this value."""
    client = consumer(bootstrap, enable_partition_eof=False)
    client.assign([TopicPartition(topic, partition, 0)])
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            message = client.poll(deadline - time.monotonic())
            if message is not None and message.error() is None and message.value() == value:
                return
        raise AssertionError(f"{topic}[{partition}]: no {value!r} within {TIMEOUT_S} s")
    finally:
        client.close()


def values(messages: Sequence[Message]) -> list[bytes | None]:
    """Their values."""
    return [message.value() for message in messages]


def committed(
    bootstrap: str, group: str, topic: str, partition: int = 0, *, stable: bool = True, timeout_s: float = TIMEOUT_S
) -> TopicPartition:
    """A group's committed offset; with `stable` the broker answers only once no transaction is open over it."""
    isolation = "read_committed" if stable else "read_uncommitted"
    client = consumer(bootstrap, group_id=group, isolation_level=isolation)
    try:
        return client.committed([TopicPartition(topic, partition)], timeout=timeout_s)[0]
    finally:
        client.close()


def warm_up(bootstrap: str) -> None:
    """One transaction and one committed offset: the broker's internal topics exist after this."""
    name = f"warm-up-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, name)
    writer = transactional(bootstrap, name)
    writer.begin_transaction()
    writer.produce(name, b"warm")
    group = consumer(bootstrap, group_id=name)
    writer.send_offsets_to_transaction([TopicPartition(name, 0, 1)], group.consumer_group_metadata(), TIMEOUT_S)
    writer.commit_transaction(TIMEOUT_S)
    group.committed([TopicPartition(name, 0)], timeout=TIMEOUT_S)
    group.close()
    delete_topic(bootstrap, name)

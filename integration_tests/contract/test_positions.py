"""Offsets of a group without members, committed in transactions: what a flow's positions rest on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, Producer, TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.proxy import Action, Proxy, Side

SEND_S_MAX = 5.0  # librdkafka tries again for so long, even where the answer will not change


class Group:
    """A group that nobody joins."""

    def __init__(self, bootstrap: str, name: str, topic: str) -> None:
        self.name, self._bootstrap, self._topic = name, bootstrap, topic
        self._client = clients.consumer(bootstrap, group_id=name)

    def send(self, writer: Producer, offset: int, metadata: str = "", topic: str = "", partition: int = 0) -> None:
        """Add an offset to the writer's open transaction."""
        at = TopicPartition(topic or self._topic, partition, offset, metadata)
        writer.send_offsets_to_transaction([at], self._client.consumer_group_metadata(), SEND_S_MAX)

    def offset(self, *, stable: bool = True, timeout_s: float = clients.TIMEOUT_S) -> int:
        """The committed offset; negative when there is none."""
        return int(self.position(stable=stable, timeout_s=timeout_s).offset)

    def position(self, *, stable: bool = True, timeout_s: float = clients.TIMEOUT_S) -> TopicPartition:
        """The committed offset with its metadata."""
        return clients.committed(self._bootstrap, self.name, self._topic, stable=stable, timeout_s=timeout_s)

    def close(self) -> None:
        """Let go of the client."""
        self._client.close()


@pytest.fixture
def topic(target: BrokerHandle, unique: Callable[[str], str]) -> str:
    name = unique("positioned")
    clients.create_topic(target.bootstrap, name)
    return name


@pytest.fixture
def group(target: BrokerHandle, unique: Callable[[str], str], topic: str) -> Iterator[Group]:
    made = Group(target.bootstrap, unique("group"), topic)
    yield made
    made.close()


@pytest.fixture
def writer(target: BrokerHandle, topic: str) -> Producer:
    return clients.transactional(target.bootstrap, topic)


def test_records_and_offset_commit_together(target: BrokerHandle, topic: str, group: Group, writer: Producer) -> None:
    assert group.offset() < 0
    writer.begin_transaction()
    clients.put(writer, topic, b"1")
    group.send(writer, 17, "evidence")
    writer.commit_transaction(clients.TIMEOUT_S)
    found = group.position()
    assert (found.offset, found.metadata) == (17, "evidence")
    clients.wait_value(target.bootstrap, topic, 0, b"1")  # Kafka answers before the markers are written
    assert clients.values(clients.read(target.bootstrap, topic)) == [b"1"]


def test_an_aborted_transaction_leaves_the_offset_as_it_was(group: Group, writer: Producer) -> None:
    for offset, ending in ((5, writer.commit_transaction), (9, writer.abort_transaction)):
        writer.begin_transaction()
        group.send(writer, offset)
        ending(clients.TIMEOUT_S)
    assert group.offset() == 5


def test_a_transaction_may_hold_an_offset_and_no_record(group: Group, writer: Producer) -> None:
    for offset in range(3):
        writer.begin_transaction()
        group.send(writer, offset)
        writer.commit_transaction(clients.TIMEOUT_S)
        assert group.offset() == offset


def test_a_stable_read_waits_for_the_open_transaction_and_an_unstable_one_answers_the_old_offset(
    group: Group, writer: Producer
) -> None:
    writer.begin_transaction()
    group.send(writer, 1)
    writer.commit_transaction(clients.TIMEOUT_S)
    writer.begin_transaction()
    group.send(writer, 2)
    assert group.offset(stable=False) == 1
    with pytest.raises(KafkaException) as caught:
        group.offset(timeout_s=1.0)
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT
    writer.commit_transaction(clients.TIMEOUT_S)
    assert group.offset() == 2


def test_right_after_a_commit_a_stable_read_never_sees_the_old_offset(group: Group, writer: Producer) -> None:
    """EndTxn is answered before offsets are applied: without the wait some of these read `number - 1`."""
    for number in range(25):
        writer.begin_transaction()
        group.send(writer, number)
        writer.commit_transaction(clients.TIMEOUT_S)
        assert group.offset() == number


def test_fencing_the_writer_drops_the_offset_that_it_had_pending(
    target: BrokerHandle, topic: str, group: Group, writer: Producer
) -> None:
    writer.begin_transaction()
    group.send(writer, 3)
    successor = clients.transactional(target.bootstrap, topic)
    assert group.offset() < 0
    successor.begin_transaction()
    group.send(successor, 4)
    successor.commit_transaction(clients.TIMEOUT_S)
    with pytest.raises(KafkaException):
        writer.commit_transaction(clients.TIMEOUT_S)
    assert group.offset() == 4


def test_the_group_stays_empty_and_without_protocol(target: BrokerHandle, group: Group, writer: Producer) -> None:
    writer.begin_transaction()
    group.send(writer, 1)
    writer.commit_transaction(clients.TIMEOUT_S)
    admin = clients.admin(target.bootstrap)
    described = admin.describe_consumer_groups([group.name])[group.name].result(clients.TIMEOUT_S)
    assert described.state == ConsumerGroupState.EMPTY
    assert described.members == []
    assert described.partition_assignor == ""


def test_an_offset_for_a_topic_that_is_not_there_is_refused(
    group: Group, writer: Producer, unique: Callable[[str], str]
) -> None:
    writer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        group.send(writer, 1, topic=unique("nowhere"))
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_metadata_above_the_limit_is_refused(group: Group, writer: Producer) -> None:
    writer.begin_transaction()
    group.send(writer, 1, "x" * 4_095)
    writer.commit_transaction(clients.TIMEOUT_S)
    assert group.position().metadata == "x" * 4_095
    writer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        group.send(writer, 2, "x" * 4_097)
    assert caught.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE


def test_a_deleted_group_has_no_offset(target: BrokerHandle, group: Group, writer: Producer) -> None:
    writer.begin_transaction()
    group.send(writer, 1)
    writer.commit_transaction(clients.TIMEOUT_S)
    assert group.offset() == 1
    admin = clients.admin(target.bootstrap)
    admin.delete_consumer_groups([group.name])[group.name].result(clients.TIMEOUT_S)
    assert group.offset() < 0


@pytest.mark.parametrize("api", ["AddOffsetsToTxn", "TxnOffsetCommit", "AddPartitionsToTxn"])
@pytest.mark.parametrize("side", Side)
def test_a_lost_message_on_the_way_to_the_commit_is_sent_again(
    proxy: Proxy, topic: str, group: Group, api: str, side: Side
) -> None:
    writer = clients.transactional(proxy.bootstrap, topic, retry_backoff_ms=10)
    writer.begin_transaction()
    lost = proxy.rule(api, side, Action.CUT)
    clients.put(writer, topic, b"1")
    group.send(writer, 1)
    writer.commit_transaction(clients.TIMEOUT_S)
    assert lost.hit
    assert group.offset() == 1
    clients.wait_value(proxy.bootstrap, topic, 0, b"1")
    assert clients.values(clients.read(proxy.bootstrap, topic)) == [b"1"]

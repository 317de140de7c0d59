"""Transactions of a lane's own producer that the target's brokers have left open: nobody but the lane can end them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kio.schema.errors import ErrorCode as E

from integration_tests.conftest import MakeCopying
from integration_tests.exactly_once.test_incidents import written
from integration_tests.harness import clients, raw, wire
from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.copying import Copying
from integration_tests.harness.kafka_container import BROKER_ID
from integration_tests.harness.processes import wait_until
from integration_tests.harness.transacting import Producer, TransactionClient
from integration_tests.partitions.test_plan_and_run import planned

pytestmark = pytest.mark.tier(kafka="full")

VERIFICATION = "transaction.partition.verification.enable"
LIMITS = {"request_timeout_ms": 3_000}
"""So long a lane waits for an open transaction before it looks into it."""


def put(copying: Copying, *values: bytes) -> None:
    """Records of today: behind old ones a marker, which is of today, begins a new segment."""
    for value in values:
        raw.put(copying.source, copying.topic, 0, raw.record(b"k", value, timestamp_ms=int(time.time() * 1000)))


def lose_the_marker(copying: Copying, broker: BrokerHandle) -> None:
    """Take the last batch, a marker, from the first partition of the copy: its coordinator has long forgotten it."""
    end = copying.target_ends()[0]
    topic_id = clients.topic_id(copying.target, copying.copy)
    broker.kill()
    broker.cut_log(copying.copy, topic_id, 0, end - 1)
    broker.restart()
    clients.settle(copying.target, copying.copy, copying.partitions)
    assert copying.target_ends()[0] == end - 1
    assert clients.stable_end(copying.target, copying.copy) < end - 1, "a transaction is open"


@pytest.mark.tier("full", kafka="full")
def test_the_lost_marker_of_a_commit_is_written_again(make_copying: MakeCopying, target: BrokerHandle) -> None:
    copying = make_copying(partitions=2, limits=LIMITS)
    worker = copying.running()
    put(copying, b"1", b"2")
    copying.wait_positions()
    assert worker.stop() == 0
    lose_the_marker(copying, target)
    code, found = copying.asked("plan")
    assert (code, planned(found)) == (0, {}), "what run would end by itself is no incident"
    worker = copying.running()
    put(copying, b"3")
    clients.wait_value(copying.target, copying.copy, 0, b"3")
    ended = worker.wait_event("open_transaction_ended", partition=0)
    assert "is committed" in ended["detail"]
    assert worker.stop() == 0
    assert written(copying) == [b"1", b"2", b"3"]


@pytest.mark.tier("full")
def test_the_lost_marker_of_an_abort_is_written_again(make_copying: MakeCopying, target: BrokerHandle) -> None:
    copying = make_copying(partitions=2, limits=LIMITS)
    worker = copying.running()
    put(copying, b"1")
    copying.wait_positions()
    assert worker.stop() == 0
    put(copying, b"2")
    copying.run("before_end_txn@1=kill").wait_exit()
    copying.run("fenced@1=kill").wait_exit()  # its fence has aborted what the first one left
    lose_the_marker(copying, target)
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"2")
    ended = worker.wait_event("open_transaction_ended", partition=0)
    assert "is aborted" in ended["detail"]
    assert worker.stop() == 0
    assert written(copying) == [b"1", b"2"]


@pytest.fixture
def unverified(kind: Kind, target: BrokerHandle) -> Iterator[str]:
    """A Kafka that lets a batch open a transaction that its coordinator doesn't know, as all did before KIP-890."""
    if kind != "kafka":
        pytest.skip("the embedded broker has no such setting")
    _verify(target.bootstrap, "false")
    yield target.bootstrap
    _verify(target.bootstrap, "true")


def _verify(bootstrap: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry(VERIFICATION, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(BROKER_ID), incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(clients.TIMEOUT_S)
    asked = ConfigResource(ConfigResource.Type.BROKER, str(BROKER_ID))

    def described() -> str:
        return str(admin.describe_configs([asked])[asked].result(clients.TIMEOUT_S)[VERIFICATION].value)

    wait_until(lambda: described() == value, f"{VERIFICATION} is {value}", described)


def batch_from_the_past(copying: Copying, transactional_id: str) -> None:
    """A batch of the lane's producer comes when its transaction is over: Kafka before KIP-890 opens another for it."""
    with wire.connected(copying.target) as connection:
        client = TransactionClient(connection, copying.copy, transactional_id, copying.group)
        (state,) = connection(
            "describe_producers", 0, topics=[{"name": copying.copy, "partition_indexes": (0,)}]
        ).topics
        (found,) = state.partitions[0].active_producers
        producer: Producer = (found.producer_id, found.producer_epoch)
        assert client.produce(producer, found.last_sequence + 1)[0] is E.none


def test_a_batch_that_comes_after_its_transaction_is_aborted(make_copying: MakeCopying, unverified: str) -> None:
    copying = make_copying(partitions=2, limits=LIMITS)
    worker = copying.running()
    put(copying, b"1")
    copying.wait_positions()
    assert worker.stop() == 0
    batch_from_the_past(copying, f"eos.{copying.name}.1.0")
    put(copying, b"2")
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"2")
    assert "is aborted" in worker.wait_event("open_transaction_ended", partition=0)["detail"]
    assert worker.stop() == 0
    assert written(copying) == [b"1", b"2"]

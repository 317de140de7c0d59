"""What operators ask about transactions: listing, describing, producers of a partition, markers by hand."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as E

from integration_tests.harness.transacting import Producer
from integration_tests.harness.transacting import TransactionClient as Client

ONGOING, COMMITTED, EMPTY = ("Ongoing", "CompleteCommit", "Empty")
LONG_MS = 10**12


def listed(client: Client, version: int = 2, **filters: Any) -> tuple[E, tuple[str, ...], list[str]]:
    """Error, unknown states, and the states of this client's id."""
    fields: dict[str, Any] = {"state_filters": (), "producer_id_filters": ()}
    if version >= 1:
        fields["duration_filter"] = -1
    if version >= 2:
        fields["transactional_id_pattern"] = None
    answer = client.wire("list_transactions", version, **{**fields, **filters})
    mine = [each for each in answer.transaction_states if each.transactional_id == client.transactional_id]
    return answer.error_code, answer.unknown_state_filters, [each.transaction_state for each in mine]


def producers(client: Client, *partitions: int, topic: str | None = None) -> dict[int, tuple[E, list[tuple[int, ...]]]]:
    """By partition: the error, and of each producer id, epoch, last sequence, coordinator epoch and open offset."""
    asked = [{"name": topic or client.topic, "partition_indexes": partitions}]
    (found,) = client.wire("describe_producers", 0, topics=asked).topics
    return {
        each.partition_index: (
            each.error_code,
            [_producer(one) for one in each.active_producers],
        )
        for each in found.partitions
    }


def _producer(one: Any) -> tuple[int, ...]:
    open_since = one.current_txn_start_offset
    return one.producer_id, one.producer_epoch, one.last_sequence, one.coordinator_epoch, open_since


def mark(client: Client, producer: Producer, *partitions: int, version: int | None = None) -> dict[int, E]:
    """WriteTxnMarkers that aborts; `version` is the transaction version."""
    marker: dict[str, Any] = {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "transaction_result": False,
        "topics": [{"name": client.topic, "partition_indexes": partitions}],
        "coordinator_epoch": 0,
    }
    if version is not None:
        marker["transaction_version"] = version
    answer = client.wire("write_txn_markers", 1 if version is None else 2, markers=[marker])
    (found,) = answer.markers[0].topics
    return {each.partition_index: each.error_code for each in found.partitions}


@pytest.mark.parametrize("version", range(3))
def test_listing_by_state_and_producer(client: Client, version: int) -> None:
    producer = client.fresh()
    assert listed(client, version) == (E.none, (), [EMPTY])
    client.add(producer, 0)
    assert listed(client, version, state_filters=(ONGOING,)) == (E.none, (), [ONGOING])
    assert listed(client, version, state_filters=(COMMITTED,)) == (E.none, (), [])
    assert listed(client, version, state_filters=("ongoing",)) == (E.none, ("ongoing",), [])
    assert listed(client, version, producer_id_filters=(producer[0],)) == (E.none, (), [ONGOING])
    assert listed(client, version, producer_id_filters=(producer[0] + 999,)) == (E.none, (), [])
    assert client.end(producer) is E.none
    assert client.end(producer) is E.none
    assert listed(client, version) == (E.none, (), [COMMITTED])


def test_listing_by_duration_and_name(client: Client) -> None:
    producer = client.fresh()
    assert listed(client, duration_filter=LONG_MS) == (E.none, (), [EMPTY])
    client.add(producer, 0)
    assert listed(client, duration_filter=LONG_MS) == (E.none, (), [])
    name = client.transactional_id
    for pattern, found in ((name, [ONGOING]), (name[:-1], []), (name[:-1] + ".", [ONGOING]), ("", [ONGOING])):
        assert listed(client, transactional_id_pattern=pattern) == (E.none, (), found)
    assert listed(client, transactional_id_pattern="(")[0] is E.invalid_regular_expression


def test_describing_an_open_transaction(client: Client) -> None:
    before = datetime.now(UTC).timestamp()
    producer = client.fresh(timeout_ms=33_000)
    client.add(producer, 2, 0)
    asked = (client.transactional_id, f"nobody-{uuid.uuid4().hex}", "")
    found, nobody, unnamed = client.wire("describe_transactions", 0, transactional_ids=asked).transaction_states
    assert (found.error_code, found.transaction_state) == (E.none, ONGOING)
    assert (found.producer_id, found.producer_epoch) == producer
    assert found.transaction_timeout.total_seconds() == 33
    assert before - 60 < found.transaction_start_time.timestamp() < before + 60
    assert [(topic.topic, sorted(topic.partitions)) for topic in found.topics] == [(client.topic, [0, 2])]
    assert nobody.error_code is E.transactional_id_not_found
    assert unnamed.error_code is E.invalid_request


def test_the_producers_of_a_partition(client: Client) -> None:
    producer_id, epoch = producer = client.fresh()
    client.produce(producer, 0, count=3, version=12)
    client.produce(producer, 0, partition=1, version=12)
    assert producers(client, 0, 2, 9) == {
        0: (E.none, [(producer_id, epoch, 2, -1, 0)]),
        2: (E.none, []),
        9: (E.unknown_topic_or_partition, []),
    }
    assert producers(client, 0, topic="a b")[0][0] is E.invalid_topic_exception
    client.end_and_bump(producer)
    client.end_and_bump(producer)
    ((error_code, [found]),) = producers(client, 0).values()
    *known, coordinator_epoch, open_since = found
    assert (error_code, known, open_since) == (E.none, [producer_id, epoch + 1, -1], -1)
    assert coordinator_epoch >= 0  # Kafka's grows with every restart of a broker


def test_markers_by_hand(client: Client) -> None:
    producer_id, epoch = producer = client.fresh()
    for partition in range(3):
        client.produce(producer, 0, partition, version=12)
    assert mark(client, producer, 0, 9) == {0: E.none, 9: E.unknown_topic_or_partition}
    assert producers(client, 0) == {0: (E.none, [(producer_id, epoch, 0, 0, -1)])}
    assert mark(client, producer, 1, version=1) == {1: E.none}
    assert mark(client, producer, 2, version=2) == {2: E.invalid_producer_epoch}
    assert producers(client, 2) == {2: (E.none, [(producer_id, epoch, 0, -1, 0)])}
    bumped = producer_id, epoch + 1
    assert mark(client, bumped, 2, version=2) == {2: E.none}
    assert mark(client, bumped, 2, version=2) == {2: E.none}
    assert mark(client, producer, 2, version=2) == {2: E.invalid_producer_epoch}
    assert client.end_and_bump(producer, False)[0] is E.none

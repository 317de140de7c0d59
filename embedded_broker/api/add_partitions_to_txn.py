"""AddPartitionsToTxn (24).

Behaviour: all partitions are added or none. If one doesn't exist, is internal or is stopped, the others are answered
OPERATION_NOT_ATTEMPTED. Nothing can be written to a stopped partition, so nothing of a transaction is begun there: it
could never take the marker, and would hold up the transactional id.
Version notes: v2 returns PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v4 carries several transactions, each to be
added to or only verified (KIP-890): used between brokers, and requires CLUSTER_ACTION; only v5 implies that the
transaction's client supports transaction version 2 (`TransactionVersion.transactionVersionForAddPartitionsToTxn`).
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.owner import owner_of
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.metadata.topic_names import INTERNAL
from embedded_broker.state.owners import Owner
from embedded_broker.state.transactions import TopicPartition
from embedded_broker.wire.responses import Answer

BATCHED_SINCE = 4
TRANSACTION_VERSION_2_SINCE = 5


@api(24, "add_partitions_to_txn", range(6))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle AddPartitionsToTxn: see the behaviour and version notes above."""
    if version >= BATCHED_SINCE:
        return {
            "results_by_transaction": [await _batched(broker, conn, each, version) for each in request.transactions]
        }
    claim = (
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    wanted = _wanted(request.v3_and_below_topics)
    forbidden = {partition for partition in wanted if partition[0] in INTERNAL}
    if forbidden:
        errors = _unadded(wanted, forbidden, ErrorCode.topic_authorization_failed)
    else:
        errors = await _add(broker, claim, wanted, owner_of(conn))
    if version < 2:
        errors = {
            partition: ErrorCode.invalid_producer_epoch if error_code is ErrorCode.producer_fenced else error_code
            for partition, error_code in errors.items()
        }
    return {"results_by_topic_v3_and_below": _by_topic(request.v3_and_below_topics, errors)}


async def _batched(broker: Parts, conn: Client, each: Any, version: int) -> dict[str, Any]:
    """Return the answer for one of several transactions."""
    claim = each.transactional_id, each.producer_id, each.producer_epoch
    wanted = _wanted(each.topics)
    if each.verify_only and not _missing(broker, wanted):
        errors = {partition: broker.transactions.verify(*claim, partition) for partition in wanted}
    else:
        client_version = 2 if version >= TRANSACTION_VERSION_2_SINCE else 0
        errors = await _add(broker, claim, wanted, owner_of(conn), client_version)
    return {"transactional_id": each.transactional_id, "topic_results": _by_topic(each.topics, errors)}


async def _add(
    broker: Parts, claim: tuple[str, int, int], wanted: list[TopicPartition], owner: Owner, client_version: int = 0
) -> dict[TopicPartition, ErrorCode]:
    missing = _missing(broker, wanted)
    if missing:
        return _unadded(wanted, missing, ErrorCode.unknown_topic_or_partition)
    if stopped := _stopped(broker, wanted):
        return _unadded(wanted, stopped, ErrorCode.kafka_storage_error)
    error_code = await broker.transactions.add_partitions(*claim, wanted, client_version, owner)
    return dict.fromkeys(wanted, error_code)


def _unadded(
    wanted: list[TopicPartition], wrong: set[TopicPartition], error_code: ErrorCode
) -> dict[TopicPartition, ErrorCode]:
    return {partition: error_code if partition in wrong else ErrorCode.operation_not_attempted for partition in wanted}


def _wanted(topics: Any) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _missing(broker: Parts, wanted: list[TopicPartition]) -> set[TopicPartition]:
    return {partition for partition in wanted if broker.topics.partition(*partition) is None}


def _stopped(broker: Parts, wanted: list[TopicPartition]) -> set[TopicPartition]:
    found = {name: broker.topics.partition(*name) for name in wanted}
    return {name for name, partition in found.items() if partition is not None and partition.stopped is not None}


def _by_topic(topics: Any, errors: dict[TopicPartition, ErrorCode]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": errors[topic.name, index]}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]

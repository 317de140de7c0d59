"""Responses that clients get while the disk is full, API by API; used by `api.registry` around every handler.

Produce refuses by itself, partition by partition, and so do the APIs that make several changes one after the other
(ACLs, credentials, topics, configs). Coordinators answer NOT_COORDINATOR, which clients retry: so does Kafka when the
log of a coordinator's topic can't be written (`TransactionStateManager.appendTransactionToLog`,
`CoordinatorOperationExceptionHelper`). All others answer KAFKA_STORAGE_ERROR, which clients retry, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.metadata.metadata_size import MetadataFull
from embedded_broker.storage.disk_space import NoSpace

Refusal = Callable[[Any, int], Mapping[str, Any]]

COORDINATOR, STORAGE = ErrorCode.not_coordinator, ErrorCode.kafka_storage_error
MESSAGE = "The disk is full, or no more files can be opened."
REFUSAL: Mapping[str, Any] = {"error_code": STORAGE, "error_message": MESSAGE}
"""The fields of one resource in a response."""
TOO_MUCH = "All topics, configs, ACLs, users and quotas together would take too much of the broker's memory."


def refused_with(error: NoSpace) -> tuple[ErrorCode, str]:
    """Return the error of one resource in a response: there is no disk space, or no memory for what would be kept."""
    return (ErrorCode.policy_violation, TOO_MUCH) if isinstance(error, MetadataFull) else (STORAGE, MESSAGE)


def refusal(error: NoSpace) -> dict[str, Any]:
    """Return the same, as the fields of it."""
    error_code, message = refused_with(error)
    return {"error_code": error_code, "error_message": message}


def _whole(**others: Any) -> Refusal:
    """Return one error for the whole request."""
    return lambda request, version: {"error_code": COORDINATOR, **others}


def _producer_id(request: Any, version: int) -> Mapping[str, Any]:
    """Return the error: without a transactional id there is no coordinator to find again, so it is Kafka's when it has
    no id to give.
    """
    error_code = ErrorCode.coordinator_load_in_progress if request.transactional_id is None else COORDINATOR
    return {"error_code": error_code, "producer_id": -1, "producer_epoch": -1}


def _offsets(request: Any, version: int) -> Mapping[str, Any]:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": each.partition_index, "error_code": COORDINATOR} for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _partitions_of_transactions(request: Any, version: int) -> Mapping[str, Any]:
    if version >= 4:
        return {
            "error_code": ErrorCode.none,
            "results_by_transaction": [
                {"transactional_id": each.transactional_id, "topic_results": _by_topic(each.topics)}
                for each in request.transactions
            ],
        }
    return {"results_by_topic_v3_and_below": _by_topic(request.v3_and_below_topics)}


def _by_topic(topics: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": COORDINATOR} for index in topic.partitions
            ],
        }
        for topic in topics
    ]


def _topics(key: str) -> Refusal:
    return lambda request, version: {key: [{"name": topic.name, **REFUSAL} for topic in request.topics]}


def _resources(request: Any, version: int) -> Mapping[str, Any]:
    return {
        "responses": [
            {**REFUSAL, "resource_type": each.resource_type, "resource_name": each.resource_name}
            for each in request.resources
        ]
    }


REFUSALS: Mapping[str, Refusal] = {
    "init_producer_id": _producer_id,
    "add_partitions_to_txn": _partitions_of_transactions,
    "add_offsets_to_txn": _whole(),
    "end_txn": _whole(),
    "txn_offset_commit": _offsets,
    "offset_commit": _offsets,
    "create_topics": _topics("topics"),
    "create_partitions": _topics("results"),
    "alter_configs": _resources,
    "incremental_alter_configs": _resources,
}
"""API → its response as soon as the disk is full. Not listed are those that may use the reserve: what frees disk space
(DeleteTopics, DeleteRecords, DeleteGroups, OffsetDelete), what takes rights away, and what consumers in a group need
(JoinGroup, SyncGroup, heartbeats)."""


def _groups(request: Any, version: int) -> Mapping[str, Any]:
    return {"results": [{"group_id": name, "error_code": COORDINATOR} for name in request.groups_names]}


REFUSALS_WITHOUT_RESERVE: Mapping[str, Refusal] = {
    "delete_groups": _groups,
    "offset_delete": _whole(),
    "consumer_group_heartbeat": _whole(),
    "join_group": _whole(),
    "leave_group": _whole(),
    "sync_group": _whole(),
}
"""API → its response once the reserve is used up, too. JoinGroup and SyncGroup wait until there is disk space, unless
too many records of groups do already (`GroupRegistry.refuse_if_full`)."""

"""One request of every API that needs a right, and how it is refused without one. The same on real Kafka."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from embedded_broker.security.acls import Operation, PatternType, Permission, Resource
from kafka_records import batch as batches
from tests.embedded_broker.served import Client, batch, fetch, produce

OK = ErrorCode.none
TOPIC, GROUP = ErrorCode.topic_authorization_failed, ErrorCode.group_authorization_failed
CLUSTER, TRANSACTIONAL = ErrorCode.cluster_authorization_failed, ErrorCode.transactional_id_authorization_failed


def creation(resource: Resource, name: str, operation: Operation, **more: Any) -> dict[str, Any]:
    """An item of CreateAcls: User:alice may."""
    return {
        "resource_type": int(resource),
        "resource_name": name,
        "resource_pattern_type": int(PatternType.LITERAL),
        "principal": "User:alice",
        "host": "*",
        "operation": int(operation),
        "permission_type": int(Permission.ALLOW),
        **more,
    }


PARTITION = [{"partition_index": 0}]
BY_NAME = [{"name": "t", "topic_id": UUID(int=0)}]
LATEST = [{"partition_index": 0, "timestamp": -1}]
NAMED = [{"name": "t", "partitions": PARTITION}]
ADDED = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "verify_only": True,
         "topics": [{"name": "t", "partitions": [0]}]}  # fmt: skip
Ask = Callable[[Client], Awaitable[ErrorCode]]


def _call(name: str, version: int, path: Callable[[Any], ErrorCode], **fields: Any) -> Ask:
    async def ask(client: Client) -> ErrorCode:
        return path(await client.call(name, version, **fields))

    return ask


def _code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def _first(answer: Any) -> ErrorCode:
    """Of the first topic's first partition."""
    return ErrorCode(answer.topics[0].partitions[0].error_code)


DENIED: dict[str, tuple[Ask, ErrorCode]] = {
    "produce": (
        _call("produce", 9, lambda a: a.responses[0].partition_responses[0].error_code, **produce("t", batch(b"v"))),
        TOPIC,
    ),
    "produce in a transaction": (
        _call("produce", 9, lambda a: a.responses[0].partition_responses[0].error_code,
              **produce("t", batch(b"v", attributes=batches.TRANSACTIONAL), transactional_id="x")), TRANSACTIONAL),
    "fetch": (_call("fetch", 12, lambda a: a.responses[0].partitions[0].error_code, **fetch("t", 0)), TOPIC),
    "list_offsets": (
        _call("list_offsets", 5, _first, topics=[{"name": "t", "partitions": LATEST}]),
        TOPIC,
    ),
    "metadata": (_call("metadata", 9, lambda a: a.topics[0].error_code, topics=[{"name": "t"}]), TOPIC),
    "metadata of what isn't there": (
        _call("metadata", 9, lambda a: a.topics[0].error_code, topics=[{"name": "no"}]), TOPIC),
    "metadata v0": (_call("metadata", 0, lambda a: a.topics[0].error_code, topics=[{"name": "t"}]), TOPIC),
    "offset_commit": (_call("offset_commit", 8, _first, group_id="g", topics=NAMED), GROUP),
    "offset_fetch": (_call("offset_fetch", 7, _code, group_id="g", topics=None), GROUP),
    "offset_fetch v8": (
        _call("offset_fetch", 8, lambda a: a.groups[0].error_code, groups=[{"group_id": "g", "topics": None}]), GROUP),
    "find_coordinator": (_call("find_coordinator", 2, _code, key="g", key_type=0), GROUP),
    "find_coordinator v4": (
        _call("find_coordinator", 4, lambda a: a.coordinators[0].error_code, key_type=1, coordinator_keys=["x"]),
        TRANSACTIONAL,
    ),
    "join_group": (_call("join_group", 7, _code, group_id="g", session_timeout=10_000, protocol_type="c"), GROUP),
    "sync_group": (_call("sync_group", 3, _code, group_id="g"), GROUP),
    "heartbeat": (_call("heartbeat", 4, _code, group_id="g"), GROUP),
    "leave_group": (_call("leave_group", 4, _code, group_id="g"), GROUP),
    "describe_groups": (_call("describe_groups", 5, lambda a: a.groups[0].error_code, groups=["g"]), GROUP),
    "create_topics": (
        _call("create_topics", 7, lambda a: a.topics[0].error_code,
              topics=[{"name": "n", "num_partitions": 1, "replication_factor": 1}]), TOPIC),
    "delete_topics": (
        _call("delete_topics", 6, lambda a: a.responses[0].error_code, topics=BY_NAME, timeout=9000),
        TOPIC,
    ),
    "delete_topics v5": (
        _call("delete_topics", 5, lambda a: a.responses[0].error_code, topic_names=["t"], timeout=9000), TOPIC),
    "delete_records": (
        _call("delete_records", 2, _first, topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}]),
        TOPIC,
    ),
    "init_producer_id": (_call("init_producer_id", 4, _code, transactional_id=None, transaction_timeout=1), CLUSTER),
    "init_producer_id of a transaction": (
        _call("init_producer_id", 4, _code, transactional_id="x", transaction_timeout=1), TRANSACTIONAL),
    "offset_for_leader_epoch": (
        _call("offset_for_leader_epoch", 4, _first, topics=[{"topic": "t", "partitions": [{"partition": 0}]}]), TOPIC),
    "add_partitions_to_txn": (
        _call("add_partitions_to_txn", 3,
              lambda a: a.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
              v3_and_below_transactional_id="x", v3_and_below_topics=[{"name": "t", "partitions": [0]}]),
        TRANSACTIONAL,
    ),
    **{f"add_partitions_to_txn v{version}, of brokers": (
        _call("add_partitions_to_txn", version, _code, transactions=[ADDED]), CLUSTER) for version in (4, 5)},
    "add_offsets_to_txn": (
        _call("add_offsets_to_txn", 3, _code, transactional_id="x", group_id="g"), TRANSACTIONAL),
    "end_txn": (_call("end_txn", 3, _code, transactional_id="x"), TRANSACTIONAL),
    "txn_offset_commit": (
        _call("txn_offset_commit", 3, _first, transactional_id="x", group_id="g", topics=NAMED), TRANSACTIONAL),
    "write_txn_markers": (
        _call("write_txn_markers", 1, lambda a: a.markers[0].topics[0].partitions[0].error_code,
              markers=[{"producer_id": 1, "topics": [{"name": "t", "partition_indexes": [0]}]}]), CLUSTER),
    "describe_acls": (
        _call("describe_acls", 3, _code, resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1),
        CLUSTER,
    ),
    "create_acls": (
        _call("create_acls", 3, lambda a: a.results[0].error_code,
              creations=[creation(Resource.TOPIC, "t", Operation.ALL)]), CLUSTER),
    "delete_acls": (
        _call("delete_acls", 3, lambda a: a.filter_results[0].error_code,
              filters=[{"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}]),
        CLUSTER,
    ),
    "describe_configs": (
        _call("describe_configs", 4, lambda a: a.results[0].error_code,
              resources=[{"resource_type": 2, "resource_name": "t", "configuration_keys": None}]), TOPIC),
    "describe_configs of the broker": (
        _call("describe_configs", 4, lambda a: a.results[0].error_code,
              resources=[{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]), CLUSTER),
    "alter_configs": (
        _call("alter_configs", 2, lambda a: a.responses[0].error_code,
              resources=[{"resource_type": 2, "resource_name": "t"}]), TOPIC),
    "incremental_alter_configs": (
        _call("incremental_alter_configs", 1, lambda a: a.responses[0].error_code,
              resources=[{"resource_type": 2, "resource_name": "t"}]), TOPIC),
    "create_partitions": (
        _call("create_partitions", 3, lambda a: a.results[0].error_code, topics=[{"name": "t", "count": 2}]), TOPIC),
    "delete_groups": (_call("delete_groups", 2, lambda a: a.results[0].error_code, groups_names=["g"]), GROUP),
    "offset_delete": (_call("offset_delete", 0, _code, group_id="g", topics=NAMED), GROUP),
    "describe_producers": (
        _call("describe_producers", 0, _first, topics=[{"name": "t", "partition_indexes": [0]}]), TOPIC),
    "describe_transactions": (
        _call("describe_transactions", 0, lambda a: a.transaction_states[0].error_code, transactional_ids=["x"]),
        TRANSACTIONAL,
    ),
    "describe_user_scram_credentials": (
        _call("describe_user_scram_credentials", 0, _code, users=[{"name": "alice"}]), CLUSTER),
    "alter_user_scram_credentials": (
        _call("alter_user_scram_credentials", 0, lambda a: a.results[0].error_code,
              deletions=[{"name": "alice", "mechanism": 1}]), CLUSTER),
    "describe_client_quotas": (_call("describe_client_quotas", 1, _code), CLUSTER),
    "alter_client_quotas": (
        _call("alter_client_quotas", 1, lambda a: a.entries[0].error_code, entries=[{"entity": []}]), CLUSTER),
}  # fmt: skip

"""DescribeTopicPartitions (75), how the Java admin client describes topics (KIP-966).

Behaviour: topics in order of their names, from the cursor on, until the limit of partitions is reached; then a cursor
is returned to continue from. A request without topics asks for all. Named topics that don't exist, or have invalid
names, get an error; a topic of the cursor that was deleted meanwhile is skipped. The authorized operations are always
returned.
Version notes: only v0 exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.metadata.topic_names import name_problem
from embedded_broker.security.acls import Operation, Resource
from embedded_broker.security.operations import authorized
from embedded_broker.wire.responses import Answer

if TYPE_CHECKING:
    from embedded_broker.storage.partition import Partition

PARTITIONS_MAX = 2_000


@api(75, "describe_topic_partitions", range(1))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeTopicPartitions: see the behaviour and version notes above."""
    authorizer = broker.security.authorizer

    def sees(name: str) -> bool:
        return authorizer is None or authorizer.may(conn.session, Operation.DESCRIBE, Resource.TOPIC, name)

    answer = _describe(broker, request, sees)
    for topic in answer["topics"]:
        if topic.get("error_code") is not ErrorCode.invalid_request:
            operations = authorized(authorizer, conn.session, Resource.TOPIC, topic["name"])
            topic["topic_authorized_operations"] = operations
    return answer


def _describe(broker: Parts, request: Any, sees: Callable[[str], bool]) -> dict[str, Any]:
    named = {topic.name for topic in request.topics}
    # What may not be seen is left out at first: it counts for no limit, and no cursor names it.
    names = sorted(named or filter(sees, broker.topics.names()))
    first, start = "", 0
    if request.cursor is not None:
        first, start = request.cursor.topic_name, request.cursor.partition_index
        if start < 0 or (named and first not in named):
            return _invalid(named)
    left = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    topics: list[dict[str, Any]] = []
    for name in (each for each in names if each >= first):
        at = start if name == first else 0
        if left == 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": at}}
        topic = broker.topics.get(name)
        if topic is None:
            if named:
                topics.append(_missing(name))
            continue
        shown = topic.partitions[at : at + left]
        partitions = [_partition(broker.config.node_id, partition) for partition in shown]
        topics.append(
            {
                "name": name,
                "topic_id": topic.topic_id,
                "is_internal": topic.is_internal,
                "partitions": partitions,
            }
        )
        left -= len(shown)
        if at + len(shown) < len(topic.partitions):
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": at + len(shown)}}
    return {"topics": topics, "next_cursor": None}


def _missing(name: str) -> dict[str, Any]:
    impossible = name_problem(name) is not None
    error_code = ErrorCode.invalid_topic_exception if impossible else ErrorCode.unknown_topic_or_partition
    return {"name": name, "error_code": error_code}


def _invalid(names: set[str]) -> dict[str, Any]:
    return {"topics": [{"name": name, "error_code": ErrorCode.invalid_request} for name in sorted(names)]}


def _partition(node: int, partition: Partition) -> dict[str, Any]:
    return {
        "partition_index": partition.index,
        "leader_id": node,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": [node],
        "isr_nodes": [node],
        "eligible_leader_replicas": [],
        "last_known_elr": [],
    }

"""AlterPartitionReassignments (45).

Behaviour: a partition may be "moved" to this broker, where it is. Other replicas are refused, since those brokers don't
exist (INVALID_REPLICA_ASSIGNMENT); there is never a reassignment to cancel (NO_REASSIGNMENT_IN_PROGRESS).
Version notes: v1 may forbid a change of the replication factor, which is always 1.
"""

from __future__ import annotations

from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, HasConfig, HasTopics
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer


class Needs(HasConfig, HasTopics, Protocol):
    """The parts of the broker that are used here."""


@api(45, "alter_partition_reassignments", range(2))
async def handle(broker: Needs, conn: Client, request: Any, version: int) -> Answer:
    """Handle AlterPartitionReassignments: see the behaviour and version notes above."""
    return {
        "error_message": None,
        "responses": [
            {"name": topic.name, "partitions": [_move(broker, topic.name, each) for each in topic.partitions]}
            for topic in request.topics
        ],
    }


def _move(broker: Needs, topic: str, wanted: Any) -> dict[str, Any]:
    error_code, message = ErrorCode.none, None
    if broker.topics.partition(topic, wanted.partition_index) is None:
        error_code, message = ErrorCode.unknown_topic_or_partition, "no such partition"
    elif wanted.replicas is None:
        error_code, message = ErrorCode.no_reassignment_in_progress, "the partition isn't being moved"
    elif tuple(wanted.replicas) != (broker.config.node_id,):
        error_code, message = ErrorCode.invalid_replica_assignment, f"the only broker is {broker.config.node_id}"
    return {"partition_index": wanted.partition_index, "error_code": error_code, "error_message": message}

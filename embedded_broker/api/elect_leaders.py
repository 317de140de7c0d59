"""ElectLeaders (43).

Behaviour: this broker leads every partition already: ELECTION_NOT_NEEDED for each that exists.
Version notes: v1 adds the kind of election and an error for all; without partitions it means all, and those that need
no election aren't listed.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, HasTopics
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer


@api(43, "elect_leaders", range(3))
async def handle(broker: HasTopics, conn: Client, request: Any, version: int) -> Answer:
    """Handle ElectLeaders: see the behaviour and version notes above."""
    return {
        "replica_election_results": [
            {
                "topic": topic.topic,
                "partition_result": [_result(broker, topic.topic, index) for index in topic.partitions],
            }
            for topic in request.topic_partitions or ()
        ]
    }


def _result(broker: HasTopics, topic: str, index: int) -> dict[str, Any]:
    if broker.topics.partition(topic, index) is None:
        return {
            "partition_id": index,
            "error_code": ErrorCode.unknown_topic_or_partition,
            "error_message": "no such partition",
        }
    return {
        "partition_id": index,
        "error_code": ErrorCode.election_not_needed,
        "error_message": "the one broker leads it already",
    }

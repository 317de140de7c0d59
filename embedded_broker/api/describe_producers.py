"""DescribeProducers (61).

Behaviour: the producers of a partition and the first offsets of their open transactions; used to find hanging
transactions.
Version notes: only v0 exists.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.metadata.topic_names import name_problem
from embedded_broker.wire.responses import ENTRY_BYTES, Answer


@api(61, "describe_producers", range(1))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeProducers: see the behaviour and version notes above."""
    topics, share = [], conn.share()
    for topic in request.topics:
        described = []
        for index in topic.partition_indexes:
            described.append(_describe(broker, topic.name, index))
            producers = len(described[-1].get("active_producers", ()))
            await share.spent(2 + producers, ENTRY_BYTES * producers)
        topics.append({"name": topic.name, "partitions": described})
    return {"topics": topics}


def _describe(broker: Parts, name: str, index: int) -> dict[str, Any]:
    partition = broker.topics.partition(name, index)
    if partition is None:
        problem = name_problem(name)
        error_code = ErrorCode.invalid_topic_exception if problem else ErrorCode.unknown_topic_or_partition
        return {"partition_index": index, "error_code": error_code, "error_message": problem}
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "error_message": None,
        "active_producers": [
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp_ms,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": -1 if entry.first_offset_open is None else entry.first_offset_open,
            }
            for entry in partition.producers.entries()
        ],
    }

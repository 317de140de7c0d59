"""DescribeQuorum (55).

Behaviour: the metadata log has one voter, this broker, which leads it.
Version notes: v1 adds when a replica last fetched and last was caught up (KIP-836); v2 directory ids, error messages
and the nodes' listeners.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer

METADATA = "__cluster_metadata"
NO_DIRECTORY = UUID(int=0)


@api(55, "describe_quorum", range(3))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeQuorum: see the behaviour and version notes above."""
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
    if asked != [(METADATA, [0])]:
        unknown = ErrorCode.unknown_topic_or_partition
        refused = [
            {"topic_name": name, "partitions": [{"partition_index": index, "error_code": unknown} for index in indexes]}
            for name, indexes in asked
        ]
        return {"topics": refused, "error_message": None, "nodes": []}
    now_ms, node_id = broker.clock.now_ms(), broker.config.node_id
    voter = {
        "replica_id": node_id,
        "replica_directory_id": NO_DIRECTORY,
        "log_end_offset": broker.metadata.log_end,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    partition = {
        "partition_index": 0,
        "error_message": None,
        "leader_id": node_id,
        "leader_epoch": broker.metadata.boot_epoch,
        "high_watermark": broker.metadata.log_end,
        "current_voters": [voter],
        "observers": [],
    }
    listeners = [
        {"name": each.listener.protocol, "host": each.advertised[0], "port": each.advertised[1]}
        for each in broker.endpoints
    ]
    return {
        "error_message": None,
        "topics": [{"topic_name": METADATA, "partitions": [partition]}],
        "nodes": [{"node_id": node_id, "listeners": listeners}],
    }

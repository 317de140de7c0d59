"""OffsetForLeaderEpoch (23).

Behaviour: the largest epoch not above the asked one, and the offset after its last record (KIP-320).
Version notes: v3+ carry a replica id, which clients leave at -2.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer


@api(23, "offset_for_leader_epoch", range(2, 5))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle OffsetForLeaderEpoch: see the behaviour and version notes above."""
    return {
        "topics": [
            {"topic": topic.topic, "partitions": [_one(broker, topic.topic, each) for each in topic.partitions]}
            for topic in request.topics
        ]
    }


def _one(broker: Parts, name: str, wanted: Any) -> dict[str, Any]:
    partition = broker.topics.partition(name, wanted.partition)
    error_code = ErrorCode.unknown_topic_or_partition
    if partition is not None:
        error_code = partition.check_epoch(wanted.current_leader_epoch)
    if partition is None or error_code is not ErrorCode.none:
        return {"partition": wanted.partition, "error_code": error_code, "leader_epoch": -1, "end_offset": -1}
    epoch, end = partition.epoch_end(wanted.leader_epoch)
    return {"partition": wanted.partition, "leader_epoch": epoch, "end_offset": end}

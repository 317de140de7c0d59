"""WriteTxnMarkers (27).

Behaviour: for operators who abort a hanging transaction (`kafka-transactions.sh abort`); this broker's coordinator
writes its markers directly. A partition that doesn't exist is answered UNKNOWN_TOPIC_OR_PARTITION, an outdated epoch
INVALID_PRODUCER_EPOCH.
Version notes: v2 names the transaction version (KIP-1228); with transaction version 2 a marker must have a later
epoch than the records of the transaction that it ends (KIP-890).
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer


@api(27, "write_txn_markers", range(1, 3), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle WriteTxnMarkers: see the behaviour and version notes above."""
    return {"markers": [await _write(broker, marker, version) for marker in request.markers]}


async def _write(broker: Parts, marker: Any, version: int) -> dict[str, Any]:
    bumped = version >= 2 and marker.transaction_version >= 2
    topics = []
    for topic in marker.topics:
        partitions = []
        for index in topic.partition_indexes:
            broker.metadata.changes.go_on()
            try:
                error_code = await broker.transactions.markers.write_one(
                    (topic.name, index),
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.transaction_result,
                    bumped=bumped,
                )
            except NoSpace:
                error_code = ErrorCode.kafka_storage_error
            partitions.append({"partition_index": index, "error_code": error_code})
        topics.append({"name": topic.name, "partitions": partitions})
    return {"producer_id": marker.producer_id, "topics": topics}

"""AddOffsetsToTxn (25).

Behaviour: makes the partition that holds the group's offsets part of the transaction.
Version notes: v2 returns PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.owner import owner_of
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.metadata.topic_names import OFFSETS_PARTITION
from embedded_broker.wire.responses import Answer


@api(25, "add_offsets_to_txn", range(5))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle AddOffsetsToTxn: see the behaviour and version notes above."""
    error_code = await broker.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [OFFSETS_PARTITION],
        owner=owner_of(conn),
    )
    if version < 2 and error_code is ErrorCode.producer_fenced:
        error_code = ErrorCode.invalid_producer_epoch
    return {"error_code": error_code}

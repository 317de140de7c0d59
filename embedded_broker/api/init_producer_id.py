"""InitProducerId (22).

Behaviour: without a transactional id a producer gets a new id. With one, its epoch is bumped, which fences earlier
producers with that id; an open transaction is aborted first, and the response is CONCURRENT_TRANSACTIONS until that is
done.
Version notes: v3 names the id and epoch that the producer has (KIP-360); v4 returns PRODUCER_FENCED instead of
INVALID_PRODUCER_EPOCH; v6 (two-phase commit, KIP-939) is not offered.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.owner import owner_of
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer

NOBODY = (-1, -1)


@api(22, "init_producer_id", range(6))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle InitProducerId: see the behaviour and version notes above."""
    claimed = (request.producer_id, request.producer_epoch) if version >= 3 else NOBODY
    if claimed != NOBODY and -1 in claimed:
        return {"error_code": ErrorCode.invalid_request, "producer_id": -1, "producer_epoch": -1}
    identity = await broker.transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout // timedelta(milliseconds=1),
        None if claimed == NOBODY else claimed,
        owner_of(conn),
    )
    error_code = identity.error_code
    if version < 4 and error_code is ErrorCode.producer_fenced:
        error_code = ErrorCode.invalid_producer_epoch
    return {"error_code": error_code, "producer_id": identity.producer_id, "producer_epoch": identity.epoch}

"""EndTxn (26).

Behaviour: answered once the decision is on disk; markers and offsets become visible shortly after. (Up to v4, a commit
of a transaction with one partition is decided by its marker, and so visible before it is answered.) A repeated request
gets the same response once the transaction is complete, and CONCURRENT_TRANSACTIONS until then.
Version notes: v2 returns PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v5 (transaction version 2, KIP-890) bumps
the epoch and returns it to the client, so a delayed request can't end the next transaction.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer

BUMP_SINCE = 5


@api(26, "end_txn", range(6))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle EndTxn: see the behaviour and version notes above."""
    identity = await broker.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        bump=version >= BUMP_SINCE,
    )
    error_code = identity.error_code
    if version < 2 and error_code is ErrorCode.producer_fenced:
        error_code = ErrorCode.invalid_producer_epoch
    return {"error_code": error_code, "producer_id": identity.producer_id, "producer_epoch": identity.epoch}

"""DescribeTransactions (65).

Behaviour: state, producer and partitions of transactional ids.
Version notes: only v0 exists.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer

PARTITION_BYTES = 50
"""Numbers in a row."""
EPOCH = datetime.fromtimestamp(0, UTC)


@api(65, "describe_transactions", range(1))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeTransactions: see the behaviour and version notes above."""
    found, share = [], conn.share()
    for name in request.transactional_ids:
        found.append(_describe(broker, name))
        partitions = sum(len(topic["partitions"]) for topic in found[-1].get("topics", ()))
        await share.spent(5 + partitions, PARTITION_BYTES * partitions)
    return {"transaction_states": found}


def _describe(broker: Parts, transactional_id: str) -> dict[str, Any]:
    found = broker.transactions.get(transactional_id)
    if found is None:
        error_code = ErrorCode.transactional_id_not_found if transactional_id else ErrorCode.invalid_request
        return {"error_code": error_code, "transactional_id": transactional_id}
    topics: dict[str, list[int]] = defaultdict(list)
    for name, index in sorted(found.partitions):
        topics[name].append(index)
    return {
        "error_code": ErrorCode.none,
        "transactional_id": transactional_id,
        "transaction_state": found.state.label,
        "transaction_timeout": timedelta(milliseconds=found.timeout_ms),
        "transaction_start_time": EPOCH + timedelta(milliseconds=found.start_ms),
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "topics": [{"topic": name, "partitions": tuple(indexes)} for name, indexes in topics.items()],
    }

"""ListTransactions (66).

Behaviour: all transactional ids that match every filter; unknown states in the filter are returned.
Version notes: v1 adds the duration filter, which is compared with the time since the start of the last transaction,
whether or not it is complete; v2 adds the pattern for transactional ids.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, HasClock, HasTransactions
from embedded_broker.api.registry import api
from embedded_broker.state.transactions import Transaction, TxnState
from embedded_broker.wire.responses import Answer

LABELS = frozenset(state.label for state in TxnState)


class Needs(HasClock, HasTransactions, Protocol):
    """The parts of the broker that are used here."""


@api(66, "list_transactions", range(3))
async def handle(broker: Needs, conn: Client, request: Any, version: int) -> Answer:
    """Handle ListTransactions: see the behaviour and version notes above."""
    duration_ms = request.duration_filter if version >= 1 else -1
    try:
        pattern = re.compile((request.transactional_id_pattern if version >= 2 else None) or ".*")
    except re.error:
        return {"error_code": ErrorCode.invalid_regular_expression}
    now_ms = broker.clock.now_ms()

    def passes(transaction: Transaction) -> bool:
        if request.state_filters and transaction.state.label not in request.state_filters:
            return False
        if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
            return False
        if duration_ms >= 0 and now_ms - transaction.start_ms <= duration_ms:
            return False
        return pattern.fullmatch(transaction.transactional_id) is not None

    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": tuple(sorted(set(request.state_filters) - LABELS)),
        "transaction_states": [
            {
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.producer_id,
                "transaction_state": transaction.state.label,
            }
            for transaction in broker.transactions.all()
            if passes(transaction)
        ],
    }

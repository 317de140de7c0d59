"""ListTransactions (66).

Behaviour: all transactional ids that match every filter and that the client may describe; unknown states in the filter
are returned.
Version notes: v1 adds the duration filter, which is compared with the time since the start of the last transaction,
whether or not it is complete; v2 adds the pattern for transactional ids, in RE2's syntax (KIP-1152).
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.security.acls import Operation, Resource
from embedded_broker.state.patterns import BadPattern, NamePattern
from embedded_broker.state.transactions import Transaction, TxnState
from embedded_broker.wire.responses import ENTRY_BYTES, Answer

LABELS = frozenset(state.label for state in TxnState)
INSTRUCTIONS_A_STEP = 50
"""Of a pattern, each with one character."""


@api(66, "list_transactions", range(3))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle ListTransactions: see the behaviour and version notes above."""
    text = request.transactional_id_pattern if version >= 2 else None
    try:
        pattern = NamePattern(text) if text else None
    except BadPattern:
        return {"error_code": ErrorCode.invalid_regular_expression}
    duration_ms = request.duration_filter if version >= 1 else -1
    now_ms, authorizer = broker.clock.now_ms(), broker.security.authorizer
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)

    def passes(transaction: Transaction) -> bool:
        if states and transaction.state.label not in states:
            return False
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        if duration_ms >= 0 and now_ms - transaction.start_ms <= duration_ms:
            return False
        name = transaction.transactional_id
        # Before the pattern: a client pays for its own ids only, and learns nothing of others by how long it takes.
        return authorizer is None or authorizer.may(conn.session, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name)

    share = conn.share()
    found = list[Transaction]()
    for transaction in broker.transactions.all():
        await share.spent(2)
        if not passes(transaction):
            continue
        if pattern is not None:
            name = transaction.transactional_id
            await share.spent(pattern.size * len(name) // INSTRUCTIONS_A_STEP)
            if not pattern.matches(name):
                continue
        found.append(transaction)
        await share.spent(1, ENTRY_BYTES + len(transaction.transactional_id))
    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": tuple(sorted(states - LABELS)),
        "transaction_states": [
            {
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.producer_id,
                "transaction_state": transaction.state.label,
            }
            for transaction in found
        ],
    }

"""SaslHandshake (17).

Behaviour: the client names the mechanism of the login that follows. If that isn't enabled, the response lists the
enabled ones, and the connection is closed. Reauthentication (KIP-368) is accepted once a second at most, if sessions
have a lifetime (`connections.max.reauth.ms`); it must be by the same mechanism. Otherwise, and on a listener without
SASL, the answer is ILLEGAL_SASL_STATE.
Version notes: after a v0 request tokens are sent without a request header, preceded only by their size.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer


@api(17, "sasl_handshake", range(2))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle SaslHandshake: see the behaviour and version notes above."""
    mechanisms = list(broker.security.mechanisms)
    session, now_s = conn.session, asyncio.get_running_loop().time()
    if not session.may_begin(now_s):
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
    if request.mechanism not in mechanisms:
        session.fail(f"Unsupported SASL mechanism {request.mechanism[:100]!r}")
        return {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": mechanisms}
    exchange = broker.security.exchange(request.mechanism, session.is_again)
    session.begin(request.mechanism, exchange, now_s, has_headers=version > 0)
    conn.expect_tokens()
    return {"mechanisms": mechanisms}

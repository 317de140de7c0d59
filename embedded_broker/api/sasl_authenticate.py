"""SaslAuthenticate (36).

Behaviour: one token of the SASL exchange, and the response to it. A failed login is answered after a short delay, as in
Kafka (`connection.failed.authentication.delay.ms`), and closes the connection.
Version notes: v1+ return the session's lifetime (`connections.max.reauth.ms`; 0: unlimited). A connection with an
expired session is closed at its next request, unless that is a SaslHandshake; also with clients of v0, which don't get
the lifetime.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.security.session import LoginFailed
from embedded_broker.wire.responses import Answer


@api(36, "sasl_authenticate", range(3))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle SaslAuthenticate: see the behaviour and version notes above."""
    if conn.session.is_ready:
        message = "SaslAuthenticate request received after successful authentication"
        return {"error_code": ErrorCode.illegal_sasl_state, "error_message": message, "auth_bytes": b""}
    try:
        answer = conn.session.step(request.auth_bytes, asyncio.get_running_loop().time())
        return {"auth_bytes": answer, "error_message": None, "session_lifetime": conn.session.lifetime_ms}
    except LoginFailed as failed:
        await asyncio.sleep(broker.config.login_failed_delay_ms / 1000)
        return {
            "error_code": ErrorCode.sasl_authentication_failed,
            "error_message": str(failed),
            "auth_bytes": b"",
        }

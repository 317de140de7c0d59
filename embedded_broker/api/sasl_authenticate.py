"""SaslAuthenticate (36).

Behaviour: one token of the login, and the answer to it. A failed login is answered after a short delay, as in Kafka
(`connection.failed.authentication.delay.ms`), and ends the connection.
Version notes: v1+ give a session's lifetime: 0, it has none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import Answer, api
from embedded_broker.security.session import LoginFailed

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection


@api(36, "sasl_authenticate", range(3))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    if conn.session.is_ready:
        message = "SaslAuthenticate request received after successful authentication"
        return {"error_code": ErrorCode.illegal_sasl_state, "error_message": message, "auth_bytes": b""}
    try:
        return {"auth_bytes": conn.session.step(request.auth_bytes), "error_message": None}
    except LoginFailed as failed:
        await asyncio.sleep(broker.config.login_failed_delay_ms / 1000)
        return {
            "error_code": ErrorCode.sasl_authentication_failed,
            "error_message": str(failed),
            "auth_bytes": b"",
        }

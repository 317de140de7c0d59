"""SaslHandshake (17).

Behaviour: names the mechanism of the login that follows. One that isn't offered is answered with those that are, and
ends the connection; on a listener without SASL, and after the login, the answer is ILLEGAL_SASL_STATE.
Version notes: v0, whose tokens come without a header, is not spoken; re-authentication (KIP-368) is not asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import Answer, api

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection


@api(17, "sasl_handshake", range(1, 2))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    mechanisms = list(broker.security.mechanisms)
    if conn.session.is_ready:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
    if request.mechanism not in mechanisms:
        conn.session.fail(f"Unsupported SASL mechanism {request.mechanism[:100]!r}")
        return {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": mechanisms}
    conn.session.begin(broker.security.exchange(request.mechanism))
    return {"mechanisms": mechanisms}

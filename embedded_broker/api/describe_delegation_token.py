"""DescribeDelegationToken (41).

Behaviour: the broker issues no delegation tokens, as Kafka without `delegation.token.secret.key`: a client that has
logged in is answered DELEGATION_TOKEN_AUTH_DISABLED, any other one DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (KIP-48,
`KafkaApis.handleDescribeTokensRequest`).
Version notes: v2 is flexible (KIP-482), v3 adds who has requested a token (KIP-373).
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.config.listeners import Protocol
from embedded_broker.security.session import ANONYMOUS
from embedded_broker.wire.responses import Answer


@api(41, "describe_delegation_token", range(1, 4))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeDelegationToken: see the behaviour and version notes above."""
    protocol, principal = conn.session.endpoint.listener.protocol, conn.session.principal
    # KafkaApis.allowTokenRequests
    unknown = protocol is Protocol.PLAINTEXT or (protocol is Protocol.SSL and principal == ANONYMOUS)
    refusal = ErrorCode.delegation_token_request_not_allowed if unknown else ErrorCode.delegation_token_auth_disabled
    return {"error_code": refusal, "tokens": []}

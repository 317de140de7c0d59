"""AlterClientQuotas (49).

Behaviour: this broker has no quotas: each entry is refused with INVALID_REQUEST, and nothing is changed.
Version notes: all versions are alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import Answer, api

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection

NONE_HERE = "this broker has no client quotas"


@api(49, "alter_client_quotas", range(2))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    return {
        "entries": [
            {
                "error_code": ErrorCode.invalid_request,
                "error_message": NONE_HERE,
                "entity": [{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in each.entity],
            }
            for each in request.entries
        ]
    }

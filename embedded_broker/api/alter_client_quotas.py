"""AlterClientQuotas (49).

Behaviour: this broker has no quotas: every entry is refused with INVALID_REQUEST, unless it only removes quotas.
Version notes: v1 is flexible.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer

NO_QUOTAS = "this broker has no client quotas"


@api(49, "alter_client_quotas", range(2))
async def handle(broker: object, conn: Client, request: Any, version: int) -> Answer:
    """Handle AlterClientQuotas: see the behaviour and version notes above."""
    return {"entries": [_refusal(entry) for entry in request.entries]}


def _refusal(entry: Any) -> dict[str, Any]:
    sets = any(not change.remove for change in entry.ops)
    return {
        "error_code": ErrorCode.invalid_request if sets else ErrorCode.none,
        "error_message": NO_QUOTAS if sets else None,
        "entity": [{"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity],
    }

"""FindCoordinator (10).

Behaviour: this broker coordinates every group and every transactional id.
Version notes: v1 adds the key type; v4 asks for many keys at once; v6 adds share groups, which are not supported.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer

GROUP, TRANSACTION = 0, 1


@api(10, "find_coordinator", range(7))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle FindCoordinator: see the behaviour and version notes above."""
    key_type = request.key_type if version >= 1 else GROUP
    keys = request.coordinator_keys if version >= 4 else (request.key,)
    here = {
        "error_code": ErrorCode.none,
        "node_id": broker.config.node_id,
        "host": conn.advertised[0],
        "port": conn.advertised[1],
    }
    nowhere = {
        "error_code": ErrorCode.invalid_request,
        "error_message": f"no coordinator for keys of type {key_type}",
        "node_id": -1,
        "host": "",
        "port": -1,
    }
    found = here if key_type in (GROUP, TRANSACTION) else nowhere
    if version < 4:
        return found
    return {"coordinators": [{"key": key, **found} for key in keys]}

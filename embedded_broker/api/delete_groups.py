"""DeleteGroups (42).

Behaviour: deletes groups without members, with their offsets.
Version notes: v2 is flexible (KIP-482).
"""

from __future__ import annotations

from typing import Any

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer


@api(42, "delete_groups", range(3), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DeleteGroups: see the behaviour and version notes above."""
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        broker.metadata.changes.go_on()
        results.append({"group_id": group_id, "error_code": await broker.groups.delete(group_id)})
    return {"results": results}

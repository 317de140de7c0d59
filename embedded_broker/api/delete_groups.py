"""DeleteGroups (42).

Behaviour: deletes groups without members, with their offsets.
Version notes: all versions are alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.net.connection import Connection


@api(42, "delete_groups", range(3))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """Handle DeleteGroups: see the behaviour and version notes above."""
    return {
        "results": [
            {"group_id": group_id, "error_code": await broker.groups.delete(group_id)}
            for group_id in dict.fromkeys(request.groups_names)
        ]
    }

"""Heartbeat (12).

Behaviour: keeps a member's session alive; REBALANCE_IN_PROGRESS asks it to join again.
Version notes: v3 adds static members.
"""

from __future__ import annotations

from typing import Any

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer


@api(12, "heartbeat", range(5))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle Heartbeat: see the behaviour and version notes above."""
    instance_id = request.group_instance_id if version >= 3 else None
    error_code = broker.groups.classic.heartbeat(
        request.group_id, request.member_id, instance_id, request.generation_id
    )
    return {"error_code": error_code}

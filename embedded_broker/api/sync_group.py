"""SyncGroup (14).

Behaviour: answered when the leader's assignment is on disk.
Version notes: v3 adds static members; v5 names the protocol, which is checked and returned.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.state.group_types import SyncRequest
from embedded_broker.wire.responses import Answer


@api(14, "sync_group", range(6))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle SyncGroup: see the behaviour and version notes above."""
    if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return {"error_code": ErrorCode.inconsistent_group_protocol}

    def make(ticket: object) -> SyncRequest:
        return SyncRequest(
            ticket=ticket,
            member_id=request.member_id,
            instance_id=request.group_instance_id if version >= 3 else None,
            generation=request.generation_id,
            protocol_type=request.protocol_type if version >= 5 else None,
            protocol_name=request.protocol_name if version >= 5 else None,
            assignment={each.member_id: each.assignment for each in request.assignments},
        )

    answer = await broker.groups.classic.sync(request.group_id, make)
    return {
        "error_code": answer.error_code,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }

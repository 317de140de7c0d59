"""LeaveGroup (13).

Behaviour: members leave at once and the others rebalance. Admin clients may remove members of groups of both protocols.
Version notes: up to v2 one member leaves, and the response has its error; from v3 several may, each with its own error.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.state.consumer_groups import ConsumerGroup
from embedded_broker.wire.responses import Answer

Leaving = list[tuple[str, str | None]]


@api(13, "leave_group", range(6))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle LeaveGroup: see the behaviour and version notes above."""
    if version < 3:
        error_code, results = await _leave(broker, request.group_id, [(request.member_id, None)])
        return {"error_code": results[0] if error_code is ErrorCode.none else error_code}
    leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    error_code, results = await _leave(broker, request.group_id, leaving)
    return {
        "error_code": error_code,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": result}
            for (member_id, instance_id), result in zip(leaving, results, strict=False)
        ],
    }


async def _leave(broker: Parts, group_id: str, leaving: Leaving) -> tuple[ErrorCode, list[ErrorCode]]:
    group = broker.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return ErrorCode.none, await broker.groups.consumer.remove(group, leaving)
    return broker.groups.classic.leave(group_id, leaving)

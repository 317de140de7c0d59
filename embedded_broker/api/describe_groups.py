"""DescribeGroups (15).

Behaviour: members show their metadata only while the group is stable.
Version notes: a group that doesn't exist is Dead up to v5 and GROUP_ID_NOT_FOUND from v6 on (KIP-1043).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import Answer, api

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection
    from embedded_broker.state.groups import Group


@api(15, "describe_groups", range(7))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    return {"groups": [_describe(group_id, broker.groups.get(group_id), version) for group_id in request.groups]}


def _describe(group_id: str, group: Group | None, version: int) -> dict[str, Any]:
    if group is None:
        missing = ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none
        message = f"Group {group_id} not found." if version >= 6 else None
        return {"error_code": missing, "error_message": message, "group_id": group_id, "group_state": "Dead"}
    stable = group.state == "Stable"
    return {
        "error_code": ErrorCode.none,
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol_name or "") if stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol_name) if stable else b"",
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
    }

"""DescribeGroups (15).

Behaviour: members show their metadata only while the group is stable. The authorized operations of an existing group
are returned on request.
Version notes: a group that doesn't exist, or isn't a classic one, is Dead; from v6 on with GROUP_ID_NOT_FOUND
(KIP-1043).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.security.acls import Resource
from embedded_broker.security.operations import authorized
from embedded_broker.state.groups import Group
from embedded_broker.wire.responses import ENTRY_BYTES, Answer

if TYPE_CHECKING:
    from embedded_broker.coordinators.group_registry import AnyGroup


MISSING = "Dead"


@api(15, "describe_groups", range(7))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeGroups: see the behaviour and version notes above."""
    groups, share = [], conn.share()
    for group_id in request.groups:
        groups.append(_describe(group_id, broker.groups.get(group_id), version))
        members = groups[-1].get("members", ())
        of_members = sum(len(each["member_metadata"]) + len(each["member_assignment"]) for each in members)
        await share.spent(3 + 3 * len(members), 2 * ENTRY_BYTES * len(members) + of_members)
    if getattr(request, "include_authorized_operations", False):
        tell_rights(broker, conn, [group for group in groups if group["group_state"] != MISSING])
    return {"groups": groups}


def tell_rights(broker: Parts, conn: Client, groups: list[dict[str, Any]]) -> None:
    """Add to the groups that are described without an error what the client may do with them."""
    for group in groups:
        if group.get("error_code", ErrorCode.none) is ErrorCode.none:
            operations = authorized(broker.security.authorizer, conn.session, Resource.GROUP, group["group_id"])
            group["authorized_operations"] = operations


def _describe(group_id: str, group: AnyGroup | None, version: int) -> dict[str, Any]:
    if not isinstance(group, Group):
        missing = ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none
        reason = "not found" if group is None else "is not a classic group"
        message = f"Group {group_id} {reason}." if version >= 6 else None
        return {"error_code": missing, "error_message": message, "group_id": group_id, "group_state": MISSING}
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

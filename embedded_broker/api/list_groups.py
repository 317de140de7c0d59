"""ListGroups (16).

Behaviour: all groups, also those that only hold offsets.
Version notes: v4 filters by state, v5 by type; all groups here are of type classic. Filters ignore case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import Answer, api

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection
TYPE = "classic"


@api(16, "list_groups", range(6))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    states = {state.lower() for state in request.states_filter} if version >= 4 else set()
    types = {kind.lower() for kind in request.types_filter} if version >= 5 else set()
    return {
        "error_code": ErrorCode.none,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state.value,
                "group_type": TYPE,
            }
            for group in broker.groups.all()
            if (not states or group.state.value.lower() in states) and (not types or TYPE in types)
        ],
    }

"""ListGroups (16).

Behaviour: all groups, also those that only hold offsets.
Version notes: v4 filters by state, v5 by type: classic, or consumer (KIP-848). Filters ignore case.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.coordinators.group_registry import AnyGroup
from embedded_broker.state.consumer_groups import ConsumerGroup
from embedded_broker.wire.responses import ENTRY_BYTES, Answer


@api(16, "list_groups", range(6))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle ListGroups: see the behaviour and version notes above."""
    states = {state.lower() for state in request.states_filter} if version >= 4 else set()
    types = {kind.lower() for kind in request.types_filter} if version >= 5 else set()
    groups, share = [], conn.share()
    for group in broker.groups.all():
        entry = _entry(group)
        if (not states or entry["group_state"].lower() in states) and (not types or entry["group_type"] in types):
            groups.append(entry)
            await share.spent(2, ENTRY_BYTES + len(group.group_id))
        else:
            await share.spent(2)
    return {"error_code": ErrorCode.none, "groups": groups}


def _entry(group: AnyGroup) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "protocol_type": "consumer" if isinstance(group, ConsumerGroup) else group.protocol_type or "",
        "group_state": group.state.value,
        "group_type": "consumer" if isinstance(group, ConsumerGroup) else "classic",
    }

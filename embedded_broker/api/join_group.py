"""JoinGroup (11).

Behaviour: answered when the rebalance is over. A member that disconnects meanwhile stays until its session expires.
Version notes: v1 adds the rebalance timeout; from v4 a new member must join again with the member id that it is given
(KIP-394); v5 adds static members; v7 the protocol type in the answer, and null for an absent protocol; v9
skip_assignment (KIP-814).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from embedded_broker.api.owner import owner_of
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.state.group_types import JoinRequest
from embedded_broker.wire.responses import Answer

MILLISECOND = timedelta(milliseconds=1)
PREFIX_MAX = 250
"""Of a member id: how much of the client's name is in it."""


@api(11, "join_group", range(10))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle JoinGroup: see the behaviour and version notes above."""
    rebalance_timeout = request.rebalance_timeout if version >= 1 else request.session_timeout
    instance_id = request.group_instance_id if version >= 5 else None
    client_id, client_host = conn.client_id, conn.client_host

    def make(ticket: object, suffix: str) -> JoinRequest:
        return JoinRequest(
            ticket=ticket,
            member_id=request.member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host=client_host,
            session_timeout_ms=request.session_timeout // MILLISECOND,
            rebalance_timeout_ms=rebalance_timeout // MILLISECOND,
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            must_know_member_id=version >= 4,
            can_skip_assignment=version >= 9,
            new_member_id=f"{(instance_id or client_id)[:PREFIX_MAX]}-{suffix}",
        )

    answer = await broker.groups.classic.join(request.group_id, make, owner_of(conn))
    protocol_name = answer.protocol_name
    return {
        "error_code": answer.error_code,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": (protocol_name or "") if version < 7 else protocol_name,
        "leader": answer.leader_id,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": member_instance_id, "metadata": metadata}
            for member_id, member_instance_id, metadata in answer.members
        ],
    }

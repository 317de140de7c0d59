"""ListConfigResources (74).

Behaviour: lists topics, this broker, and groups with their own configs. There are no client metrics (KIP-714).
Version notes: v0 lists client metrics only; v1 accepts the types to list, and without any lists all (KIP-1142).
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import ENTRY_BYTES, Answer

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


@api(74, "list_config_resources", range(2))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle ListConfigResources: see the behaviour and version notes above."""
    kinds = (tuple(request.resource_types) or KINDS) if version >= 1 else (CLIENT_METRICS,)
    if not set(kinds) <= set(KINDS):
        return {"error_code": ErrorCode.unsupported_version}
    names = {
        TOPIC: sorted(broker.topics.names()),
        BROKER: [str(broker.config.node_id)],
        GROUP: broker.group_configs.ids(),
    }
    found = [{"resource_type": kind, "resource_name": name} for kind in kinds for name in names.get(kind, ())]
    await conn.share().spent(len(found), sum(ENTRY_BYTES + len(each["resource_name"]) for each in found))
    return {"config_resources": found}

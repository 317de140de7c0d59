"""DescribeClientQuotas (48).

Behaviour: the quotas that match a filter. The broker enforces only connection_creation_rate, so throttle_time_ms is 0
in all answers.
Version notes: v1 is flexible.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.metadata.client_quotas import Component, QuotaRejected, UnknownEntityType, check_filter, meets
from embedded_broker.wire.responses import ENTRY_BYTES, Answer


@api(48, "describe_client_quotas", range(2))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeClientQuotas: see the behaviour and version notes above."""
    components = [Component(each.entity_type, each.match_type, each.match) for each in request.components]
    try:
        check_filter(components)
    except UnknownEntityType as error:
        return {"error_code": ErrorCode.unsupported_version, "error_message": str(error), "entries": None}
    except QuotaRejected as error:
        return {"error_code": ErrorCode.invalid_request, "error_message": str(error), "entries": None}
    share, entries = conn.share(), []
    for entity, quotas in broker.client_quotas.all():
        await share.spent(1)
        if meets(entity, components, request.strict):
            entries.append(
                {
                    "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                    "values": [{"key": key, "value": value} for key, value in quotas.items()],
                }
            )
            await share.spent(5, sum(ENTRY_BYTES + len(name or "") for name in entity.values()))
    return {"error_message": None, "entries": entries}

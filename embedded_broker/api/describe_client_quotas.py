"""DescribeClientQuotas (48).

Behaviour: this broker has no quotas: an empty list.
Version notes: v1 is flexible.
"""

from __future__ import annotations

from typing import Any

from embedded_broker.api.ports import Client
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer


@api(48, "describe_client_quotas", range(2))
async def handle(broker: object, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeClientQuotas: see the behaviour and version notes above."""
    return {"error_message": None, "entries": []}

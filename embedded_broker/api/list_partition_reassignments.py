"""ListPartitionReassignments (46).

Behaviour: there is one broker, so there are no reassignments: an empty list.
Version notes: only v0 exists.
"""

from __future__ import annotations

from typing import Any

from embedded_broker.api.ports import Client
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer


@api(46, "list_partition_reassignments", range(1))
async def handle(broker: object, conn: Client, request: Any, version: int) -> Answer:
    """Handle ListPartitionReassignments: see the behaviour and version notes above."""
    return {"error_message": None, "topics": []}

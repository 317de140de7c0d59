"""ListPartitionReassignments (46).

Behaviour: there is one broker, so there are no reassignments: an empty list.
Version notes: only v0 exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from embedded_broker.api.registry import api
from embedded_broker.wire.responses import Answer

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.net.connection import Connection


@api(46, "list_partition_reassignments", range(1))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """Handle ListPartitionReassignments: see the behaviour and version notes above."""
    return {"error_message": None, "topics": []}

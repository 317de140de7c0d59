"""DescribeCluster (60).

Behaviour: one broker, which is also the controller. The authorized operations are returned on request.
Version notes: v1 and later can request the endpoints of controllers, which are the broker's.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.security.operations import authorized_on_cluster
from embedded_broker.wire.responses import Answer

BROKERS = 1


@api(60, "describe_cluster", range(3))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeCluster: see the behaviour and version notes above."""
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    if endpoint_type != BROKERS:
        return {"error_code": ErrorCode.unsupported_endpoint_type, "endpoint_type": endpoint_type, "cluster_id": ""}
    allowed = {}
    if request.include_cluster_authorized_operations:
        operations = authorized_on_cluster(broker.security.authorizer, conn.session)
        allowed["cluster_authorized_operations"] = operations
    return {
        **allowed,
        "endpoint_type": BROKERS,
        "cluster_id": broker.metadata.cluster_id,
        "controller_id": broker.config.node_id,
        "brokers": [{"broker_id": broker.config.node_id, "host": conn.advertised[0], "port": conn.advertised[1]}],
    }

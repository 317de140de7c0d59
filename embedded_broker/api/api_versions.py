"""ApiVersions (18).

Behaviour: what `registry` knows, also before a login; no features are finalized, which means
transaction protocol 1.
Version notes: a version that is too new is answered in version 0 with UNSUPPORTED_VERSION (KIP-511), by the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import APIS, Answer, api

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection


@api(18, "api_versions", range(5))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    if version >= 3 and not conn.session.introduce(request.client_software_name, request.client_software_version):
        return {"error_code": ErrorCode.invalid_request, "api_keys": []}
    conn.session.versions_given()
    return {
        "api_keys": [
            {"api_key": key, "min_version": APIS[key].versions[0], "max_version": APIS[key].versions[-1]}
            for key in sorted(APIS)
        ]
    }

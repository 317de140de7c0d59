"""ApiVersions (18).

Behaviour: returns the APIs of the table above, also before authentication. The feature transaction.version is finalized
at 2 (KIP-890), so clients that support it add partitions by their batches and get a new epoch at the end of each
transaction. group.version is 1 (KIP-848).
Version notes: a version that is too new is answered in version 0 with UNSUPPORTED_VERSION (KIP-511), by the server.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client
from embedded_broker.api.registry import APIS, api
from embedded_broker.wire.responses import Answer, Same

PRODUCE = 0
SAID_MIN = {PRODUCE: 0}
"""Versions below the real lowest: librdkafka before 2.10 compresses only if Produce 0 is listed (KAFKA-18659)."""
FEATURES_EPOCH = 0
"""Features never change while a broker runs."""
FEATURES = {"group.version": 1, "transaction.version": 2}
"""Name → the highest version known, which is the finalized one. The lowest is 0."""
FEATURES_FROM_ZERO_SINCE = 4
"""Clients can't read a supported feature whose lowest version is 0 before (KIP-1022)."""


@api(18, "api_versions", range(5))
async def handle(broker: object, conn: Client, request: Any, version: int) -> Answer:
    """Handle ApiVersions: see the behaviour and version notes above."""
    if version >= 3 and not conn.session.introduce(request.client_software_name, request.client_software_version):
        return {"error_code": ErrorCode.invalid_request, "api_keys": []}
    conn.session.versions_given()
    return _answer(version)


@cache
def _answer(version: int) -> Same:
    return Same(
        {
            "api_keys": [
                {"api_key": key, "min_version": SAID_MIN.get(key, known.versions[0]), "max_version": known.versions[-1]}
                for key, known in sorted(APIS.items())
            ],
            "supported_features": [
                {"name": name, "min_version": 0, "max_version": level}
                for name, level in FEATURES.items()
                if version >= FEATURES_FROM_ZERO_SINCE
            ],
            "finalized_features_epoch": FEATURES_EPOCH,
            "finalized_features": [
                {"name": name, "min_version_level": level, "max_version_level": level}
                for name, level in FEATURES.items()
            ],
        }
    )

"""DescribeUserScramCredentials (50).

Behaviour: the mechanisms and iterations of stored credentials. Users that are only in the users file are not included.
A user named twice: DUPLICATE_RESOURCE; one without a credential: RESOURCE_NOT_FOUND.
Version notes: there is v0 only.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.security.credentials import TYPES
from embedded_broker.wire.responses import ENTRY_BYTES, Answer

NUMBERS = {name: number for number, name in TYPES.items()}


@api(50, "describe_user_scram_credentials", range(1))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeUserScramCredentials: see the behaviour and version notes above."""
    stored = broker.security.credentials.stored()
    times = Counter(each.name for each in request.users or ()) or Counter(stored.keys())
    share, results = conn.share(), []
    for name in sorted(times):
        await share.spent(5, ENTRY_BYTES + 2 * len(name))
        results.append(_one(name, times[name], stored.get(name, ())))
    return {"error_message": None, "results": results}


def _one(name: str, times: int, found: Any) -> dict[str, Any]:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return {"user": name, "error_code": ErrorCode.duplicate_resource, "error_message": message,
                "credential_infos": []}  # fmt: skip
    if not found:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return {"user": name, "error_code": ErrorCode.resource_not_found, "error_message": message,
                "credential_infos": []}  # fmt: skip
    infos = [{"mechanism": NUMBERS[mechanism], "iterations": iterations} for mechanism, iterations in found]
    return {"user": name, "error_message": None, "credential_infos": infos}

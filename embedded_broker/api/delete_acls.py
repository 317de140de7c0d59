"""DeleteAcls (31).

Behaviour: the ACLs that match each filter are durably deleted before the response, which lists them; on a full disk all
of them or none. Other requests are handled between two filters. Without an authorizer: SECURITY_DISABLED.
Version notes: v2 is flexible (KIP-482), v3 adds the resource type USER (KIP-373).
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.create_acls import DISABLED
from embedded_broker.api.describe_acls import ENTRY_BYTES, entry, filter_of
from embedded_broker.api.disk_full import refusal
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer


@api(31, "delete_acls", range(1, 4), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DeleteAcls: see the behaviour and version notes above."""
    authorizer = broker.security.authorizer
    results: list[dict[str, Any]] = []
    share = conn.share()
    for wanted in request.filters:
        if authorizer is None:
            results.append({"error_code": ErrorCode.security_disabled, "error_message": DISABLED, "matching_acls": []})
            continue
        try:
            found = await authorizer.remove(filter_of(wanted), share)
            await share.spent(0, (1 + len(found)) * ENTRY_BYTES)
        except ValueError as error:
            results.append({"error_code": ErrorCode.invalid_request, "error_message": str(error), "matching_acls": []})
            continue
        except NoSpace as error:
            results.append({**refusal(error), "matching_acls": []})
            continue
        matching = [
            {"resource_type": int(acl.resource), "resource_name": acl.name, "pattern_type": int(acl.pattern),
             "error_message": None, **entry(acl)}
            for acl in found
        ]  # fmt: skip
        results.append({"error_message": None, "matching_acls": matching})
    return {"filter_results": results}

"""CreateAcls (30).

Behaviour: each ACL is durable, and in effect, before the response; creating an existing ACL is no error. Without an
authorizer: SECURITY_DISABLED. On a full disk: KAFKA_STORAGE_ERROR for those that could not be created, and
POLICY_VIOLATION when metadata takes too much memory. Checks and messages as in AclApis and AclControlManager.
Version notes: v2 is flexible (KIP-482), v3 adds the resource type USER (KIP-373).
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.disk_full import refusal
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, Resource
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer

DISABLED = "No Authorizer is configured."
NO_COLON = "(no colon is present separating the principal type from the principal name)"
KINDS = frozenset(map(int, Resource))
CREATION_STEPS = 5
"""To look at one."""


@api(30, "create_acls", range(1, 4), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle CreateAcls: see the behaviour and version notes above."""
    authorizer = broker.security.authorizer
    if authorizer is None:
        refused = {"error_code": ErrorCode.security_disabled, "error_message": DISABLED}
        return {"results": [refused for _ in request.creations]}
    results: list[dict[str, Any]] = []
    share = conn.share()
    for wanted in request.creations:
        await share.spent(CREATION_STEPS)
        try:
            acl = _acl(wanted)
        except ValueError as error:
            results.append({"error_code": ErrorCode.invalid_request, "error_message": str(error)})
            continue
        if _is_filter(acl):
            results.append({"error_code": ErrorCode.unknown_server_error, "error_message": None})
            continue
        try:
            await authorizer.add(acl, share)
            results.append({"error_message": None})
        except NoSpace as error:
            results.append(refusal(error))
    return {"results": results}


def _acl(wanted: Any) -> Acl:
    """Make the ACL that is asked for. Raises ValueError."""
    if wanted.resource_type == Resource.CLUSTER and wanted.resource_name != CLUSTER_NAME:
        raise ValueError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not wanted.resource_name:
        raise ValueError("Invalid empty resource name")
    kind, colon, name = wanted.principal.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"Could not parse principal from `{wanted.principal}` {NO_COLON}")
    if wanted.resource_type not in KINDS:
        raise ValueError("Invalid resourceType UNKNOWN")
    return Acl(
        Resource(wanted.resource_type),
        wanted.resource_name,
        PatternType(wanted.resource_pattern_type),
        wanted.principal,
        wanted.host,
        Operation(wanted.operation),
        Permission(wanted.permission_type),
    )


def _is_filter(acl: Acl) -> bool:
    """Return whether it has a type that only filters may have; Kafka fails over these."""
    return (
        acl.resource is Resource.ANY
        or acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED)
        or acl.operation is Operation.ANY
        or acl.permission is Permission.ANY
    )

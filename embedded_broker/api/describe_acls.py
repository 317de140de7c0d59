"""DescribeAcls (29).

Behaviour: the ACLs that match a filter, by resource. Without an authorizer: SECURITY_DISABLED.
Version notes: v2 is flexible (KIP-482), v3 adds the resource type USER (KIP-373).
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.security.acls import Acl, Filter, Operation, PatternType, Permission, Resource
from embedded_broker.wire.responses import Answer

DISABLED = "No Authorizer is configured on the broker"
ENTRY_BYTES = 1_000
"""What an ACL takes in an answer, in memory."""


@api(29, "describe_acls", range(1, 4))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeAcls: see the behaviour and version notes above."""
    if broker.security.authorizer is None:
        return {"error_code": ErrorCode.security_disabled, "error_message": DISABLED, "resources": []}
    try:
        wanted = filter_of(request)
    except ValueError as error:
        return {"error_code": ErrorCode.invalid_request, "error_message": str(error), "resources": []}
    share = conn.share()
    acls = await broker.security.authorizer.find(wanted, share)
    await share.spent(0, ENTRY_BYTES * len(acls))
    found = groupby(acls, lambda acl: (acl.resource, acl.name, acl.pattern))
    return {
        "error_message": None,
        "resources": [
            {"resource_type": int(resource), "resource_name": name, "pattern_type": int(pattern),
             "acls": [entry(acl) for acl in acls]}
            for (resource, name, pattern), acls in found
        ],
    }  # fmt: skip


def filter_of(request: Any) -> Filter:
    """Make the filter that a request or an item of it describes. Raises ValueError for a type that doesn't exist."""
    return Filter(
        Resource(request.resource_type_filter),
        request.resource_name_filter,
        PatternType(request.pattern_type_filter),
        request.principal_filter,
        request.host_filter,
        Operation(request.operation),
        Permission(request.permission_type),
    )


def entry(acl: Acl) -> dict[str, Any]:
    """Return what an ACL says, beside what it is about."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }

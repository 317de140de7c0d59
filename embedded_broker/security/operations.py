"""Authorized operations in responses (KIP-430): a bit field with the number of each operation a client may do.

Source: kafka.server.AuthHelper.authorizedOperations, org.apache.kafka.security.authorizer.AclEntry.supportedOperations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from embedded_broker.security.acls import CLUSTER_NAME, Operation, Resource

if TYPE_CHECKING:
    from embedded_broker.security.authorizer import Authorizer
    from embedded_broker.security.session import ClientSession

_CONFIGS = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS})
SUPPORTED: Mapping[Resource, frozenset[Operation]] = {
    Resource.TOPIC: _CONFIGS
    | {Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE, Operation.DELETE, Operation.ALTER},
    Resource.GROUP: _CONFIGS | {Operation.READ, Operation.DESCRIBE, Operation.DELETE},
    Resource.CLUSTER: _CONFIGS
    | {
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    },
}


def authorized(authorizer: Authorizer | None, session: ClientSession, resource: Resource, name: str) -> int:
    """Return the bit field for one resource; without an authorizer all operations are allowed."""
    return sum(
        1 << operation
        for operation in SUPPORTED[resource]
        if authorizer is None or authorizer.may(session, operation, resource, name)
    )


def authorized_on_cluster(authorizer: Authorizer | None, session: ClientSession) -> int:
    """Return the bit field for the cluster: empty for clients that may not describe it."""
    if authorizer is not None and not authorizer.may(session, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized(authorizer, session, Resource.CLUSTER, CLUSTER_NAME)

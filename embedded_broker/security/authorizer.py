"""The authorizer: decides by ACLs in the metadata log, super users, and the setting for resources without ACLs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.security.acl_set import AclSet
from embedded_broker.security.acls import Acl, Filter, Operation, PatternType, Permission, Resource

if TYPE_CHECKING:
    from embedded_broker.config.settings import BrokerConfig
    from embedded_broker.runtime.fair_share import Share
    from embedded_broker.security.session import ClientSession

PREFIX = "acl:"
SCANNED_AT_ONCE, SCANNED_A_STEP = 2_000, 10
"""ACLs that are compared with a filter, before others have their turn, and for a step of `Thresholds.slice_steps`."""
FILTER_STEPS, ACL_STEPS, CHANGE_STEPS = 5, 5, 20
"""Of a filter, of an ACL that it means, and of one that is made or removed."""


class Authorizer:
    """Kafka's StandardAuthorizer.

    Invariant: an ACL holds once it is durable, and no longer once its tombstone is.
    """

    def __init__(self, config: BrokerConfig, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._super_users = config.super_users
        self._default = config.allow_everyone_if_no_acl_found
        self._keys = {
            Acl(
                Resource(body["resource"]),
                body["name"],
                PatternType(body["pattern"]),
                body["principal"],
                body["host"],
                Operation(body["operation"]),
                Permission(body["permission"]),
            ): key
            for key, body in metadata.items()
            if key.startswith(PREFIX)
        }
        self._acls = AclSet(self._keys)

    def may(self, session: ClientSession, operation: Operation, resource: Resource, name: str) -> bool:
        """Return whether the principal of a session may do an operation on a resource."""
        if session.principal in self._super_users:
            return True
        return self._acls.allows(session.principal, session.client_host, operation, resource, name, self._default)

    def may_with_some(self, session: ClientSession, operation: Operation, resource: Resource) -> bool:
        """Return whether they may do it with any resource of a type."""
        if session.principal in self._super_users:
            return True
        if self._default and not self._acls.has_any(resource):
            return True
        return self._acls.allows_some(session.principal, session.client_host, operation, resource)

    async def find(self, wanted: Filter, share: Share) -> list[Acl]:
        """Find the ACLs that a filter means, in order: those that hold now. `share`: of the request that asks."""
        candidates, found = list(self._acls.candidates(wanted)), list[Acl]()
        await share.spent(FILTER_STEPS)
        for first in range(0, len(candidates), SCANNED_AT_ONCE):
            part = candidates[first : first + SCANNED_AT_ONCE]
            matching = wanted.among(part)
            found += matching
            await share.spent(len(part) // SCANNED_A_STEP + len(matching) * ACL_STEPS)
        return sorted(found)

    async def add(self, acl: Acl, share: Share) -> None:
        """Make an ACL hold, durably; one that does already stays as it is.

        Raises NoSpace with nothing changed, or another OSError.
        """
        await share.spent(CHANGE_STEPS)
        async with self._metadata.changes.one():
            if acl not in self._keys:
                await self._add(acl)

    async def _add(self, acl: Acl) -> None:
        key = f"{PREFIX}{uuid.uuid4().hex}"
        body = {
            "resource": int(acl.resource),
            "name": acl.name,
            "pattern": int(acl.pattern),
            "principal": acl.principal,
            "host": acl.host,
            "operation": int(acl.operation),
            "permission": int(acl.permission),
        }
        await self._metadata.put(key, body)
        self._keys[acl] = key
        self._acls.add(acl)

    async def remove(self, wanted: Filter, share: Share) -> list[Acl]:
        """End the ACLs that a filter means, durably: all of them, or none. Returns them in order.

        Raises NoSpace with nothing changed, or another OSError.
        """
        if not self._acls.candidates(wanted):
            await share.spent(FILTER_STEPS)
            self._metadata.changes.go_on()
            return []
        async with self._metadata.changes.one():
            found = await self.find(wanted, share)
            await self._metadata.remove([self._keys[acl] for acl in found])
            for acl in found:
                del self._keys[acl]
                self._acls.remove(acl)
        await share.spent(len(found) * CHANGE_STEPS)
        return found

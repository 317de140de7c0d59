"""ACLs: what they say about a principal, and which of them a filter means. Pure.

Semantics of `org.apache.kafka.metadata.authorizer.StandardAuthorizerData`: a deny beats every allow; allowing to read,
write, delete or alter allows to describe, denying them doesn't deny that; a resource that no ACL names is closed,
unless the broker says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

CLUSTER_NAME = "kafka-cluster"
WILDCARD = "*"
ANY_PRINCIPAL = "User:*"


class Resource(IntEnum):
    """org.apache.kafka.common.resource.ResourceType."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """org.apache.kafka.common.resource.PatternType; the first two are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """org.apache.kafka.common.acl.AclOperation."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """org.apache.kafka.common.acl.AclPermissionType."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_IMPLIED: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""Which allowed operations allow this one too."""


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One rule."""

    resource: Resource
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def covers(self, name: str) -> bool:
        """Whether it is about a resource of that name (and its type)."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def speaks_of(self, principal: str, host: str, operation: Operation) -> bool:
        """Whether it decides about that operation of that principal."""
        if self.principal not in (principal, ANY_PRINCIPAL) or self.host not in (host, WILDCARD):
            return False
        if self.operation in (Operation.ALL, operation):
            return True
        return self.permission is Permission.ALLOW and self.operation in _IMPLIED.get(operation, ())


@dataclass(frozen=True, slots=True)
class Filter:
    """Which ACLs are meant; None and ANY mean all (AclBindingFilter)."""

    resource: Resource
    name: str | None
    pattern: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        """Whether an ACL is meant."""
        return (
            self.resource in (Resource.ANY, acl.resource)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern):
            return False
        if self.name is None:
            return True
        return acl.covers(self.name) if self.pattern is PatternType.MATCH else acl.name == self.name


class AclSet:
    """Rules, found by the resource they are about."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._literal: dict[tuple[Resource, str], dict[Acl, None]] = {}
        self._prefixed: dict[Resource, dict[Acl, None]] = {}
        for acl in acls:
            self.add(acl)

    def __iter__(self) -> Iterator[Acl]:
        for acls in (*self._literal.values(), *self._prefixed.values()):
            yield from acls

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._home(acl)

    def _home(self, acl: Acl) -> dict[Acl, None]:
        if acl.pattern is PatternType.PREFIXED:
            return self._prefixed.setdefault(acl.resource, {})
        return self._literal.setdefault((acl.resource, acl.name), {})

    def add(self, acl: Acl) -> None:
        """Take in a rule."""
        self._home(acl)[acl] = None

    def remove(self, acl: Acl) -> None:
        """Drop a rule."""
        self._home(acl).pop(acl, None)

    def _about(self, resource: Resource, name: str) -> Iterator[Acl]:
        yield from self._literal.get((resource, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource, WILDCARD), ())
        yield from (acl for acl in self._prefixed.get(resource, ()) if acl.covers(name))

    def allows(
        self, principal: str, host: str, operation: Operation, resource: Resource, name: str, default: bool
    ) -> bool:
        """Whether it may be done; `default`: whether it may when no rule is about the resource."""
        allowed, any_rule = False, False
        for acl in self._about(resource, name):
            any_rule = True
            if acl.speaks_of(principal, host, operation):
                if acl.permission is Permission.DENY:
                    return False
                allowed = True
        return allowed if any_rule else default

    def allows_some(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether there is any resource of that type with which it may be done (`authorizeByResourceType`)."""
        said = [acl for acl in self if acl.resource is resource and acl.speaks_of(principal, host, operation)]
        denied = [acl for acl in said if acl.permission is Permission.DENY]
        return any(not _inside(acl, denied) for acl in said if acl.permission is Permission.ALLOW)


def _inside(allowed: Acl, denied: Iterable[Acl]) -> bool:
    """Whether nothing is left of what a rule allows."""
    for deny in denied:
        if deny.pattern is PatternType.LITERAL and deny.name == WILDCARD:
            return True
        if deny.pattern is PatternType.PREFIXED and allowed.name != WILDCARD and allowed.name.startswith(deny.name):
            return True
        if deny.pattern is allowed.pattern is PatternType.LITERAL and deny.name == allowed.name:
            return True
    return False

"""ACLs: what they say about a principal, and which of them a filter means. Pure.

Semantics of `org.apache.kafka.metadata.authorizer.StandardAuthorizerData`: a deny beats every allow; allowing to read,
write, delete or alter allows to describe, denying them doesn't deny that; a resource that no ACL names is closed,
unless the broker says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from operator import itemgetter
from typing import NamedTuple

CLUSTER_NAME = "kafka-cluster"
WILDCARD = "*"
ANY_PRINCIPAL = "User:*"
ANY = 1
"""Of each enumeration here."""
_PATTERN = (1, 2)
"""Places of a filter's name and pattern: where it isn't for what has that name, but for what covers it."""


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


class Acl(NamedTuple):
    """One rule. A tuple: thousands are hashed, compared and sorted."""

    resource: Resource
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def covers(self, name: str) -> bool:
        """Return whether it is about a resource of that name (and its type)."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def decides(self, operation: Operation) -> bool:
        """Return whether it says something about that operation."""
        if self.operation in (Operation.ALL, operation):
            return True
        return self.permission is Permission.ALLOW and self.operation in _IMPLIED.get(operation, ())


class Filter(NamedTuple):
    """Which ACLs are meant; None and ANY mean all (AclBindingFilter). Its fields are those of `Acl`, in their order."""

    resource: Resource
    name: str | None
    pattern: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def among(self, acls: Iterable[Acl]) -> list[Acl]:
        """Return those that are meant. What must be the same is compared at once, since there may be thousands."""
        places = [
            at for at, value in enumerate(self)
            if value is not None and value != ANY and not (self.pattern is PatternType.MATCH and at in _PATTERN)
        ]  # fmt: skip
        if places:
            same = itemgetter(*places)
            wanted = same(self)
            acls = [acl for acl in acls if same(acl) == wanted]
        if self.pattern is PatternType.MATCH and self.name is not None:
            name = self.name
            return [acl for acl in acls if acl.covers(name)]
        return list(acls)

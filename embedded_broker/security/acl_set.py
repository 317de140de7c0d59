"""ACLs, found by whom they concern and what they are about: an authorizer asks for each name in a request. Pure.

Invariant: a question costs as much as ACLs concern the one who asks, and of those the ones that are about the name,
however many there are of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from embedded_broker.security.acls import (
    ANY_PRINCIPAL,
    WILDCARD,
    Acl,
    Filter,
    Operation,
    PatternType,
    Permission,
    Resource,
)

_Home = dict[Acl, None]
_NONE: _Home = {}


class _ByName:
    """Rules by the names that they have. Prefixes are looked up, too: a name has as many as there are lengths."""

    __slots__ = ("_lengths", "_literal", "_prefixed")

    def __init__(self) -> None:
        self._literal: dict[str, _Home] = {}
        self._prefixed: dict[str, _Home] = {}
        self._lengths = Counter[int]()

    def __bool__(self) -> bool:
        return bool(self._literal or self._prefixed)

    def __iter__(self) -> Iterator[Acl]:
        for homes in (self._literal, self._prefixed):
            for home in homes.values():
                yield from home

    def add(self, acl: Acl) -> None:
        homes = self._homes(acl)
        if acl.pattern is PatternType.PREFIXED and acl.name not in homes:
            self._lengths[len(acl.name)] += 1
        homes.setdefault(acl.name, {})[acl] = None

    def remove(self, acl: Acl) -> None:
        homes = self._homes(acl)
        home = homes.get(acl.name, _NONE)
        if acl not in home:
            return
        del home[acl]
        if home:
            return
        del homes[acl.name]
        if acl.pattern is PatternType.PREFIXED:
            length = len(acl.name)
            self._lengths[length] -= 1
            if not self._lengths[length]:
                del self._lengths[length]

    def _homes(self, acl: Acl) -> dict[str, _Home]:
        return self._prefixed if acl.pattern is PatternType.PREFIXED else self._literal

    def named(self, name: str) -> Iterator[_Home]:
        """Yield those that have this name themselves."""
        yield self._literal.get(name, _NONE)
        yield self._prefixed.get(name, _NONE)

    def about(self, name: str) -> Iterator[_Home]:
        """Yield those that cover a resource of this name."""
        yield self._literal.get(name, _NONE)
        if name != WILDCARD:
            yield self._literal.get(WILDCARD, _NONE)
        for length in self._lengths:
            if length <= len(name):
                yield self._prefixed.get(name[:length], _NONE)


class AclSet:
    """Rules of all principals."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._all: _Home = {}
        self._by_resource: dict[Resource, _ByName] = {}
        self._by_principal: dict[str, _Home] = {}
        self._by_who: dict[tuple[Resource, str, str], _ByName] = {}
        """By principal and host, as the ACLs name them: a client has four of these."""
        for acl in acls:
            self.add(acl)

    def __iter__(self) -> Iterator[Acl]:
        yield from self._all

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._all

    def add(self, acl: Acl) -> None:
        """Take in a rule."""
        self._all[acl] = None
        self._by_resource.setdefault(acl.resource, _ByName()).add(acl)
        self._by_principal.setdefault(acl.principal, {})[acl] = None
        self._by_who.setdefault((acl.resource, acl.principal, acl.host), _ByName()).add(acl)

    def remove(self, acl: Acl) -> None:
        """Drop a rule."""
        if acl not in self._all:
            return
        del self._all[acl]
        self._by_resource[acl.resource].remove(acl)
        del self._by_principal[acl.principal][acl]
        if not self._by_principal[acl.principal]:
            del self._by_principal[acl.principal]
        who = (acl.resource, acl.principal, acl.host)
        self._by_who[who].remove(acl)
        if not self._by_who[who]:
            del self._by_who[who]

    def candidates(self, wanted: Filter) -> Collection[Acl]:
        """Return the fewest among which all are that a filter means."""
        of_principal = None if wanted.principal is None else self._by_principal.get(wanted.principal, _NONE)
        if wanted.name is None:
            return self._all if of_principal is None else of_principal
        kinds = self._by_resource if wanted.resource is Resource.ANY else (wanted.resource,)
        homes = [
            home
            for by_name in [self._by_resource[kind] for kind in kinds if kind in self._by_resource]
            for home in (
                by_name.about(wanted.name) if wanted.pattern is PatternType.MATCH else by_name.named(wanted.name)
            )
        ]
        if of_principal is not None and len(of_principal) < sum(map(len, homes)):
            return of_principal
        return [acl for home in homes for acl in home]

    def has_any(self, resource: Resource) -> bool:
        """Return whether there is a rule about resources of this type."""
        return bool(self._by_resource.get(resource))

    def _of(self, principal: str, host: str, resource: Resource) -> Iterator[_ByName]:
        for whom in (principal, ANY_PRINCIPAL):
            for where in (host, WILDCARD):
                found = self._by_who.get((resource, whom, where))
                if found is not None:
                    yield found

    def allows(
        self, principal: str, host: str, operation: Operation, resource: Resource, name: str, default: bool
    ) -> bool:
        """Return whether it may be done; `default`: whether it may when no rule is about the resource."""
        allowed = False
        for rules in self._of(principal, host, resource):
            for home in rules.about(name):
                for acl in home:
                    if acl.decides(operation):
                        if acl.permission is Permission.DENY:
                            return False
                        allowed = True
        return allowed or (default and not self._is_named(resource, name))

    def _is_named(self, resource: Resource, name: str) -> bool:
        """Return whether any rule is about the resource."""
        rules = self._by_resource.get(resource)
        return rules is not None and any(rules.about(name))

    def allows_some(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Return whether there is any resource of that type with which it may be done (`authorizeByResourceType`)."""
        denied, allowed = _ByName(), []
        for rules in self._of(principal, host, resource):
            for acl in rules:
                if acl.decides(operation):
                    if acl.permission is Permission.DENY:
                        denied.add(acl)
                    else:
                        allowed.append(acl)
        return any(not _leaves_nothing(denied, acl) for acl in allowed)


def _leaves_nothing(denied: _ByName, allowed: Acl) -> bool:
    """Return whether nothing is left of what a rule allows."""
    return any(
        deny.name == WILDCARD or allowed.pattern is PatternType.LITERAL
        if deny.pattern is PatternType.LITERAL
        else allowed.name != WILDCARD
        for home in denied.about(allowed.name)
        for deny in home
    )

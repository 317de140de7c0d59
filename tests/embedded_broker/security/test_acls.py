"""What ACLs say, rule by rule (`StandardAuthorizer`)."""

from __future__ import annotations

import pytest

from embedded_broker.security.acl_set import AclSet
from embedded_broker.security.acls import Acl, Filter, Operation, PatternType, Permission, Resource

T, G = Resource.TOPIC, Resource.GROUP
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
DENY, ALLOW = Permission.DENY, Permission.ALLOW


def acl(
    name: str,
    operation: Operation = READ,
    permission: Permission = ALLOW,
    principal: str = "User:a",
    host: str = "*",
    prefixed: bool = False,
    resource: Resource = T,
) -> Acl:
    """An ACL, mostly to read a topic."""
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return Acl(resource, name, pattern, principal, host, operation, permission)


def may(*acls: Acl, operation: Operation = READ, name: str = "t", default: bool = False) -> bool:
    """Whether User:a may read topic t from 1.1.1.1."""
    return AclSet(acls).allows("User:a", "1.1.1.1", operation, T, name, default)


CASES: dict[str, tuple[bool, bool]] = {
    "none": (may(), False),
    "literal": (may(acl("t")), True),
    "another topic": (may(acl("tt")), False),
    "another type": (may(acl("t", resource=G)), False),
    "another principal": (may(acl("t", principal="User:b")), False),
    "everybody": (may(acl("t", principal="User:*")), True),
    "a wildcard that is none": (may(acl("t", principal="*")), False),
    "its host": (may(acl("t", host="1.1.1.1")), True),
    "another host": (may(acl("t", host="1.1.1.2")), False),
    "wildcard": (may(acl("*")), True),
    "prefix": (may(acl("or", prefixed=True), name="orders"), True),
    "whole name as prefix": (may(acl("t", prefixed=True)), True),
    "no prefix": (may(acl("r", prefixed=True), name="orders"), False),
    "a star as prefix": (may(acl("*", prefixed=True)), False),
    "deny over allow": (may(acl("t"), acl("t", permission=DENY)), False),
    "deny of a prefix over a literal": (may(acl("t"), acl("t", permission=DENY, prefixed=True)), False),
    "deny everywhere over a literal": (may(acl("t"), acl("*", permission=DENY)), False),
    "deny of somebody else": (may(acl("t"), acl("t", permission=DENY, principal="User:b")), True),
    "all operations": (may(acl("t", ALL)), True),
    "deny of all operations": (may(acl("t"), acl("t", ALL, DENY)), False),
    "reading lets describe": (may(acl("t"), operation=DESCRIBE), True),
    "altering configs lets describe configs": (
        may(acl("t", Operation.ALTER_CONFIGS), operation=Operation.DESCRIBE_CONFIGS),
        True,
    ),
    "altering configs doesn't let describe": (may(acl("t", Operation.ALTER_CONFIGS), operation=DESCRIBE), False),
    "describing doesn't let read": (may(acl("t", DESCRIBE)), False),
    "denied reading leaves describing": (may(acl("t", WRITE), acl("t", READ, DENY), operation=DESCRIBE), True),
    "open by default": (may(default=True), True),
    "open by default, but named": (may(acl("t", principal="User:b"), default=True), False),
    "open by default, but named by a prefix": (may(acl("", WRITE, prefixed=True), default=True), False),
    "open by default, another named": (may(acl("u"), default=True), True),
}


@pytest.mark.parametrize(("found", "expected"), CASES.values(), ids=CASES.keys())
def test_acls_allow_and_deny(found: bool, expected: bool) -> None:
    assert found is expected


def _some(*acls: Acl) -> bool:
    return AclSet(acls).allows_some("User:a", "1.1.1.1", WRITE, T)


def test_init_producer_id_needs_any_writable_topic() -> None:
    assert not _some()
    assert not _some(acl("t"))
    assert _some(acl("t", WRITE))
    assert _some(acl("t", ALL))
    assert not _some(acl("g", WRITE, resource=G))
    assert not _some(acl("t", WRITE), acl("*", WRITE, DENY))
    assert not _some(acl("t", WRITE), acl("t", WRITE, DENY))
    assert _some(acl("t", WRITE), acl("u", WRITE, DENY))
    assert not _some(acl("orders", WRITE), acl("or", WRITE, DENY, prefixed=True))
    assert _some(acl("o", WRITE, prefixed=True), acl("or", WRITE, DENY, prefixed=True))
    assert _some(acl("*", WRITE), acl("or", WRITE, DENY, prefixed=True))


ACLS = {
    "literal": acl("orders"),
    "prefixed": acl("or", prefixed=True),
    "wildcard": acl("*", WRITE, DENY),
    "other": acl("sales", principal="User:b"),
    "group": acl("orders", resource=G),
}
EVERYTHING = Filter(Resource.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (EVERYTHING, set(ACLS)),
        (Filter(T, "orders", PatternType.LITERAL, None, None, Operation.ANY, Permission.ANY), {"literal"}),
        (Filter(T, "orders", PatternType.MATCH, None, None, Operation.ANY, Permission.ANY),
         {"literal", "prefixed", "wildcard"}),
        (Filter(T, "or", PatternType.ANY, None, None, Operation.ANY, Permission.ANY), {"prefixed"}),
        (Filter(T, None, PatternType.PREFIXED, None, None, Operation.ANY, Permission.ANY), {"prefixed"}),
        (Filter(Resource.ANY, None, PatternType.ANY, "User:b", None, Operation.ANY, Permission.ANY), {"other"}),
        (Filter(Resource.ANY, None, PatternType.ANY, None, None, WRITE, Permission.ANY), {"wildcard"}),
        (Filter(Resource.ANY, None, PatternType.ANY, None, None, Operation.ANY, DENY), {"wildcard"}),
        (Filter(Resource.ANY, None, PatternType.ANY, None, "1.1.1.1", Operation.ANY, Permission.ANY), set()),
    ],
)  # fmt: skip
def test_filters(wanted: Filter, names: set[str]) -> None:
    assert {name for name, each in ACLS.items() if wanted.among([each])} == names
    assert {
        name for name, each in ACLS.items() if each in wanted.among(AclSet(ACLS.values()).candidates(wanted))
    } == names


def test_a_removed_rule_says_nothing() -> None:
    rules = AclSet(ACLS.values())
    assert set(rules) == set(ACLS.values())
    rules.remove(ACLS["wildcard"])
    assert ACLS["wildcard"] not in rules
    assert ACLS["prefixed"] in rules
    assert rules.allows("User:a", "h", READ, T, "orders", False)

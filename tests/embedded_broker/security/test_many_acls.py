"""Thousands of ACLs cost no request more than a moment, whatever they say and whatever is asked."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from embedded_broker.security.acl_set import AclSet
from embedded_broker.security.acls import ANY_PRINCIPAL, Acl, Filter, Operation, PatternType, Permission, Resource
from tests.embedded_broker.security.denials import creation
from tests.embedded_broker.served import Client
from tests.embedded_broker.watched import WatchedBroker

T, G = Resource.TOPIC, Resource.GROUP
FEW, MANY, FILTERS = 50, 5_000, 3_000
STALL_S_MAX = 0.2
NAMES, PEOPLE, HOSTS = ("a", "ab", "abc", "b", "*", ""), ("User:a", "User:b", ANY_PRINCIPAL), ("h", "*", "i")


def _random(choices: random.Random) -> Acl:
    pattern = choices.choice((PatternType.LITERAL, PatternType.PREFIXED))
    operation = choices.choice((Operation.READ, Operation.WRITE, Operation.ALL, Operation.DESCRIBE))
    permission = choices.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY))
    return Acl(choices.choice((T, G)), choices.choice(NAMES), pattern, choices.choice(PEOPLE), choices.choice(HOSTS),
               operation, permission)  # fmt: skip


def _scanned(acls: list[Acl], operation: Operation, name: str, default: bool) -> bool:
    """`AclSet.allows`, for User:a from h and a topic, as its definition says it: look at all."""
    about = [acl for acl in acls if acl.resource is T and acl.covers(name)]
    said = [acl for acl in about if acl.principal in ("User:a", ANY_PRINCIPAL) and acl.host in ("h", "*")]
    permissions = {acl.permission for acl in said if acl.decides(operation)}
    return permissions == {Permission.ALLOW} if about else default


def test_found_by_index_is_what_a_scan_finds() -> None:
    for seed in range(300):
        choices = random.Random(seed)
        acls = list(dict.fromkeys(_random(choices) for _ in range(choices.randrange(12))))
        rules = AclSet(_random(choices) for _ in range(5))
        for each in [each for each in rules if each not in acls]:
            rules.remove(each)
        for each in acls:
            rules.add(each)
        assert set(rules) == set(acls)
        for name in ("a", "abcd", "c", "*"):
            for operation in (Operation.READ, Operation.DESCRIBE):
                for default in (False, True):
                    found = rules.allows("User:a", "h", operation, T, name, default)
                    assert found is _scanned(acls, operation, name, default), (seed, name)
        for asked in (None, "ab"):
            for pattern in PatternType:
                for principal in (None, "User:a"):
                    for operation in (Operation.ANY, Operation.ALL):
                        wanted = Filter(T, asked, pattern, principal, None, operation, Permission.DENY)
                        assert set(wanted.among(rules.candidates(wanted))) == set(wanted.among(acls)), (seed, wanted)


def _of_others(many: int) -> AclSet:
    """Rules of so many other principals, names and prefixes, and so many of User:a's that say nothing of reading."""
    read, allow = Operation.READ, Permission.ALLOW
    acls = [Acl(T, "*", PatternType.LITERAL, f"User:{n}", "*", read, allow) for n in range(many)]
    acls += [Acl(T, f"p{n}", PatternType.PREFIXED, f"User:{n}", "*", read, allow) for n in range(many)]
    acls += [Acl(T, f"n{n}", PatternType.LITERAL, "User:a", "*", Operation.WRITE, Permission.DENY) for n in range(many)]
    acls += [Acl(T, f"n{n}", PatternType.LITERAL, "User:a", "*", Operation.WRITE, allow) for n in range(many)]
    return AclSet(acls)


def _lines(ask: Callable[[], None]) -> int:
    """Count the lines that are run, which is the same on every machine, however busy it is."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        ask()
    finally:
        sys.settrace(before)
    return count


def test_a_right_costs_as_much_with_thousands_of_acls_of_others() -> None:
    """By principals, by names and by prefixes."""

    def costs(rules: AclSet) -> int:
        def ask() -> None:
            for n in range(FEW):
                assert not rules.allows("User:a", "h", Operation.READ, T, f"n{n}", default=False)
                assert not rules.allows("User:a", "h", Operation.READ, T, f"p{n}", default=True)

        return _lines(ask)

    assert 0 < costs(_of_others(MANY)) < 1.2 * costs(_of_others(FEW))


def test_whether_there_is_any_resource_costs_no_more_than_there_are_rules() -> None:
    def costs(rules: AclSet) -> int:
        def ask() -> None:
            assert not rules.allows_some("User:a", "h", Operation.WRITE, T)

        return _lines(ask)

    assert 0 < costs(_of_others(MANY)) < 1.2 * costs(_of_others(FEW)) * MANY / FEW


def _filters(**same: Any) -> list[dict[str, Any]]:
    """None of them means an ACL that there is."""
    every = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 1, "permission_type": 1, **same}
    return [{**every, "host_filter": f"h{n}"} for n in range(FILTERS)]


@pytest.mark.tier("long")
def test_requests_about_thousands_of_acls_hold_nobody_up(tmp_path: Path) -> None:
    """The time is the CPU time of one iteration of the event loop, so it means the same on a busy machine."""

    async def main() -> None:
        settings: dict[str, Any] = {"authorizer": True, "super_users": ["User:ANONYMOUS"]}
        broker = await asyncio.to_thread(WatchedBroker, tmp_path, None, **settings)
        try:
            client = Client(*await asyncio.open_connection("127.0.0.1", broker.port, limit=1 << 26))
            created = [creation(T, f"r{n}", Operation.READ, principal=f"User:p{n % 1_000}") for n in range(MANY)]
            half, every = MANY // 2, {**_filters()[0], "host_filter": None}
            steps: dict[str, tuple[str, dict[str, Any]]] = {
                "create": ("create_acls", {"creations": created[:half]}),
                "create more": ("create_acls", {"creations": created[half:]}),
                "create them again": ("create_acls", {"creations": created * 4}),
                "describe": ("describe_acls", {**every, "pattern_type_filter": 1}),
                "filters by host": ("delete_acls", {"filters": _filters()}),
                "filters by name": ("delete_acls", {"filters": [
                    {**each, "resource_name_filter": f"x{n}", "pattern_type_filter": 2}
                    for n, each in enumerate(_filters(host_filter=None))]}),
                "filters by principal": ("delete_acls", {"filters": _filters(principal_filter="User:p1")}),
                "delete one by one": ("delete_acls", {"filters": [
                    {**every, "resource_name_filter": f"r{n}"} for n in range(100)]}),
                "delete all": ("delete_acls", {"filters": [every, *_filters()]}),
            }  # fmt: skip
            costly = []
            for what, (api, fields) in steps.items():
                broker.read()
                await client.call(api, 3, **fields)
                seen = broker.read()
                if seen.stall_s > STALL_S_MAX:
                    costly.append(f"{what}: others waited for {seen.stall_s:.3f} s: {seen.what}")
            assert costly == []
        finally:
            await asyncio.to_thread(broker.stop)

    asyncio.run(main())

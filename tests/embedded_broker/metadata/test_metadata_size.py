"""What administrators leave behind is bounded, entry by entry and in all, and refused by name."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.metadata.metadata_size import ENTRY_BYTES, NAME_BYTES_MAX, entry_bytes
from embedded_broker.security.acls import Operation, Resource
from tests.embedded_broker.security.denials import creation
from tests.embedded_broker.security.guarded import guarded, login
from tests.embedded_broker.served import Client, serving
from tests.embedded_broker.watched import WatchedBroker

OK, FULL = ErrorCode.none, ErrorCode.policy_violation
BROKER, GROUP = 4, 32
MIB_MAX = 200


async def _user(client: Client, name: str, salt: bytes = b"salt", salted: bytes = b"p" * 32) -> ErrorCode:
    wanted = {"name": name, "mechanism": 1, "iterations": 4096, "salt": salt, "salted_password": salted}
    return _one((await client.call("alter_user_scram_credentials", 0, upsertions=[wanted])).results)


async def _quota(client: Client, name: str, *, remove: bool = False) -> ErrorCode:
    return _one((await client.call("alter_client_quotas", 1, entries=[quota(name, remove=remove)])).entries)


def quota(name: str, *, remove: bool = False) -> dict[str, Any]:
    operation = {"key": "producer_byte_rate", "value": 1.0, "remove": remove}
    return {"entity": [{"entity_type": "client-id", "entity_name": name}], "ops": [operation]}


async def _group(client: Client, name: str) -> ErrorCode:
    config = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}
    resource = {"resource_type": GROUP, "resource_name": name, "configs": [config]}
    return _one((await client.call("incremental_alter_configs", 1, resources=[resource])).responses)


async def _acl(client: Client, name: str) -> ErrorCode:
    return _one(
        (await client.call("create_acls", 3, creations=[creation(Resource.TOPIC, name, Operation.READ)])).results
    )


async def _topic(client: Client, name: str) -> ErrorCode:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    return _one((await client.call("create_topics", 7, topics=[topic], timeout=5_000)).topics)


def _one(answers: Any) -> ErrorCode:
    return ErrorCode(answers[0].error_code)


def test_names_and_salts_have_a_length(tmp_path: Path) -> None:
    long, unacceptable = "n" * (NAME_BYTES_MAX + 1), ErrorCode.unacceptable_credential

    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            for salt, salted, expected in (
                (b"s" * 1_024, b"p" * 1_024, OK), (b"s" * 1_025, b"p", unacceptable),
                (b"s", b"p" * 1_025, unacceptable), (b"s" * (15 << 20), b"p", unacceptable),
            ):  # fmt: skip
                assert await _user(client, "u", salt, salted) is expected
            assert await _user(client, long) is unacceptable
            assert await _quota(client, long) is ErrorCode.invalid_request
            assert await _group(client, long) is ErrorCode.invalid_request
            for make in (_user, _quota, _group):
                assert await make(client, long[1:]) is OK

    asyncio.run(main())


@pytest.mark.tier("default")
@pytest.mark.parametrize("make", [_user, _quota, _group, _acl, _topic])
def test_all_together_are_bounded(tmp_path: Path, make: Callable[[Client, str], Awaitable[ErrorCode]]) -> None:
    limits: dict[str, Any] = {"metadata_bytes_max": 100_000}

    async def main() -> None:
        made = 0
        async with guarded(tmp_path, **limits) as served:
            client = await login(served, "admin")
            assert await _quota(client, "first") is OK
            while (error_code := await make(client, f"n{made}")) is OK:
                made += 1
            assert error_code is FULL
            assert 20 < made < 50
            assert await make(client, f"m{made}") is FULL
            assert served.broker.topics.get(f"n{made}") is None
        async with guarded(tmp_path, **limits) as served:
            client = await login(served, "admin")
            assert await make(client, "another") is FULL
            assert await _quota(client, "first", remove=True) is OK
            assert await make(client, "another") is OK

    asyncio.run(main())


def test_what_is_there_already_stays_and_may_become_less(tmp_path: Path) -> None:
    """With a lower limit, or from an earlier release."""

    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            for number in range(30):
                assert await _quota(client, f"{number}") is OK
        async with serving(tmp_path, metadata_bytes_max=10_000) as served:
            client = await served.client()
            assert len((await client.call("describe_client_quotas", 1, components=[])).entries) == 30
            assert await _quota(client, "new") is FULL
            assert await _quota(client, "0") is OK
            assert await _quota(client, "0", remove=True) is OK
            assert await _topic(client, "t") is FULL

    asyncio.run(main())


def test_texts_count_with_the_memory_that_they_take() -> None:
    assert entry_bytes("k", None) == 0
    narrow, wide = (entry_bytes("k", {"name": "n" * 1_000 + end}) for end in ("n", "\U0001f600"))
    assert ENTRY_BYTES + 1_000 < narrow < ENTRY_BYTES + 1_400
    assert wide > narrow + 3_000


@pytest.mark.tier("long")
def test_nothing_that_administrators_leave_behind_takes_all_memory(tmp_path: Path) -> None:
    """Each kind as large as it may be, until it is refused; in a process of its own, and after a restart of it."""
    long = "n" * 4_000

    def request(kind: str, first: int) -> tuple[str, int, dict[str, Any]]:
        names = [f"{n:06}" for n in range(first, first + 500)]
        if kind == "acls":
            return "create_acls", 3, {"creations": [creation(Resource.TOPIC, each, Operation.READ) for each in names]}
        if kind == "quotas":
            return "alter_client_quotas", 1, {"entries": [quota(each + long) for each in names]}
        if kind == "users":
            user = {"mechanism": 1, "iterations": 4096, "salt": b"s" * 1_024, "salted_password": b"p" * 32}
            return "alter_user_scram_credentials", 0, {"upsertions": [{**user, "name": each + long} for each in names]}
        config = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "0" * 995 + "50000"}
        return "incremental_alter_configs", 1, {"resources": [
            {"resource_type": GROUP, "resource_name": each + long, "configs": [config]} for each in names]}  # fmt: skip

    async def fill(port: int, kind: str) -> int:
        client = Client(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))
        for first in range(0, 40_000, 500):
            answer = await client.call(*request(kind, first)[:2], **request(kind, first)[2])
            of_kind = {"acls": "results", "quotas": "entries", "users": "results", "groups": "responses"}[kind]
            if FULL in {each.error_code for each in getattr(answer, of_kind)}:
                client.writer.close()
                return first
        raise AssertionError(f"{kind}: never refused")

    async def main() -> None:
        for kind in ("groups", "quotas", "users", "acls"):
            directory = tmp_path / kind
            settings: dict[str, Any] = {"authorizer": True, "super_users": ["User:ANONYMOUS"], "fsync": "never"}
            seen = []
            broker = await asyncio.to_thread(WatchedBroker, directory, subprocess.DEVNULL, **settings)
            try:
                made = await fill(broker.port, kind)
                seen.append(broker.read())
            finally:
                await asyncio.to_thread(broker.stop)
            broker = await asyncio.to_thread(WatchedBroker, directory, subprocess.DEVNULL, **settings)
            try:
                seen.append(broker.read())
            finally:
                await asyncio.to_thread(broker.stop)
            assert made >= 1_000
            assert max(each.now_mib for each in seen) < MIB_MAX, (kind, made, seen)

    asyncio.run(main())

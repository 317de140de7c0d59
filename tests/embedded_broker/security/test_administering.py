"""ACLs and SCRAM users are made, described, kept and deleted over the wire."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.security.acls import Operation, Resource
from tests.embedded_broker.security.denials import DENIED, OK, TOPIC, creation
from tests.embedded_broker.security.guarded import allow, guarded, login
from tests.embedded_broker.served import Served, serving


def test_acls_are_described_and_survive_a_restart(tmp_path: Path) -> None:
    everything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}

    async def main() -> None:
        async with guarded(tmp_path) as served:
            admin = await login(served, "admin")
            twice = creation(Resource.TOPIC, "t", Operation.READ)
            await allow(admin, twice, twice,
                        creation(Resource.TOPIC, "t", Operation.WRITE, principal="User:bob"),
                        creation(Resource.GROUP, "g", Operation.READ, resource_pattern_type=4))  # fmt: skip
            bad = [
                creation(Resource.CLUSTER, "x", Operation.ALL),
                creation(Resource.TOPIC, "", Operation.ALL),
                creation(Resource.TOPIC, "t", Operation.ALL, principal="alice"),
                creation(Resource.TOPIC, "t", Operation.ALL, resource_type=99),
            ]
            filters = [
                creation(Resource.TOPIC, "t", Operation.ANY),
                creation(Resource.TOPIC, "t", Operation.ALL, resource_pattern_type=2),
                creation(Resource.TOPIC, "t", Operation.ALL, permission_type=1),
            ]
            answer = await admin.call("create_acls", 3, creations=filters)
            assert {each.error_code for each in answer.results} == {ErrorCode.unknown_server_error}
            answer = await admin.call("create_acls", 3, creations=bad)
            assert {each.error_code for each in answer.results} == {ErrorCode.invalid_request}
        async with guarded(tmp_path) as served:
            admin = await login(served, "admin")
            answer = await admin.call("describe_acls", 3, **everything)
            found = [
                (each.resource_name, each.pattern_type, [acl.principal for acl in each.acls])
                for each in answer.resources
            ]
            assert found == [("t", 3, ["User:alice", "User:bob"]), ("g", 4, ["User:alice"])]
            await admin.call("delete_acls", 3, filters=[{**everything, "principal_filter": "User:bob"}])
        async with guarded(tmp_path) as served:
            admin = await login(served, "admin")
            answer = await admin.call("describe_acls", 3, **{**everything, "resource_type_filter": 2})
            assert [acl.principal for each in answer.resources for acl in each.acls] == ["User:alice"]

    asyncio.run(main())


def test_without_an_authorizer_acls_are_refused_and_nothing_is_forbidden(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            disabled = ErrorCode.security_disabled
            assert await DENIED["describe_acls"][0](client) is disabled
            assert await DENIED["create_acls"][0](client) is disabled
            assert await DENIED["delete_acls"][0](client) is disabled
            quota = {"entity": [], "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]}
            (entry,) = (await client.call("alter_client_quotas", 1, entries=[quota])).entries
            assert entry.error_code is ErrorCode.invalid_request

    asyncio.run(main())


def test_a_broker_may_be_open_where_no_acl_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path, allow_everyone_if_no_acl_found=True) as served:
            await served.topic("t")
            bob, admin = await login(served, "bob"), await login(served, "admin")
            assert await DENIED["produce"][0](bob) is OK
            await allow(admin, creation(Resource.TOPIC, "t", Operation.WRITE))
            assert await DENIED["produce"][0](bob) is TOPIC

    asyncio.run(main())


@pytest.mark.parametrize("mechanism", [1, 2])
def test_scram_users_are_made_used_described_and_kept(tmp_path: Path, mechanism: int) -> None:
    import hashlib

    name = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}[mechanism]
    salt = b"some salt of the client"
    salted = hashlib.pbkdf2_hmac({1: "sha256", 2: "sha512"}[mechanism], b"pass", salt, 4096)
    carol = {"name": "carol", "mechanism": mechanism, "iterations": 4096, "salt": salt, "salted_password": salted}

    async def enters(served: Served) -> ErrorCode:
        from tests.embedded_broker.security.test_login import _handshake, _scram

        return ErrorCode((await _scram(await _handshake(served, name), name, "carol", "pass")).error_code)

    async def main() -> None:
        async with guarded(tmp_path) as served:
            admin = await login(served, "admin")
            assert await enters(served) is ErrorCode.sasl_authentication_failed
            bad = [{**carol, "name": "", }, {**carol, "name": "few", "iterations": 4095},
                   {**carol, "name": "many", "iterations": 16385}, {**carol, "name": "odd", "mechanism": 9},
                   {**carol, "name": "twice"}, {**carol, "name": "twice"}]  # fmt: skip
            answer = await admin.call("alter_user_scram_credentials", 0, upsertions=[*bad, carol],
                                      deletions=[{"name": "nobody", "mechanism": mechanism}])  # fmt: skip
            assert {each.user: each.error_code for each in answer.results} == {
                "nobody": ErrorCode.resource_not_found,
                "": ErrorCode.unacceptable_credential,
                "few": ErrorCode.unacceptable_credential,
                "many": ErrorCode.unacceptable_credential,
                "odd": ErrorCode.unsupported_sasl_mechanism,
                "twice": ErrorCode.duplicate_resource,
                "carol": OK,
            }
            assert await enters(served) is OK
        async with guarded(tmp_path) as served:
            assert await enters(served) is OK, "after a restart"
            admin = await login(served, "admin")
            answer = await admin.call("describe_user_scram_credentials", 0, users=None)
            ((one,),) = [each.credential_infos for each in answer.results]
            assert (one.mechanism, one.iterations) == (mechanism, 4096)
            asked = await admin.call("describe_user_scram_credentials", 0, users=[{"name": "no"}, {"name": "carol"}])
            assert [each.error_code for each in asked.results] == [OK, ErrorCode.resource_not_found]
            await admin.call("alter_user_scram_credentials", 0, deletions=[{"name": "carol", "mechanism": mechanism}])
            assert await enters(served) is ErrorCode.sasl_authentication_failed

    asyncio.run(main())
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "users")
    assert salted.hex().encode() not in stored

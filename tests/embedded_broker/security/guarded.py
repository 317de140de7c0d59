"""A broker with an authorizer, and who logs in there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from embedded_broker.config.listeners import Listener, Protocol
from tests.embedded_broker.security.denials import OK
from tests.embedded_broker.served import Client, Served, serving


async def login(served: Served, name: str) -> Client:
    """A connection of User:name."""
    client = await served.client()
    await client.call("sasl_handshake", 1, mechanism="PLAIN")
    answer = await client.call("sasl_authenticate", 2, auth_bytes=f"\0{name}\0x".encode())
    assert answer.error_code is OK
    return client


@asynccontextmanager
async def guarded(directory: Path, **settings: Any) -> AsyncIterator[Served]:
    """A broker with an authorizer, users alice and bob, and admin, who may do everything."""
    users = directory / "users"
    users.write_text("admin:x\nalice:x\nbob:x\n")
    settings = {"authorizer": True, "super_users": frozenset({"User:admin"}), "users_file": users, **settings}
    listeners = (Listener(port=0, protocol=Protocol.SASL_PLAINTEXT),)
    async with serving(directory / "data", listeners=listeners, **settings) as served:
        yield served


async def allow(admin: Client, *creations: dict[str, Any]) -> None:
    """Make ACLs."""
    answer = await admin.call("create_acls", 3, creations=list(creations))
    assert {each.error_code for each in answer.results} == {OK}

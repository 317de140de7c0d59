"""SCRAM credentials: stored durably in the metadata log, or made from the users file.

A user with a credential from AlterUserScramCredentials logs in with that one, all others with the password
of the file. Credentials hold no password, and don't print.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.security.users import Users

PREFIX = "scram:"
TYPES: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""By their number in the protocol (org.apache.kafka.clients.admin.ScramMechanism)."""
HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
"""As in ScramControlManager."""
SALT_BYTES, SALT_BYTES_MAX = 24, 1_024
"""Of those made here; of those that clients bring, which each login is sent, and of the salted password with it."""


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """What the server must know (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"


def of_salted_password(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Make a credential from what clients send instead of a password."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    server_key = hmac.digest(salted, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)


def of_password(mechanism: str, password: str) -> ScramCredential:
    """Make a credential with a new salt. Takes milliseconds."""
    salt = os.urandom(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, ITERATIONS_MIN)
    return of_salted_password(mechanism, salted, salt, ITERATIONS_MIN)


class Credentials:
    """All of a broker's.

    Invariant: a login is checked with a credential once that is durable, and no longer once its tombstone is.
    """

    def __init__(self, metadata: MetadataLog, users: Users) -> None:
        self._metadata, self._users = metadata, users
        self._stored: dict[tuple[str, str], ScramCredential] = {}
        self._made: dict[tuple[str, str], ScramCredential] = {}
        for key, body in metadata.items():
            if key.startswith(PREFIX):
                mechanism, _, name = key.removeprefix(PREFIX).partition(":")
                self._stored[mechanism, name] = _from_json(body)

    def find(self, mechanism: str, name: str) -> ScramCredential | None:
        """Return the credential that a login is checked with."""
        stored = self._stored.get((mechanism, name))
        password = self._users.password(name)
        if stored is not None or password is None:
            return stored
        if (mechanism, name) not in self._made:
            self._made[mechanism, name] = of_password(mechanism, password)
        return self._made[mechanism, name]

    def stored(self, name: str | None = None) -> Mapping[str, list[tuple[str, int]]]:
        """Return user → (mechanism, iterations), of those in the metadata log; of one user, or of all."""
        found: dict[str, list[tuple[str, int]]] = {}
        for (mechanism, user), credential in sorted(self._stored.items()):
            if name is None or name == user:
                found.setdefault(user, []).append((mechanism, credential.iterations))
        return found

    async def put(self, mechanism: str, name: str, credential: ScramCredential) -> None:
        """Store durably. Raises NoSpace with nothing changed, or another OSError."""
        async with self._metadata.changes.one():
            await self._metadata.put(f"{PREFIX}{mechanism}:{name}", _to_json(credential))
            self._stored[mechanism, name] = credential

    async def delete(self, mechanism: str, name: str) -> bool:
        """Remove durably; whether there was one. Raises NoSpace with nothing changed, or another OSError."""
        async with self._metadata.changes.one():
            if (mechanism, name) not in self._stored:
                return False
            await self._metadata.put(f"{PREFIX}{mechanism}:{name}", None)
            del self._stored[mechanism, name]
        return True


def _to_json(credential: ScramCredential) -> Mapping[str, Any]:
    return {
        "salt": credential.salt.hex(),
        "stored_key": credential.stored_key.hex(),
        "server_key": credential.server_key.hex(),
        "iterations": credential.iterations,
    }


def _from_json(body: Mapping[str, Any]) -> ScramCredential:
    salt, stored_key, server_key = (bytes.fromhex(body[name]) for name in ("salt", "stored_key", "server_key"))
    return ScramCredential(salt, stored_key, server_key, body["iterations"])

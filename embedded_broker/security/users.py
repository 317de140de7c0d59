"""The users file (`broker --users`): names and passwords of those who may log in."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path


class BadUsers(ValueError):
    """A users file that can't be read."""


class Users:
    """Names and passwords. Never printed."""

    def __init__(self, passwords: Mapping[str, str] | None = None) -> None:
        self._passwords = dict(passwords or {})

    def __repr__(self) -> str:
        return f"Users({len(self._passwords)} of them, [hidden])"

    def password(self, name: str) -> str | None:
        """Return the password of a user."""
        return self._passwords.get(name)

    def knows(self, name: str, password: str) -> bool:
        """Return whether they belong together. Takes the same time for every password, and for a name that doesn't
        exist.
        """
        expected = self._passwords.get(name)
        same = hmac.compare_digest((password if expected is None else expected).encode(), password.encode())
        return same and expected is not None


def read_users(path: Path) -> Users:
    """Read lines of `name:password`, cut at the first colon. Empty lines and those with # are left out.

    Raises BadUsers with the number of the line, never with its text; OSError.
    """
    passwords: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not (name and colon and password):
            raise BadUsers(f"{path}, line {number}: expected name:password")
        if name in passwords:
            raise BadUsers(f"{path}, line {number}: {name!r} is there twice")
        passwords[name] = password
    return Users(passwords)

"""What a handler in `api` returns for a request; used also by those around it: `net`, `security`, `testing.faults`."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

Fields = Mapping[str, Any]
"""Newest field names of the response; `wire.schema` keeps those that the request's version has."""


class Same(dict[str, Any]):
    """A response that never changes, by identity: it is encoded once."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Later:
    """A response that is not complete yet. The responses of a connection still leave in the order of its requests."""

    answer: Awaitable[Fields]


Answer = Fields | Later | None
"""None when the protocol has no response (Produce with acks=0)."""

"""What a handler in `api` returns for a request; used also by those around it: `net`, `security`, `testing.faults`."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

Fields = Mapping[str, Any]
"""Newest field names of the response; `wire.schema` keeps those that the request's version has."""


class Same(dict[str, Any]):
    """A response that never changes, by identity: it is encoded once. Or a part of one that stands there many times:
    it is made into the codec's object once."""

    __slots__ = ("made",)
    made: Any
    """The codec's object, once there is one."""
    __hash__ = object.__hash__  # type: ignore[assignment]


ENTRY_BYTES = 500
"""What an entry of a response costs in memory beside its texts, as a mapping and as the codec's object."""


@dataclass(frozen=True, slots=True)
class Later:
    """A response that is not complete yet. The responses of a connection still leave in the order of its requests."""

    answer: Awaitable[Fields]


Encoded = bytes | tuple[bytes, ...]
"""A whole response frame; in pieces if it is large, so that a megabyte of records isn't copied into it."""


def size_of(encoded: Encoded) -> int:
    """Count its bytes."""
    return len(encoded) if isinstance(encoded, bytes) else sum(map(len, encoded))


Answer = Fields | Later | None
"""None when the protocol has no response (Produce with acks=0)."""

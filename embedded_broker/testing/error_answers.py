"""Builds the error response for any request; used by `faults`.

Behaviour: as AbstractRequest.getErrorResponse of Kafka's clients: every topic, partition, group or resource that the
request names is answered with the error, and the response as a whole too, if it has an error code of its own. An API
whose response has no place for the request at hand (Metadata of all topics) is answered with nothing in it.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from functools import cache
from types import NoneType
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.wire import schema

SAME = (
    ("partition_index", "partition", "index"),
    ("name", "topic", "topic_name", "user"),
)
"""Names that one thing has in different messages."""
NOT_ASKED_FOR = frozenset({"forgotten_topics_data"})
"""Lists of requests whose items get no answer."""
UNKNOWN = frozenset({"base_offset", "high_watermark", "committed_offset", "offset", "producer_id", "producer_epoch"})
"""Fields that are -1 when there is nothing to say."""


def error_answer(name: str, version: int, request: Any, error: ErrorCode) -> dict[str, Any]:
    """Return the fields of the response to `request`.

    Args:
        name: the API's, in snake case.
        version: of the request.
        request: as it was decoded.
        error: for every field of the response that has an error code.
    """
    return _filled(schema.entity(name, version, "response"), request, error)


def _filled(kind: Any, asked: Any, error: ErrorCode) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, hint, item in _fields(kind):
        if hint is ErrorCode:
            made[name] = error
        elif item is not None and _has_error(item):
            made[name] = [_one(item, each, error) for each in _counterparts(name, asked)]
        elif name in UNKNOWN:
            made[name] = -1
    return made


def _one(kind: Any, asked: Any, error: ErrorCode) -> dict[str, Any]:
    """Make an item of the response, named as the request's is; that may be a bare number or name."""
    made = _filled(kind, asked, error)
    plain = [(name, hint) for name, hint, _ in _fields(kind) if hint is not ErrorCode and isinstance(hint, type)]
    if not dataclasses.is_dataclass(asked):
        base = int if isinstance(asked, int) else str
        made[next(name for name, hint in plain if issubclass(hint, base))] = asked
        return made
    for name, _ in plain:
        found = next((other for other in _names(name) if hasattr(asked, other)), None)
        if found is not None and name not in UNKNOWN:
            made[name] = getattr(asked, found)
    return made


def _counterparts(name: str, asked: Any) -> Iterator[Any]:
    """Yield the items of the request that a list of the response answers."""
    if not dataclasses.is_dataclass(asked):
        return
    if hasattr(asked, name):
        yield from getattr(asked, name) or ()
        return
    for field in dataclasses.fields(asked):
        value = getattr(asked, field.name)
        if isinstance(value, tuple) and field.name not in NOT_ASKED_FOR:
            yield from value


def _names(name: str) -> tuple[str, ...]:
    return (name, *(other for names in SAME if name in names for other in names))


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any, Any], ...]:
    """Return (name, its type, the type of its items when it is a list of entities)."""
    hints = typing.get_type_hints(kind)
    return tuple((field.name, *_parts(hints[field.name])) for field in dataclasses.fields(kind))


def _parts(hint: Any) -> tuple[Any, Any]:
    inner = [part for part in typing.get_args(hint) if part is not NoneType]
    if typing.get_origin(hint) is not tuple and inner:
        hint = inner[0]
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        return hint, item if dataclasses.is_dataclass(item) else None
    return hint, None


@cache
def _has_error(kind: Any) -> bool:
    return any(hint is ErrorCode or (item is not None and _has_error(item)) for _, hint, item in _fields(kind))

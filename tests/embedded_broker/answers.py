"""Fails a test when a handler answers with a field that no version of the API has: the codec would leave it out."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from embedded_broker.api.registry import Api
from embedded_broker.wire import schema


def check(api: Api, answer: Mapping[str, Any]) -> None:
    """Raises AssertionError with the names."""
    unknown = _names(answer) - _known(api.name, api.versions)
    assert not unknown, f"{api.name} has no fields {sorted(unknown)}"


def _names(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        return set(value).union(*map(_names, value.values()))
    if isinstance(value, list | tuple):
        return set().union(*map(_names, value))
    return set()


@cache
def _known(name: str, versions: range) -> frozenset[str]:
    return frozenset().union(*(_fields(schema.entity(name, version, "response")) for version in versions))


def _fields(entity: Any) -> set[str]:
    hints = typing.get_type_hints(entity)
    found = {field.name for field in dataclasses.fields(entity)}
    for name in tuple(found):
        for part in (hints[name], *typing.get_args(hints[name])):
            for inner in (part, *typing.get_args(part)):
                if dataclasses.is_dataclass(inner):
                    found |= _fields(inner)
    return found

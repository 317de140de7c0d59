"""Typed requests and responses of every API version, over kio's codecs, loaded on first use.

Handlers answer with plain dicts of the newest field names; `respond` keeps what a version has, fills the rest
with the protocol's defaults, and so one handler serves all versions of its API.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import typing
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

Fields = Mapping[str, Any]
NONE = ErrorCode.none


@dataclasses.dataclass(frozen=True, slots=True)
class Api:
    """Codec of one API version."""

    read: Callable[[bytes, int], Any]
    write: Callable[[io.BytesIO, Any], None]
    build: Callable[[Fields], Any]
    write_header: Callable[[int], bytes]


@lru_cache(maxsize=None)
def load(name: str, version: int) -> Api:
    """Codec of API `name` (snake case) in `version`; raises ModuleNotFoundError when kio has none."""
    title = "".join(part.capitalize() for part in name.split("_"))
    request = getattr(importlib.import_module(f"kio.schema.{name}.v{version}.request"), f"{title}Request")
    response = getattr(importlib.import_module(f"kio.schema.{name}.v{version}.response"), f"{title}Response")
    reader, writer = entity_reader(request), entity_writer(response)
    header_type = response.__header_schema__
    header_writer = entity_writer(header_type)

    def write_header(correlation_id: int) -> bytes:
        out = io.BytesIO()
        header_writer(out, header_type(correlation_id=correlation_id))
        return out.getvalue()

    return Api(lambda data, at: reader(data, at)[0], writer, _builder(response), write_header)


@lru_cache(maxsize=None)
def header_reader(request_header_version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    """Reader of a request header; gives the header and how many bytes it took."""
    module = importlib.import_module(f"kio.schema.request_header.v{request_header_version}.header")
    return typing.cast(Callable[[bytes, int], tuple[Any, int]], entity_reader(module.RequestHeader))


@lru_cache(maxsize=None)
def request_header_version(name: str, version: int) -> int:
    """1, or 2 for flexible versions."""
    title = "".join(part.capitalize() for part in name.split("_"))
    request = getattr(importlib.import_module(f"kio.schema.{name}.v{version}.request"), f"{title}Request")
    return int(request.__header_schema__.__version__)


@lru_cache(maxsize=None)
def _builder(entity: type) -> Callable[[Fields], Any]:
    """A function from a dict to `entity`; nested dicts become nested entities."""
    hints = typing.get_type_hints(entity)
    plan = [(field, *_shape(hints[field.name])) for field in dataclasses.fields(entity)]

    def build(values: Fields) -> Any:
        made: dict[str, Any] = {}
        for field, kind, nested, default in plan:
            if field.name in values:
                value = values[field.name]
                if nested is not None and value is not None:
                    inner = _builder(nested)
                    value = tuple(inner(item) for item in value) if kind == "many" else inner(value)
                made[field.name] = value
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                made[field.name] = default
        return entity(**made)

    return build


def _shape(hint: Any) -> tuple[str, Any, Any]:
    """(one|many, nested entity or None, default of a field that a handler leaves out)."""
    optional = False
    if typing.get_origin(hint) in (typing.Union, UnionType):
        parts = [part for part in typing.get_args(hint) if part is not NoneType]
        optional, hint = True, parts[0]
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        nested = item if dataclasses.is_dataclass(item) else None
        return "many", nested, None if optional else ()
    nested = hint if dataclasses.is_dataclass(hint) else None
    if optional:
        return "one", nested, None
    return "one", nested, _default(hint, nested)


def _default(hint: Any, nested: Any) -> Any:
    if nested is not None:
        return _builder(nested)({})
    if hint is ErrorCode:
        return NONE
    for base, value in _DEFAULTS:
        if isinstance(hint, type) and issubclass(hint, base):
            return value
    return 0


_DEFAULTS: tuple[tuple[type, Any], ...] = (
    (bool, False),
    (str, ""),
    (bytes, b""),
    (timedelta, timedelta(0)),
    (datetime, datetime.fromtimestamp(0, timezone.utc)),
    (int, 0),
)

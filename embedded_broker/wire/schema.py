"""Typed requests and responses of every API version, over kio's codecs, loaded on first use.

Handlers answer with plain dicts of the newest field names; `respond` keeps what a version has, fills the rest
with the protocol's defaults, and so one handler serves all versions of its API.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import struct
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from embedded_broker.wire.responses import Same

Fields = Mapping[str, Any]
Frame = bytes | bytearray
"""A whole request; a bytearray if it is a long one, see `framing`."""
_INT32 = struct.Struct(">i")
MESSAGE, MESSAGE_MAX = "error_message", 1_000
"""Messages repeat names that a client has chosen; one that fits into a request needn't fit into an answer with more."""


@dataclasses.dataclass(frozen=True, slots=True)
class ApiCodec:
    """Codec of one API version."""

    read: Callable[[bytes | memoryview, int], Any]
    write: Callable[[io.BytesIO, Any], None]
    build: Callable[[Fields], Any]
    write_header: Callable[[int], bytes]


@cache
def entity(name: str, version: int, kind: str) -> Any:
    """Return kio's class of a request or response; raises ModuleNotFoundError."""
    title = "".join(part.capitalize() for part in name.split("_")) + kind.capitalize()
    return getattr(importlib.import_module(f"kio.schema.{name}.v{version}.{kind}"), title)


@cache
def load(name: str, version: int) -> ApiCodec:
    """Make the codec of API `name` (snake case) in `version`; raises ModuleNotFoundError when kio has none."""
    request, response = entity(name, version, "request"), entity(name, version, "response")
    reader, writer = entity_reader(request), entity_writer(response)
    no_tags = b"\0" if response.__header_schema__.__flexible__ else b""

    def write_header(correlation_id: int) -> bytes:
        return _INT32.pack(correlation_id) + no_tags

    return ApiCodec(lambda data, at: reader(data, at)[0], writer, builder(response), write_header)


@cache
def request_header_version(name: str, version: int) -> int:
    """Return 1, or 2 for flexible versions."""
    return int(entity(name, version, "request").__header_schema__.__version__)


@cache
def builder(entity: type) -> Callable[[Fields], Any]:
    """Return a function from a dict to `entity`; fields that it doesn't have are left out: they are of other
    versions.
    """
    hints = typing.get_type_hints(entity)
    plan = [_plan(field, hints[field.name]) for field in dataclasses.fields(entity)]

    def build(values: Fields) -> Any:
        return _once(values, entity, build_anew) if type(values) is Same else build_anew(values)

    def build_anew(values: Fields) -> Any:
        made: dict[str, Any] = {}
        for name, convert, default in plan:
            if name in values:
                value = values[name]
                made[name] = value if convert is None or value is None else convert(value)
            elif default is not dataclasses.MISSING:
                made[name] = default
        return entity(**made)

    return build


def _once(values: Same, entity: type, build: Callable[[Fields], Any]) -> Any:
    made: Any = getattr(values, "made", None)
    if type(made) is not entity:
        values.made = made = build(values)
    return made


def _plan(field: dataclasses.Field[Any], hint: Any) -> tuple[str, Callable[[Any], Any] | None, Any]:
    """Return (field name, how a handler's value becomes kio's, what stands for a value left out)."""
    optional = False
    if typing.get_origin(hint) in (typing.Union, UnionType):
        optional, hint = True, next(part for part in typing.get_args(hint) if part is not NoneType)
    convert: Callable[[Any], Any] | None
    own = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        convert, default = _many(_converter(item)), (None if optional else ())
    else:
        convert, default = _converter(hint), (None if optional or own else _default(hint))
    if field.name == MESSAGE:
        convert = _short
    return field.name, convert, dataclasses.MISSING if own else default


def _short(message: str) -> str:
    return message if len(message) <= MESSAGE_MAX else message[:MESSAGE_MAX] + "…"


def _many(one: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    return tuple if one is None else lambda values: tuple(map(one, values))


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts a value: nested dicts become entities, error names codes, milliseconds durations
    and times.
    """
    if dataclasses.is_dataclass(hint):
        return builder(typing.cast(type, hint))
    if not isinstance(hint, type):
        return None
    if hint is ErrorCode:
        return error
    if issubclass(hint, timedelta):
        return lambda value: timedelta(milliseconds=value) if isinstance(value, int) else value
    if issubclass(hint, datetime):
        return lambda value: datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int) else value
    return None


def error(value: ErrorCode | str | int) -> ErrorCode:
    """Return an error code from its name in snake case, its number, or itself. Raises KeyError or ValueError."""
    if isinstance(value, ErrorCode):
        return value
    return ErrorCode[value] if isinstance(value, str) else ErrorCode(value)


def _default(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return builder(typing.cast(type, hint))({})
    if hint is ErrorCode:
        return ErrorCode.none
    return next((value for base, value in _DEFAULTS if isinstance(hint, type) and issubclass(hint, base)), 0)


_DEFAULTS: tuple[tuple[type, Any], ...] = (
    (bool, False),
    (str, ""),
    (bytes, b""),
    (timedelta, timedelta(0)),
    (datetime, datetime.fromtimestamp(0, UTC)),
    (UUID, UUID(int=0)),
    (int, 0),
)

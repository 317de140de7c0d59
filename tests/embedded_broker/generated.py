"""Requests of every API in every version, generated from the schema: plain ones, or with one string that is special."""

from __future__ import annotations

import dataclasses
import io
import typing
from collections.abc import Iterator
from types import NoneType
from typing import Any
from uuid import UUID

from kio.serial import entity_writer

from embedded_broker.wire import schema
from tests.embedded_broker.served import batch

Path = tuple[str, ...]
"""Where a field is: its name, behind the names of those it is in."""
NO_ID = UUID(int=0)
ZERO: dict[str, Any] = {"bool": False, "float64": 0.0, "uuid": UUID(int=0), "bytes": b"", "uint16": 1}


def strings(name: str, version: int) -> list[Path]:
    """All fields of a request that hold text, or several texts."""
    return [path for path, kind in _leaves(schema.entity(name, version, "request"), ()) if kind == "string"]


@dataclasses.dataclass(frozen=True)
class Filling:
    """What fields have by default. A text, or arrays, of None: null where that is possible, else "x" and nothing."""

    text: str | None = "x"
    number: int = 0
    topic_id: UUID = NO_ID
    items: int | None = 1


def request(
    name: str, version: int, values: dict[Path, Any] | None = None, text: str = "x", filling: Filling | None = None
) -> Any:
    """A request with one item in each array.

    A path of one name means a field of that name anywhere, unless a longer one says where it is.

    Args:
        name: of the API, in snake case.
        version: of the API.
        values: of fields that are to be something else than the default.
        text: the default of texts; that of numbers is 0.
        filling: instead of `text` and one item.
    """
    return _entity(schema.entity(name, version, "request"), (), values or {}, filling or Filling(text))


def frame(made: Any, client_id: str = "generated") -> bytes:
    """A request as it is sent, behind its size."""
    kind = type(made)
    header = kind.__header_schema__(
        request_api_key=kind.__api_key__,
        request_api_version=kind.__version__,
        correlation_id=1,
        client_id=client_id,
    )
    out = io.BytesIO()
    entity_writer(type(header))(out, header)
    entity_writer(kind)(out, made)
    return len(out.getvalue()).to_bytes(4, "big") + out.getvalue()


def _entity(kind: Any, path: Path, values: dict[Path, Any], filling: Filling) -> Any:
    hints = typing.get_type_hints(kind)
    made: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        at = (*path, field.name)
        item, is_array = _item(hints[field.name])
        inner = _inner(item)
        if inner is not None:
            value = _entity(inner, at, values, filling)
        elif (named := at if at in values else at[-1:]) in values:
            value = values[named]
        else:
            value = _leaf(field.metadata.get("kafka_type", ""), filling, NoneType in typing.get_args(item))
        if is_array and filling.items is None:
            made[field.name] = None if NoneType in typing.get_args(hints[field.name]) else []
        else:
            made[field.name] = value if not is_array else [value] * (filling.items or 0)
    return schema.builder(kind)(made) if not path else made


def _leaf(kafka_type: str, filling: Filling, nullable: bool) -> Any:
    if kafka_type == "string":
        return None if filling.text is None and nullable else "x" if filling.text is None else filling.text
    if kafka_type == "uuid":
        return filling.topic_id
    return batch(b"v") if kafka_type == "records" else ZERO.get(kafka_type, filling.number)


def _leaves(kind: Any, path: Path) -> Iterator[tuple[Path, str]]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        item, _ = _item(hints[field.name])
        inner = _inner(item)
        if inner is not None:
            yield from _leaves(inner, (*path, field.name))
        else:
            yield (*path, field.name), field.metadata.get("kafka_type", "")


def _item(hint: Any) -> tuple[Any, bool]:
    """(the type of one item, whether the field is an array)."""
    for part in (hint, *typing.get_args(hint)):
        if typing.get_origin(part) is tuple:
            return typing.get_args(part)[0], True
    return hint, False


def _inner(item: Any) -> Any:
    """The entity that a field, or an item of it, is; None for a value."""
    parts = [item, *[part for part in typing.get_args(item) if part is not NoneType]]
    return next((part for part in parts if dataclasses.is_dataclass(part)), None)

"""pydantic's errors in the words of a flow file, with the nearest known key for an unknown one."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel

from replicator.config.source import Path

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_WORDS = {
    "missing": "missing; it has no default",
    "string_type": "expected text",
    "int_type": "expected a whole number",
    "bool_type": "expected true or false",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "dict_type": "expected keys with values",
    "model_type": "expected keys with values",
    "model_attributes_type": "expected keys with values",
    "too_short": "expected at least one",
}


def fault_of(model: type[BaseModel], detail: ErrorDetails, data: Any) -> tuple[Path, str]:
    """Where in the section, and what, for one error of `model`."""
    where: Path = tuple(detail["loc"])
    kind = detail["type"]
    if kind == "extra_forbidden":
        return where, _unknown_key(model, where)
    if kind == "value_error":
        return where, str(detail["ctx"]["error"])
    message = _WORDS.get(kind) or detail["msg"][:1].lower() + detail["msg"][1:].replace("Input should", "should")
    message = message.replace("input should be", "expected")
    if kind != "missing" and not isinstance(detail["input"], (dict, list)) and "properties" not in where:
        message += f", not {detail['input']!r}"
    return where, message


def _unknown_key(model: type[BaseModel], where: Path) -> str:
    owner = _model_at(model, where[:-1])
    known = sorted(owner.model_fields) if owner else []
    near = difflib.get_close_matches(str(where[-1]), known, n=1, cutoff=0.5)
    if near:
        return f"unknown key; did you mean {near[0]!r}?"
    return f"unknown key; known are {', '.join(known)}"


def _model_at(model: type[BaseModel], where: Path) -> type[BaseModel] | None:
    """The model that reads the mapping at `where`."""
    here: Any = model
    for part in where:
        if isinstance(here, type) and issubclass(here, BaseModel):
            if part not in here.model_fields:
                return None
            here = here.model_fields[str(part)].annotation
        elif get_origin(here) is dict:
            here = get_args(here)[1]
        else:
            return None
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None

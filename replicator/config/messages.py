"""pydantic's errors in the words of a flow file, with the nearest known name for an unknown one."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel

from replicator.config.source import Path, but
from replicator.config.units import unit_of
from replicator.model.nearest import nearest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_WORDS = {
    "missing": "missing; it has no default",
    "string_type": "expected text",
    "string_too_short": "expected text",
    "int_type": "expected a whole number",
    "bool_type": "expected true or false",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "dict_type": "expected keys with values",
    "model_type": "expected keys with values",
    "model_attributes_type": "expected keys with values",
    "too_short": "expected at least one",
}
_BOUNDS = {"greater_than_equal": ("ge", "at least"), "less_than_equal": ("le", "at most")}
_CHOICES = ("literal_error", "enum")


def faults_of(model: type[BaseModel], details: Sequence[ErrorDetails]) -> list[tuple[Path, str]]:
    """Return where in the section, and what, for the errors of `model`.

    One fault of the file is one error: a key that is misspelt isn't missing besides, and a list whose items are wrong
    isn't empty.
    """
    places = [tuple(detail["loc"]) for detail in details]
    meant = {
        (*place[:-1], near)
        for place, detail in zip(places, details, strict=True)
        if detail["type"] == "extra_forbidden" and (near := nearest(str(place[-1]), _known(model, place)))
    }
    return [
        (place, _message(model, place, detail))
        for place, detail in zip(places, details, strict=True)
        if not (detail["type"] == "missing" and place in meant)
        and not (detail["type"] == "too_short" and any(other[:-1] == place for other in places))
    ]


def alternatives(choices: Sequence[str]) -> str:
    """Join choices as in `a, b or c`."""
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))


def suggestion(name: str, known: Collection[str], cutoff: float = 0.5) -> str:
    """Return the end of a message about an unknown name; empty where none is near."""
    near = nearest(name, known, cutoff)
    return f"; did you mean {near!r}?" if near else ""


def _message(model: type[BaseModel], where: Path, detail: ErrorDetails) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = _known(model, where)
        return "unknown key" + (suggestion(str(where[-1]), known) or f"; known are {', '.join(known)}")
    if kind == "value_error":
        return str(context["error"])
    if kind == "missing":
        return _WORDS[kind]
    if "properties" in where:  # never shown: it may be a secret
        return f"{_WORDS.get(kind, detail['msg'])}{but(value, hidden=True)}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        unit = unit_of(str(where[-1]))
        bound = f"{context[name]}" + (f" ({unit.text(context[name])})" if unit else "")
        return f"must be {words} {bound}{but(value)}"
    if kind in _CHOICES:
        choices = re.findall(r"'([^']*)'", context["expected"]) or [context["expected"]]
        near = suggestion(value, choices) if isinstance(value, str) else ""
        return f"expected {alternatives(choices)}{but(value)}{near}"
    message = _WORDS.get(kind) or detail["msg"][:1].lower() + detail["msg"][1:]
    return message if kind == "too_short" else f"{message}{but(value)}"


def _known(model: type[BaseModel], where: Path) -> list[str]:
    """Return the keys beside the one at `where`."""
    owner = _model_at(model, where[:-1])
    return sorted(owner.model_fields) if owner else []


def _model_at(model: type[BaseModel], where: Path) -> type[BaseModel] | None:
    """Return the model that reads the mapping at `where`."""
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

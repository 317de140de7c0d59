"""Names of columns, taken from the fields of the named tuple that a row is: no list of them is written twice."""

from __future__ import annotations

import typing
from types import SimpleNamespace


class Names(SimpleNamespace):
    """Has each field's name under that name. Another one raises AttributeError where it is written, and not in a
    query's plan."""

    if typing.TYPE_CHECKING:

        def __getattr__(self, name: str, /) -> str: ...


def names(of: type[tuple[object, ...]]) -> Names:
    """Return the names of a named tuple's fields."""
    return Names(**{name: name for name in typing.get_type_hints(of)})

"""Where a flow's schemas stand, for whoever looks at the process. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchemasShown:
    """How many schemas are kept at the target; when that was found in order last (wall clock; 0: never yet); and
    what has stood against it since, empty where nothing has."""

    schemas: int
    synced_ms: int
    reason: str = ""


SchemaObserver = Callable[[SchemasShown | None], None]
"""Is told of it by the thread that syncs them; None: this process doesn't any more."""


def unseen(shown: SchemasShown | None) -> None:
    """Nobody wants to know."""

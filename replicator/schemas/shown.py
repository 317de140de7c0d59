"""Where a flow's schemas stand, for whoever looks at the process or at the registries. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from replicator.schemas.plan import SchemaConflict, SchemaPlan

CONFLICTS_SHOWN = 100
"""Of one flow, in JSON and on the page; `eos-replicate schemas` names all of them."""


@dataclass(frozen=True, slots=True)
class SchemasShown:
    """Where the schemas of a flow stand.

    Attributes:
        schemas: how many are kept at the target, of `subjects`.
        synced_ms: when they were found in order last (wall clock); 0: never yet, or nobody has kept that.
        reason: what has stood against it since; empty where nothing has.
        waiting: subjects of which something isn't at the target yet; against it stands nothing, or what it refers to.
        refused: subjects of which a schema can't go over.
        conflicts: these schemas, and why.
    """

    schemas: int
    synced_ms: int
    reason: str = ""
    subjects: int = 0
    waiting: int = 0
    refused: int = 0
    conflicts: tuple[SchemaConflict, ...] = ()

    @property
    def in_sync(self) -> int:
        """How many subjects are at the target as they should."""
        return self.subjects - self.waiting - self.refused

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "schemas": self.schemas,
            "synced_ms": self.synced_ms,
            "reason": self.reason,
            "subjects": self.subjects,
            "in_sync": self.in_sync,
            "waiting": self.waiting,
            "refused": self.refused,
            "conflict_count": len(self.conflicts),
            "conflicts": [it.as_json() for it in self.conflicts[:CONFLICTS_SHOWN]],
        }


def shown_of(plan: SchemaPlan, *, applied: bool, synced_ms: int = 0, reason: str = "") -> SchemasShown:
    """Show what a comparison has found. `applied`: what was to be written is written."""
    waiting = {it.version.subject for it in plan.held} | (set() if applied else plan.written)
    return SchemasShown(
        plan.selected,
        synced_ms,
        reason,
        plan.subjects,
        len(waiting - plan.refused),
        len(plan.refused),
        plan.conflicts,
    )


SchemaObserver = Callable[[SchemasShown | None], None]
"""Is told of it by the thread that syncs them; None: this process doesn't any more."""


def unseen(shown: SchemasShown | None) -> None:
    """Ignore it: nobody wants to know."""

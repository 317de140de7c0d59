"""What `status` says of the schemas that a flow keeps at the target's registry; `schemas` names each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cli.options import patience_ms

if TYPE_CHECKING:
    from replicator.config import Flow
    from replicator.schemas.shown import SchemasShown

CONFLICTS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class FlowSchemas:
    """Where a flow's schemas stand; or why that isn't known."""

    shown: SchemasShown | None = None
    unknown: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        found = {} if self.shown is None else self.shown.as_json()
        found.pop("synced_ms", None)  # nobody keeps it
        return {**found, "unknown": self.unknown}

    def lines(self) -> Iterator[str]:
        """Yield lines for people: how many subjects are in sync, and what stands against others."""
        from replicator.model.counting import counted

        if self.shown is None:
            yield f"schemas: {self.unknown}"
            return
        others = {"waiting": self.shown.waiting, "refused": self.shown.refused}
        counts = "".join(f", {number:,} {word}" for word, number in others.items() if number)
        subjects = counted(self.shown.subjects, "subject")
        yield f"schemas of {subjects}, {self.shown.in_sync:,} in sync{counts}"
        conflicts = self.shown.conflicts
        yield from (f"schema {it}" for it in conflicts[:CONFLICTS_SHOWN])
        if len(conflicts) > CONFLICTS_SHOWN:
            yield f"and {len(conflicts) - CONFLICTS_SHOWN:,} more that can't go over; eos-replicate schemas shows them"

    def problems(self, flow: str) -> Iterator[str]:
        """Yield for `--check` what needs somebody. What waits comes by itself, like lag."""
        if self.shown is None:
            yield f"flow {flow}: it isn't known where its schemas stand: {self.unknown}"
        else:
            yield from (f"flow {flow}: schema {it}" for it in self.shown.conflicts)


def ask_schemas(flows: Iterable[Flow], known: Collection[str]) -> Mapping[str, FlowSchemas]:
    """Ask the registries of flows that keep schemas at the target, by flow; only of those that are `known`, whose
    clusters answer."""
    from replicator.model.errors import ReplicatorError
    from replicator.schema_sync import view

    found = {}
    for flow in flows:
        if flow.schema_registry.synced and flow.name in known:
            try:
                found[flow.name] = FlowSchemas(view.look(flow, patience_ms(flow) / 1000))
            except ReplicatorError as error:  # the rest of the status is known
                found[flow.name] = FlowSchemas(unknown=str(error))
    return found

"""Looks at a flow's schemas from outside: where they stand by both registries now. Changes nothing."""

from __future__ import annotations

from contextlib import closing

from replicator.config import Flow
from replicator.schema_sync.sync import said_of_conflicts, sync_of
from replicator.schemas.shown import SchemasShown, shown_of


def look(flow: Flow, timeout_s: float) -> SchemasShown:
    """Compare both registries, but for compatibility levels, for which each subject would be a question of its own.

    Raises:
        ConfigError: certificates that can't be used.
        Unreachable, Retriable, NotAllowed, Unsupported: a registry can't be asked.
    """
    with closing(sync_of(flow.schema_registry, timeout_s)) as sync:
        plan = sync.compare(levels=False).plan
    return shown_of(plan, applied=False, reason=said_of_conflicts(plan))

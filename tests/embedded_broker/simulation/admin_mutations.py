"""Planted bugs in how metadata is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from embedded_broker.metadata.changes import Changes
from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.simulation.history import ViolationKind
from embedded_broker.simulation.schedule import WorkloadKind
from tests.embedded_broker.simulation.mutations import Mutations, Patch

ADMIN = Mutations(WorkloadKind.ADMIN)


@ADMIN.add(ViolationKind.LOST_CHANGE)
def cancel_changes_whose_client_leaves(patch: Patch) -> None:
    async def in_its_task(self: Changes, name: str, work: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        try:
            return await work()
        finally:
            self._tasks.pop(task, None)

    patch.setattr(Changes, "finish", in_its_task)


@ADMIN.add(ViolationKind.LOST_CHANGE)
def change_metadata_without_waiting_for_other_changes(patch: Patch) -> None:
    async def at_once(self: Changes) -> None:
        """No lock."""

    patch.setattr(Changes, "begin", at_once)
    patch.setattr(Changes, "end", lambda self: None)
    patch.setattr(Changes, "check", lambda self: None)


@ADMIN.add(ViolationKind.LOST_CHANGE)
def acknowledge_changes_before_the_fsync(patch: Patch) -> None:
    async def hasty(self: MetadataLog, entries: Mapping[str, Any], own: bool) -> None:
        self.changes.check()
        self._append(entries, own=own)
        for key, body in entries.items():
            if body is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = body

    patch.setattr(MetadataLog, "_put", hasty)


MUTATIONS = ADMIN

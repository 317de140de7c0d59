"""The thread that keeps a flow's schemas at the target's registry, beside its lanes, which never wait for it.

A failure stops nothing: it is told once, and tried again later; copying goes on. So does what a conflict doesn't
concern: it is compared as soon as ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import structlog

from replicator.backoff import Backoff
from replicator.clock import RealClock
from replicator.config import Flow
from replicator.lane.ports import Clock
from replicator.model.errors import ReplicatorError
from replicator.schema_sync.sync import SHOWN_MAX, SchemaSync, said_of_conflicts, sync_of
from replicator.schemas.plan import SchemaPlan
from replicator.schemas.schema import Schema
from replicator.schemas.shown import SchemaObserver, SchemasShown, shown_of, unseen

AGAIN_FIRST_S, AGAIN_MAX_S = 1.0, 60.0
COMPARE_S = 30.0
"""So often all versions are compared, also where no new id was given out: a version that is soft-deleted, or one more
subject with a known schema, has none. A registry that doesn't tell its highest id is compared more often."""
COMPARE_OFTEN_S = 5.0
LEVELS_S = 600.0
"""So often compatibility levels are compared, and modes that a killed process has left behind."""


class SchemaWatch:
    """Of one flow. It ends when `ended` is set."""

    def __init__(
        self,
        flow: Flow,
        sync: SchemaSync,
        ended: threading.Event,
        log: structlog.stdlib.BoundLogger,
        clock: Clock | None = None,
        seen: SchemaObserver = unseen,
    ) -> None:
        self._interval_s = flow.schema_registry.interval_ms / 1000
        self._sync, self._ended, self._log, self._clock = sync, ended, log, clock or RealClock()
        self._backoff = Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
        self._told = ""
        self._selected = -1
        self._compared_s = self._levels_s = float("-inf")
        self._known_id, self._highest_id = 0, 0
        self._seen, self._shown = seen, SchemasShown(0, 0)
        self._plan, self._applied = SchemaPlan(0), False  # what was compared last, and whether it was written
        self._tells = True  # whether the source's registry tells its highest id

    def run(self, failed: Callable[[BaseException], None]) -> None:
        """Run until it has ended; this is the thread's work. `failed` is told of a bug, which ends it."""
        try:
            with closing(self._sync):
                pause_s = 0.0
                while not self._clock.wait(self._ended, pause_s):
                    pause_s = self.look()
        except BaseException as error:  # noqa: BLE001 - the flow classifies it
            failed(error)
        finally:
            self._seen(None)

    def look(self) -> float:
        """Run one round; return how long to wait for the next one."""
        try:
            if self._due():
                self._compare()
        except ReplicatorError as error:
            self._compared_s = float("-inf")
            if not self._ended.is_set():
                self._not_done(str(error), in_conflict=False)
            self._show(str(error))
            return max(self._interval_s, self._backoff.next_s())
        self._backoff.reset()
        against = said_of_conflicts(self._plan)
        if against:
            self._not_done(against, in_conflict=True)
        elif self._told:
            self._told = ""
            self._log.info("schemas_synced_again")
        self._show(against)
        return self._interval_s

    def _show(self, reason: str) -> None:
        """Tell whoever looks where schemas stand: as they were compared last."""
        synced_ms = self._shown.synced_ms if reason else self._clock.now_ms()
        self._shown = shown_of(self._plan, applied=self._applied, synced_ms=synced_ms, reason=reason)
        self._seen(self._shown)

    def _due(self) -> bool:
        """Return whether all is to be compared."""
        since_s = self._clock.now_s() - self._compared_s
        if since_s >= COMPARE_S or not self._known_id:
            return since_s >= (COMPARE_OFTEN_S if self._compared_s > float("-inf") else 0)
        if not self._tells:
            return since_s >= COMPARE_OFTEN_S
        highest = self._sync.source.highest_id(self._known_id)
        self._tells = highest is not None
        if highest is None or highest == self._highest_id:
            return False
        self._highest_id = highest
        return True

    def _compare(self) -> None:
        levels = self._clock.now_s() - self._levels_s >= LEVELS_S
        compared = self._sync.compare(levels=levels)
        if levels:
            self._tell_released(self._sync.release(compared))
        registered: list[Schema] = []
        try:
            self._plan, self._applied = compared.plan, False
            self._plan = self._sync.apply(compared, registered.append, self._ended.is_set)
            self._applied = True
        finally:
            self._tell(registered)
        if levels and self._plan.levels == compared.plan.levels:
            self._levels_s = self._clock.now_s()
        self._compared_s = self._clock.now_s()
        self._known_id, self._tells = compared.highest_id, True  # it didn't tell perhaps as the id was gone
        self._highest_id = max(self._highest_id, self._known_id)

    def _tell(self, registered: list[Schema]) -> None:
        if registered:
            subjects = len({it.version.subject for it in registered})
            self._log.info("schemas_registered", schemas=len(registered), subjects=subjects)
        if self._plan.selected != self._selected and not self._plan.conflicts:
            self._selected = self._plan.selected
            self._log.info("schemas_followed", schemas=self._selected)

    def _tell_released(self, subjects: list[str]) -> None:
        """Tell whose mode was taken away: which one they had before, such as READONLY, nobody knows any more."""
        if subjects:
            shown = ", ".join(subjects[:SHOWN_MAX])
            more = f" and {len(subjects) - SHOWN_MAX:,} more" if len(subjects) > SHOWN_MAX else ""
            self._log.warning("schema_modes_reset", subjects=len(subjects), detail=shown + more)

    def _not_done(self, reason: str, *, in_conflict: bool) -> None:
        if reason == self._told:
            return
        self._told = reason
        if in_conflict:
            self._log.error("schemas_in_conflict", reason=reason)
        else:
            self._log.warning("schemas_not_synced", reason=reason)


def watch_schemas(
    flow: Flow,
    seen: SchemaObserver,
    ended: threading.Event,
    log: structlog.stdlib.BoundLogger,
    failed: Callable[[BaseException], None],
) -> None:
    """Start the thread, if the flow has registries that are to be synced."""
    if not flow.schema_registry.synced:
        return
    try:
        sync = sync_of(flow.schema_registry, flow.limits.request_timeout_ms / 1000, ended.wait)
    except ReplicatorError as error:  # certificates that can't be used: copying doesn't need them
        log.warning("schemas_not_synced", reason=str(error))
        seen(SchemasShown(0, 0, str(error)))
        return
    watch = SchemaWatch(flow, sync, ended, log, seen=seen)
    threading.Thread(target=watch.run, args=(failed,), name=f"{flow.name}.schemas", daemon=True).start()

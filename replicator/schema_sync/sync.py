"""One comparison of two registries, and what follows from it at the target's.

Invariant: all is compared before the first write. Between the two somebody else may register there; so each subject is
looked at again once it is in mode IMPORT, in which the registry takes nothing without an id. Another one that syncs the
same registries writes the same, and takes the mode away when it is done: then the subject is entered again. What a
registry refuses holds up that subject, and what refers to what it lacks; the others go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from replicator.config.registry_settings import RegistryAccess, SchemaRegistrySettings
from replicator.model.counting import counted
from replicator.model.errors import SchemaRefused, SchemasInConflict
from replicator.schema_sync.http import RegistryConnection
from replicator.schema_sync.registry import IMPORT, SchemaRegistry
from replicator.schema_sync.writer import READWRITE, SubjectWriter
from replicator.schemas.plan import SchemaConflict, SchemaPlan, planned, reached
from replicator.schemas.schema import DEFAULT_CONTEXT, Registry, Schema, Version

SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class RegistriesCompared:
    """Both registries as they were, and the plan that follows."""

    source: Registry
    target: Registry
    plan: SchemaPlan
    reached: frozenset[str] = frozenset()
    """Subjects that may be written to: those that are selected, and what they refer to, on either side."""

    @property
    def highest_id(self) -> int:
        """Of the source, as far as it has versions with it; 0 where it has none."""
        default = (it.id for it in self.source.schemas.values() if it.place[0] == DEFAULT_CONTEXT)
        return max(default, default=0)


class SchemaSync:
    """Of one flow. Of one thread."""

    def __init__(self, settings: SchemaRegistrySettings, source: SchemaRegistry, target: SchemaRegistry) -> None:
        self._settings, self.source, self.target = settings, source, target

    def close(self) -> None:
        """Close both connections."""
        self.source.close()
        self.target.close()

    def compare(self, *, levels: bool) -> RegistriesCompared:
        """Read both registries. Compatibility levels are read of all selected subjects, or of those only that the
        target has no version of. Raises ReplicatorError."""
        source, target = Registry(self.source.schemas()), Registry(self.target.schemas())
        subjects = {subject for subject in source.subjects if self._settings.selects(subject)}
        asked = sorted(subjects if levels else subjects - target.subjects)
        source = Registry(source.schemas, self.source.levels(asked))
        target = Registry(target.schemas, self.target.levels(sorted(source.levels)))
        selects = self._settings.selects
        both = reached(source.schemas, selects) | reached(target.schemas, selects)
        source, plan = self._planned(source, target)
        return RegistriesCompared(source, target, plan, frozenset(both))

    def _planned(self, source: Registry, target: Registry) -> tuple[Registry, SchemaPlan]:
        """Return the plan, and the source as it is in subjects of which something is to be deleted: a version that is
        in no page of the live ones isn't deleted, if an earlier one was while they were read."""
        asked = set[str]()
        while True:
            plan = planned(source, target, self._settings.selects)
            subjects = {at.subject for at in plan.delete} - asked
            if not subjects:
                return source, plan
            asked |= subjects
            live = {at for subject in sorted(subjects) for at in self.source.live(subject)}
            schemas = {at: replace(it, deleted=it.deleted and at not in live) for at, it in source.schemas.items()}
            source = replace(source, schemas=schemas)

    def levels_left(self, compared: RegistriesCompared) -> dict[str, str]:
        """Ask for the compatibility levels that selected subjects have at the target alone: they stay. After a
        comparison with levels. Raises ReplicatorError."""
        subjects = {subject for subject in compared.source.subjects if self._settings.selects(subject)}
        return self.target.levels(sorted(subjects & compared.target.subjects - compared.source.levels.keys()))

    def apply(
        self,
        compared: RegistriesCompared,
        done: Callable[[Schema], None] = lambda schema: None,
        ended: Callable[[], bool] = lambda: False,
    ) -> SchemaPlan:
        """Write what is planned, until it has `ended`. `done` is told of each schema that is registered. Returns the
        plan with what was written, and with all that stands against the rest, also what the registry has refused.
        Raises what says that a registry doesn't answer."""
        plan = compared.plan
        steps = list(_steps(self.target, compared, done))
        writer = SubjectWriter(self.target, compared.source, compared.target, Counter(it.at.subject for it in steps))
        conflicts, held = list(plan.conflicts), list(plan.held)
        written, left_alone, missing = set[object](), set[str](), set[Version]()
        try:
            for step in steps:
                if ended():
                    break
                if step.at.subject in left_alone:
                    missing.add(step.at)
                    continue
                needs = next((at for at in step.refers_to if at in missing), None)
                try:
                    if needs is None:
                        writer.write(step.at.subject, partial(step.write, writer))
                        written.add(step.what)
                        continue
                    held.append(SchemaConflict(step.at, step.id, f"refers to {needs}, which doesn't go over"))
                except (SchemaRefused, SchemasInConflict) as error:
                    conflicts.append(SchemaConflict(step.at, step.id, str(error)))
                left_alone.add(step.at.subject)
                missing.add(step.at)
                writer.leave(step.at.subject)
        finally:
            writer.leave_all()
        return replace(
            plan,
            register=tuple(it for it in plan.register if it in written),
            delete=tuple(at for at in plan.delete if at in written),
            levels=tuple(it for it in plan.levels if it in written),
            conflicts=tuple(conflicts),
            held=tuple(held),
        )

    def release(self, compared: RegistriesCompared) -> list[str]:
        """Take the mode IMPORT from subjects that a process has left in it which was killed while it wrote to them.
        Returns them."""
        registry_mode = self.target.mode()
        left = [subject for subject in sorted(compared.reached) if self.target.mode(subject) == IMPORT]
        for subject in left:
            self.target.forget_mode(subject, registry_mode or READWRITE)
        return left


class _Step(NamedTuple):
    """One write. `what`: of the plan; `at`, `id`: the version that is named where it is refused."""

    what: object
    at: Version
    id: int
    write: Callable[[SubjectWriter], None]
    refers_to: tuple[Version, ...] = ()


def _steps(target: SchemaRegistry, compared: RegistriesCompared, done: Callable[[Schema], None]) -> Iterator[_Step]:
    plan, source = compared.plan, compared.source

    def register(schema: Schema, writer: SubjectWriter) -> None:
        writer.register(schema)
        done(schema)

    for it in plan.register:
        yield _Step(it, it.version, it.id, partial(register, it), it.refers_to)
    for at in plan.delete:
        yield _Step(at, at, source.schemas[at].id, lambda _, at=at: target.delete(at))  # type: ignore[misc]
    newest = {at.subject: at for at in sorted(source.schemas)}
    for pair in plan.levels:
        at = newest[pair[0]]
        yield _Step(pair, at, source.schemas[at].id, lambda _, pair=pair: target.set_level(*pair))  # type: ignore[misc]


def said_of_conflicts(plan: SchemaPlan) -> str:
    """Say what stands against the plan, in one line; empty where nothing does."""
    if not plan.conflicts:
        return ""
    shown = "; ".join(str(it) for it in plan.conflicts[:SHOWN_MAX])
    more = f"; and {len(plan.conflicts) - SHOWN_MAX:,} more" if len(plan.conflicts) > SHOWN_MAX else ""
    held = f"; {counted(len(plan.held), 'schema')} behind them" if plan.held else ""
    return f"{counted(len(plan.conflicts), 'schema')} can't go over: {shown}{more}{held}"


def sync_of(
    settings: SchemaRegistrySettings, timeout_s: float, pause: Callable[[float], object] | None = None
) -> SchemaSync:
    """Make what syncs the registries of a flow. Raises ConfigError for certificates that can't be used."""

    def registry(access: RegistryAccess, side: str) -> SchemaRegistry:
        given = {} if pause is None else {"pause": pause}
        return SchemaRegistry(RegistryConnection(access, side, timeout_s, **given))

    return SchemaSync(settings, registry(settings.source, "source"), registry(settings.target, "target"))

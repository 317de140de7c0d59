"""One comparison of two registries, and what follows from it at the target's.

Invariant: all is compared before the first write. Between the two somebody else may register there; so each subject is
looked at again once it is in mode IMPORT, in which the registry takes nothing without an id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replicator.config.registry_settings import RegistryAccess, SchemaRegistrySettings
from replicator.model.counting import counted
from replicator.model.errors import ReplicatorError, SchemasInConflict
from replicator.schema_sync.http import RegistryConnection
from replicator.schema_sync.registry import IMPORT, SchemaRegistry
from replicator.schemas.plan import SchemaPlan, planned
from replicator.schemas.schema import DEFAULT_CONTEXT, Registry, Schema, Version

SHOWN_MAX = 5
READWRITE = "READWRITE"


@dataclass(frozen=True, slots=True)
class Compared:
    """Both registries as they were, and the plan that follows."""

    source: Registry
    target: Registry
    plan: SchemaPlan

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

    def compare(self, *, levels: bool) -> Compared:
        """Read both registries. Compatibility levels are read of all selected subjects, or of those only that the
        target has no version of. Raises ReplicatorError."""
        source, target = Registry(self.source.schemas()), Registry(self.target.schemas())
        subjects = {subject for subject in source.subjects if self._settings.selects(subject)}
        asked = sorted(subjects if levels else subjects - target.subjects)
        source = Registry(source.schemas, self.source.levels(asked))
        target = Registry(target.schemas, self.target.levels(sorted(source.levels)))
        return Compared(source, target, planned(source, target, self._settings.selects))

    def apply(self, compared: Compared, done: Callable[[Schema], None] = lambda schema: None) -> None:
        """Write what is planned. `done` is told of each schema that is registered. Raises SchemasInConflict, before
        anything is written; SchemaRefused, and what says that a registry doesn't answer."""
        plan = compared.plan
        if plan.conflicts:
            raise SchemasInConflict(said_of_conflicts(plan))
        work = _BySubject(self.target, compared.target, plan)
        try:
            for schema in plan.register:
                with_all = work.begin(schema.version.subject)
                self.target.register(schema)
                done(schema)
                with_all()
            for at in plan.delete:
                with_all = work.begin(at.subject)
                self.target.delete(at)
                with_all()
            for subject, level in plan.levels:
                with_all = work.begin(subject)
                self.target.set_level(subject, level)
                with_all()
        except BaseException:
            work.leave_all()
            raise

    def release(self, compared: Compared) -> list[str]:
        """Take the mode IMPORT from subjects that a process has left in it which was killed while it wrote to them.
        Returns them."""
        registry_mode = self.target.mode()
        ours = sorted({at.subject for at in compared.target.schemas if self._settings.selects(at.subject)})
        left = [subject for subject in ours if self.target.mode(subject) == IMPORT]
        for subject in left:
            self.target.forget_mode(subject, registry_mode or READWRITE)
        return left


class _BySubject:
    """Has each subject in mode IMPORT while it is written to, and as it was before and after."""

    def __init__(self, target: SchemaRegistry, before: Registry, plan: SchemaPlan) -> None:
        self._target, self._before = target, before
        self._left: dict[str, int] = {}  # what is still to be written to each subject
        for subject in (
            *(it.version.subject for it in plan.register),
            *(it.subject for it in plan.delete),
            *(subject for subject, _ in plan.levels),
        ):
            self._left[subject] = self._left.get(subject, 0) + 1
        self._entered: dict[str, str | None] = {}  # in IMPORT because of this, with the mode that they had
        self._registry_mode = target.mode() if self._left else None
        self._seen = set[str]()

    def begin(self, subject: str) -> Callable[[], None]:
        """Before something is written to the subject; what is returned is called when it is."""
        if subject not in self._seen:
            self._seen.add(subject)
            self._enter(subject)
        return lambda: self._one_less(subject)

    def _enter(self, subject: str) -> None:
        own = self._target.mode(subject)
        if own != IMPORT and not (own is None and self._registry_mode == IMPORT):
            known = {at.number for at in self._before.schemas if at.subject == subject}
            self._entered[subject] = own
            self._target.set_mode(subject, IMPORT, force=bool(known))
        self._check(subject)

    def _check(self, subject: str) -> None:
        """Nobody has registered a version meanwhile, over which the registry would write."""
        known = {at.number for at in self._before.schemas if at.subject == subject}
        new = self._target.versions(subject) - known
        if new:
            at = Version(subject, min(new))
            raise SchemasInConflict(f"{at} was registered at the target meanwhile; nothing of the subject was written")

    def _one_less(self, subject: str) -> None:
        self._left[subject] -= 1
        if not self._left[subject]:
            self._leave(subject)

    def _leave(self, subject: str) -> None:
        if subject not in self._entered:
            return
        before = self._entered.pop(subject)
        if before is None:
            self._target.forget_mode(subject, self._registry_mode or READWRITE)
        else:
            self._target.set_mode(subject, before)

    def leave_all(self) -> None:
        """After a failure: as far as the registry still answers."""
        for subject in list(self._entered):
            try:
                self._leave(subject)
            except ReplicatorError:
                return  # the failure itself is told


def said_of_conflicts(plan: SchemaPlan) -> str:
    """What stands against the plan, in one line."""
    shown = "; ".join(str(it) for it in plan.conflicts[:SHOWN_MAX])
    more = f"; and {len(plan.conflicts) - SHOWN_MAX:,} more" if len(plan.conflicts) > SHOWN_MAX else ""
    return f"{counted(len(plan.conflicts), 'schema')} can't go over, and nothing was written: {shown}{more}"


def sync_of(
    settings: SchemaRegistrySettings, timeout_s: float, pause: Callable[[float], object] | None = None
) -> SchemaSync:
    """Make what syncs the registries of a flow. Raises ConfigError for certificates that can't be used."""

    def registry(access: RegistryAccess, side: str) -> SchemaRegistry:
        given = {} if pause is None else {"pause": pause}
        return SchemaRegistry(RegistryConnection(access, side, timeout_s, **given))

    return SchemaSync(settings, registry(settings.source, "source"), registry(settings.target, "target"))

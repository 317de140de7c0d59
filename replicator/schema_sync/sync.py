"""One comparison of two registries, and what follows from it at the target's.

Invariant: all is compared before the first write. Between the two somebody else may register there; so each subject is
looked at again once it is in mode IMPORT, in which the registry takes nothing without an id. Another one that syncs the
same registries writes the same, and takes the mode away when it is done: then the subject is entered again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from replicator.config.registry_settings import RegistryAccess, SchemaRegistrySettings
from replicator.model.counting import counted
from replicator.model.errors import ReplicatorError, SchemaRefused, SchemasInConflict
from replicator.schema_sync.http import RegistryConnection
from replicator.schema_sync.registry import IMPORT, SchemaRegistry
from replicator.schemas.plan import SchemaPlan, planned, reached
from replicator.schemas.schema import DEFAULT_CONTEXT, Registry, Schema, Version

SHOWN_MAX = 5
READWRITE = "READWRITE"
NOT_PERMITTED = 42205
"""Error code of what the mode of a subject, or of the registry, doesn't allow."""
WRITES_MAX = 10
"""So often one write is tried, where others take the subject's mode away and set it again."""


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
        return RegistriesCompared(source, target, planned(source, target, selects), frozenset(both))

    def apply(
        self,
        compared: RegistriesCompared,
        done: Callable[[Schema], None] = lambda schema: None,
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        """Write what is planned, until it has `ended`. `done` is told of each schema that is registered. Raises
        SchemasInConflict, before anything is written; SchemaRefused, and what says that a registry doesn't answer."""
        plan = compared.plan
        if plan.conflicts:
            raise SchemasInConflict(said_of_conflicts(plan))
        steps: list[tuple[str, Callable[[], object]]] = [
            *((it.version.subject, partial(self._register, it, done)) for it in plan.register),
            *((at.subject, partial(self.target.delete, at)) for at in plan.delete),
            *((subject, partial(self.target.set_level, subject, level)) for subject, level in plan.levels),
        ]
        work = _BySubject(self.target, compared, Counter(subject for subject, _ in steps))
        try:
            for subject, step in steps:
                if ended():
                    return
                work.write(subject, step)
        finally:
            work.leave_all()

    def _register(self, schema: Schema, done: Callable[[Schema], None]) -> None:
        self.target.register(schema)
        done(schema)

    def release(self, compared: RegistriesCompared) -> list[str]:
        """Take the mode IMPORT from subjects that a process has left in it which was killed while it wrote to them.
        Returns them."""
        registry_mode = self.target.mode()
        left = [subject for subject in sorted(compared.reached) if self.target.mode(subject) == IMPORT]
        for subject in left:
            self.target.forget_mode(subject, registry_mode or READWRITE)
        return left


class _BySubject:
    """Has each subject in mode IMPORT while it is written to, and as it was before and after."""

    def __init__(self, target: SchemaRegistry, compared: RegistriesCompared, steps: Counter[str]) -> None:
        """`steps`: how often each subject is written to."""
        self._target, self._left = target, steps
        self._wanted = compared.source.schemas
        self._known: dict[str, set[int]] = defaultdict(set)  # versions that were compared
        for at in compared.target.schemas:
            self._known[at.subject].add(at.number)
        self._entered: dict[str, str | None] = {}  # in IMPORT until they are left, with the mode that they get then
        self._registry_mode = target.mode() if steps else None
        self._seen = set[str]()

    def write(self, subject: str, step: Callable[[], object]) -> None:
        """Do one of the subject's steps."""
        if subject not in self._seen:
            self._seen.add(subject)
            self._enter(subject)
        for left in reversed(range(WRITES_MAX)):
            try:
                step()
                break
            except SchemaRefused as error:
                if error.code != NOT_PERMITTED or not left:
                    raise
                self._enter(subject)
        self._left[subject] -= 1
        if not self._left[subject]:
            self._leave(subject)

    def _enter(self, subject: str) -> None:
        own = self._target.mode(subject)
        if own == IMPORT:  # a process that was killed has left it so, or another one writes
            self._entered.setdefault(subject, None)
        elif own is not None or self._registry_mode != IMPORT:
            self._entered[subject] = own
            self._set_import(subject)
        self._check(subject)

    def _set_import(self, subject: str) -> None:
        try:
            self._target.set_mode(subject, IMPORT, force=subject in self._known)
        except SchemaRefused:
            if subject in self._known:
                raise
            self._known[subject] = self._check(subject)
            self._target.set_mode(subject, IMPORT, force=True)

    def _check(self, subject: str) -> set[int]:
        """Nobody has registered a version meanwhile, over which the registry would write, but one that is the same. The
        versions that are there."""
        there = self._target.versions(subject)
        for number in sorted(there - self._known.get(subject, set())):
            at = Version(subject, number)
            wanted, found = self._wanted.get(at), self._target.schema(at)
            same = wanted and found and found.id == wanted.id and found.same_content(wanted)
            if found is not None and not same:
                said = f"{at} was registered at the target meanwhile, and was not written over"
                raise SchemasInConflict(said)
        return there

    def _leave(self, subject: str) -> None:
        if subject not in self._entered:
            return
        before = self._entered.pop(subject)
        if before is None:
            self._target.forget_mode(subject, self._registry_mode or READWRITE)
        else:
            self._target.set_mode(subject, before)

    def leave_all(self) -> None:
        """Those that something is still to be written to, as far as the registry answers."""
        for subject in list(self._entered):
            try:
                self._leave(subject)
            except ReplicatorError:
                return  # what has failed before is told; `release` comes back to them


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

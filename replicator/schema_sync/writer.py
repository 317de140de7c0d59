"""Writes to subjects of the target's registry, each in mode IMPORT for that time: nobody else can register there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from replicator.model.errors import ReplicatorError, SchemaRefused, SchemasInConflict
from replicator.schema_sync.registry import IMPORT, SchemaRegistry
from replicator.schemas.schema import Registry, Schema, Version

READWRITE = "READWRITE"
NOT_PERMITTED = 42205
"""Error code of what the mode of a subject, or of the registry, doesn't allow."""
WRITES_MAX = 10
"""So often one write is tried, where others take the subject's mode away and set it again."""


class SubjectWriter:
    """Has each subject in mode IMPORT while it is written to, and as it was before and after."""

    def __init__(self, registry: SchemaRegistry, source: Registry, target: Registry, steps: Counter[str]) -> None:
        """`source`, `target`: as they were compared. `steps`: how often each subject is written to."""
        self._target, self._left = registry, steps
        self._wanted = source.schemas
        self._known: dict[str, set[int]] = defaultdict(set)  # versions that are there, by what was seen last
        for at in target.schemas:
            self._known[at.subject].add(at.number)
        self._entered: dict[str, str | None] = {}  # in IMPORT until they are left, with the mode that they get then
        self._registry_mode = registry.mode() if steps else None
        self._seen = set[str]()

    def write(self, subject: str, step: Callable[[], object]) -> None:
        """Do one of the subject's steps. Raises SchemasInConflict for a version of somebody else, SchemaRefused, and
        what says that the registry doesn't answer."""
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
            self.leave(subject)

    def register(self, schema: Schema) -> None:
        """A step of `write`."""
        self._target.register(schema)
        self._known[schema.version.subject].add(schema.version.number)

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
            self._check(subject)
            self._target.set_mode(subject, IMPORT, force=True)

    def _check(self, subject: str) -> None:
        """Nobody has registered a version meanwhile but one that is the same."""
        for number in sorted(self._target.versions(subject) - self._known.get(subject, set())):
            at = Version(subject, number)
            wanted, found = self._wanted.get(at), self._target.schema(at)
            same = wanted and found and found.id == wanted.id and found.same_content(wanted)
            if found is not None and not same:
                raise SchemasInConflict(f"{at} was registered at the target meanwhile, and was not written over")
            self._known[subject].add(number)

    def leave(self, subject: str) -> None:
        """Give the subject the mode that it had, if it has another one."""
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
                self.leave(subject)
            except ReplicatorError:
                return  # what has failed before is told; `SchemaSync.release` comes back to them

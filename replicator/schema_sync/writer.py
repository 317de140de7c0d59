"""Writes to subjects of the target's registry, each in mode IMPORT for that time, without overwriting others.

Invariant: a version that the subject lacks is registered as its next one wherever it is that, for then the registry
itself counts, under its lock: a stranger who was quicker has the number, and keeps it. Only where the source's numbers
have a gap is the number given; a stranger who came in between is seen by the numbers in that gap, afterwards.
"""

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
        every = {**target.schemas, **source.schemas}
        self._ids = Counter((at.subject, it.id) for at, it in every.items())
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
        """Do a step of `write`: register it, and look what the version is then."""
        subject, number = schema.version
        known = self._known[subject]
        last = max(known, default=0)
        # one that has its id twice the registry takes for the other one
        if number == last + 1 and self._ids[subject, schema.id] == 1:
            self._target.register(schema, as_next=True)
            if not self._is_there(schema):
                self._take_back(schema)
                self._register_as(schema, last)
        else:
            self._register_as(schema, last)
        known.add(number)

    def _register_as(self, schema: Schema, last: int) -> None:
        """Register it under its own number; `last`: the highest that the subject is known to have."""
        self._target.register(schema, as_next=False)
        if not self._is_there(schema):
            raise SchemasInConflict(f"{schema.version} is another one at the target, just after it was registered")
        if schema.version.number > last + 1:
            try:
                self._check(schema.version.subject)
            except SchemasInConflict as error:
                raise SchemasInConflict(f"{error}; {schema.version} may have been written over somebody's") from error

    def _is_there(self, schema: Schema) -> bool:
        """Return whether the version has its id. Raises SchemasInConflict where another one has been quicker, with what
        was registered behind that taken away."""
        found = self._target.schema(schema.version)
        if found is not None and found.id != schema.id:
            left = self._take_back(schema)
            raise SchemasInConflict(
                f"{schema.version} was registered at the target meanwhile with id {found.id}, and was not written over"
                + (f"; {left} is left behind it" if left else "")
            )
        return found is not None

    def _take_back(self, schema: Schema) -> Version | None:
        """Delete what the registry has given another number than it should have, since that was taken. Returns what
        could not be deleted."""
        subject, left = schema.version.subject, None
        for number in sorted(self._target.versions(subject) - self._known[subject] - {schema.version.number}):
            at = Version(subject, number)
            found, wanted = self._target.schema(at), self._wanted.get(at)
            if found is None or found.id != schema.id or (wanted is not None and wanted.id == schema.id):
                continue
            try:
                self._target.delete_for_good(at)
            except SchemaRefused:  # somebody refers to it by now
                left = at
        return left

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
        """Check that nobody has registered a version meanwhile but one that is the same."""
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
        """Leave those that something is still to be written to, as far as the registry answers."""
        for subject in list(self._entered):
            try:
                self.leave(subject)
            except ReplicatorError:
                return  # what has failed before is told; `SchemaSync.release` comes back to them

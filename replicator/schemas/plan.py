"""What must be done at the target's registry so that each schema of the source's has the same id there, and what
stands against it. Pure.

Invariant: nothing is written to a subject of which a schema can't go over, and nothing that refers to what isn't at the
target. A registry in mode IMPORT takes what it is given, and writes another schema over a version without a word.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from replicator.schemas.schema import Registry, Schema, Version


@dataclass(frozen=True, slots=True)
class SchemaConflict:
    """Why a schema of the source can't go over."""

    version: Version
    id: int
    reason: str

    def __str__(self) -> str:
        return f"{self.version} (id {self.id}): {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        at = self.version
        return {"subject": at.subject, "version": at.number, "id": self.id, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """What is done, in this order: `register`, what is referred to before what refers to it; `delete`, the other way
    round; `levels`, a subject's compatibility level. `only_there`: versions that the target alone has; they stay.

    Attributes:
        selected: how many schemas are to be at the target, of `subjects`.
        conflicts: those that can't go over. Their subjects are left alone.
        held: those of other subjects that refer to such a subject's; these are left alone as well.
    """

    selected: int
    register: tuple[Schema, ...] = ()
    delete: tuple[Version, ...] = ()
    levels: tuple[tuple[str, str], ...] = ()
    conflicts: tuple[SchemaConflict, ...] = ()
    only_there: tuple[Version, ...] = ()
    held: tuple[SchemaConflict, ...] = ()
    subjects: int = 0

    @property
    def done(self) -> bool:
        """Whether all selected schemas are at the target."""
        return not (self.register or self.delete or self.levels or self.conflicts or self.held)

    @property
    def written(self) -> set[str]:
        """The subjects that are written to."""
        names = {it.version.subject for it in self.register} | {at.subject for at in self.delete}
        return names | {subject for subject, _ in self.levels}

    @property
    def refused(self) -> set[str]:
        """The subjects of which a schema can't go over."""
        return {it.version.subject for it in self.conflicts}


def planned(source: Registry, target: Registry, selects: Callable[[str], bool]) -> SchemaPlan:
    """Compare two registries. `selects`: whether the schemas of a subject go over."""
    wanted, missing = _selected(source.schemas, selects)
    ordered, circles = in_order(wanted)
    conflicts = [*missing, *circles, *_conflicts(ordered, target)]
    free, held = _held(ordered, target, {it.version for it in conflicts})
    register = _to_register(free, target)
    written = {it.version for it in register}
    delete = [it.version for it in free if it.deleted and (it.version in written or not _deleted_in(target, it))]
    left = {at.subject for at in wanted} - {it.version.subject for it in (*conflicts, *held)}
    levels = [
        (subject, level)
        for subject, level in sorted(source.levels.items())
        if subject in left and target.levels.get(subject) != level
    ]
    subjects = {at.subject for at in wanted}
    only = sorted(at for at in target.schemas if at.subject in subjects and at not in source.schemas)
    return SchemaPlan(
        len(wanted),
        tuple(register),
        tuple(reversed(delete)),
        tuple(levels),
        tuple(conflicts),
        tuple(only),
        tuple(held),
        len(subjects),
    )


def _held(
    ordered: Iterable[Schema], target: Registry, refused: Collection[Version]
) -> tuple[list[Schema], list[SchemaConflict]]:
    """Return the schemas of subjects that may be written to, and what holds others: each needs a version at the target
    that isn't there, or is another one, and whose subject is left alone."""
    left_alone, held = {at.subject for at in refused}, list[SchemaConflict]()
    free = [it for it in ordered if it.version.subject not in left_alone]
    there = {at for at, it in target.schemas.items() if not it.deleted and at not in refused}
    while True:
        found = [
            SchemaConflict(it.version, it.id, f"refers to {at}, which doesn't go over")
            for it in _to_register(free, target)
            for at in it.refers_to
            if at.subject in left_alone and at not in there
        ]
        if not found:
            return free, held
        held += {it.version: it for it in reversed(found)}.values()
        left_alone |= {it.version.subject for it in found}
        free = [it for it in free if it.version.subject not in left_alone]


def _to_register(ordered: Iterable[Schema], target: Registry) -> list[Schema]:
    """Return those that the target lacks, and those that are soft-deleted there and that these refer to: a registry
    takes no schema that refers to a soft-deleted one."""
    found, referred = list[Schema](), set[Version]()
    for schema in reversed(list(ordered)):
        deleted = _deleted_in(target, schema)
        lacks = schema.version not in target.schemas or (deleted and not schema.deleted)
        if lacks or (deleted and schema.version in referred):
            found.append(schema)
            referred.update(schema.refers_to)
    return found[::-1]


def _deleted_in(target: Registry, schema: Schema) -> bool:
    there = target.schemas.get(schema.version)
    return there is not None and there.deleted


def reached(schemas: Mapping[Version, Schema], selects: Callable[[str], bool]) -> set[str]:
    """Return subjects that are selected, and those that their schemas refer to."""
    return {at.subject for at in _selected(schemas, selects)[0]}


def _selected(
    schemas: Mapping[Version, Schema], selects: Callable[[str], bool]
) -> tuple[dict[Version, Schema], list[SchemaConflict]]:
    """Return the schemas that go over, with all that they refer to; and references to what isn't there."""
    wanted: dict[Version, Schema] = {}
    missing: list[SchemaConflict] = []
    ahead = [schema for at, schema in sorted(schemas.items()) if selects(at.subject)]
    while ahead:
        schema = ahead.pop()
        if schema.version in wanted:
            continue
        wanted[schema.version] = schema
        for at in schema.refers_to:
            if at in schemas:
                ahead.append(schemas[at])
            else:
                reason = f"refers to {at}, which the source's registry doesn't have"
                missing.append(SchemaConflict(schema.version, schema.id, reason))
    return wanted, sorted(missing, key=lambda it: it.version)


def in_order(schemas: Mapping[Version, Schema]) -> tuple[list[Schema], list[SchemaConflict]]:
    """Sort schemas by their ids, but what is referred to before what refers to it, and a subject's versions one after
    the other, unless references forbid that; and those that refer to each other."""
    before = dict[Version, tuple[Version, ...]]()
    last: Version | None = None
    for at in sorted(schemas):
        earlier = (last,) if last is not None and last.subject == at.subject else ()
        before[at] = (*earlier, *schemas[at].refers_to)
        last = at
    order, circles = _ordered(schemas, before)
    if not circles:
        return order, circles
    return _ordered(schemas, {at: it.refers_to for at, it in schemas.items()})


def _ordered(
    schemas: Mapping[Version, Schema], before: Mapping[Version, Iterable[Version]]
) -> tuple[list[Schema], list[SchemaConflict]]:
    order: list[Schema] = []
    circles: list[SchemaConflict] = []
    state: dict[Version, bool] = {}  # whether all that comes before it is in order; absent: not looked at
    for first in sorted(schemas.values(), key=lambda it: (it.id, it.version)):
        if first.version in state:
            continue
        state[first.version] = False
        path: list[tuple[Schema, Iterator[Version]]] = [(first, iter(before[first.version]))]
        while path:
            schema, rest = path[-1]
            at = next(rest, None)
            if at is None:
                state[schema.version] = True
                order.append(schema)
                path.pop()
            elif at in schemas and at not in state:
                state[at] = False
                path.append((schemas[at], iter(before[at])))
            elif at in schemas and not state[at]:
                circles.append(SchemaConflict(schema.version, schema.id, f"{at} and it refer to each other"))
    return order, circles


def _conflicts(wanted: Collection[Schema], target: Registry) -> Iterator[SchemaConflict]:
    by_place: dict[tuple[str, int], Schema] = {}
    for at in sorted(target.schemas):
        by_place.setdefault(target.schemas[at].place, target.schemas[at])
    clashing = _of_two_contents(wanted)
    for schema in wanted:
        there, known = target.schemas.get(schema.version), by_place.get(schema.place)
        if there is not None and there.id != schema.id:
            reason = f"the target has this version with id {there.id}"
        elif known is not None and not schema.same_content(known):
            reason = f"the target has another schema with this id ({known.version})"
        elif schema.version in clashing:
            reason = f"the source has another schema with this id ({clashing[schema.version]})"
        else:
            continue
        yield SchemaConflict(schema.version, schema.id, reason)


def _of_two_contents(wanted: Iterable[Schema]) -> dict[Version, Version]:
    """Return those that share an id with another schema, which is named: nobody can tell which of them readers mean."""
    by_place: dict[tuple[str, int], list[Schema]] = defaultdict(list)
    for schema in wanted:
        by_place[schema.place].append(schema)
    found = dict[Version, Version]()
    for first, *others in by_place.values():
        differs = next((it for it in others if not it.same_content(first)), None)
        if differs is not None:
            pairs = ((it, differs if it.same_content(first) else first) for it in (first, *others))
            found |= {it.version: other.version for it, other in pairs}
    return found

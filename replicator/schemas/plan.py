"""What must be done at the target's registry so that each schema of the source's has the same id there, and what
stands against it. Pure.

Invariant: while anything stands against it nothing is done. A registry in mode IMPORT takes what it is given, and
writes another schema over a version without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from replicator.schemas.schema import Registry, Schema, Version


@dataclass(frozen=True, slots=True)
class SchemaConflict:
    """Why a schema of the source can't go over."""

    version: Version
    id: int
    reason: str

    def __str__(self) -> str:
        return f"{self.version} (id {self.id}): {self.reason}"


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """What is done, in this order: `register`, what is referred to before what refers to it; `delete`, the other way
    round; `levels`, a subject's compatibility level. `only_there`: versions that the target alone has; they stay.
    """

    selected: int
    register: tuple[Schema, ...] = ()
    delete: tuple[Version, ...] = ()
    levels: tuple[tuple[str, str], ...] = ()
    conflicts: tuple[SchemaConflict, ...] = ()
    only_there: tuple[Version, ...] = ()

    @property
    def done(self) -> bool:
        """Whether all selected schemas are at the target."""
        return not (self.register or self.delete or self.levels or self.conflicts)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Those that are written to, in the order in which they are first."""
        written = (*(it.version.subject for it in self.register), *(it.subject for it in self.delete))
        return tuple(dict.fromkeys((*written, *(subject for subject, _ in self.levels))))


def planned(source: Registry, target: Registry, selects: Callable[[str], bool]) -> SchemaPlan:
    """Compare two registries. `selects`: whether the schemas of a subject go over."""
    wanted, missing = _selected(source.schemas, selects)
    ordered, circles = in_order(wanted)
    conflicts = [*missing, *circles, *_conflicts(ordered, target)]
    register = _to_register(ordered, target)
    written = {it.version for it in register}
    delete = [it.version for it in ordered if it.deleted and (it.version in written or not _deleted_in(target, it))]
    subjects = {at.subject for at in wanted}
    levels = [
        (subject, level)
        for subject, level in sorted(source.levels.items())
        if subject in subjects and target.levels.get(subject) != level
    ]
    only = sorted(at for at in target.schemas if at.subject in subjects and at not in source.schemas)
    return SchemaPlan(
        len(wanted), tuple(register), tuple(reversed(delete)), tuple(levels), tuple(conflicts), tuple(only)
    )


def _to_register(ordered: Iterable[Schema], target: Registry) -> list[Schema]:
    """Those that the target lacks, and those that are soft-deleted there and that these refer to: a registry takes no
    schema that refers to a soft-deleted one."""
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
    """Subjects that are selected, and those that their schemas refer to."""
    return {at.subject for at in _selected(schemas, selects)[0]}


def _selected(
    schemas: Mapping[Version, Schema], selects: Callable[[str], bool]
) -> tuple[dict[Version, Schema], list[SchemaConflict]]:
    """The schemas that go over, with all that they refer to; and references to what isn't there."""
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
    """Schemas by their ids, but what is referred to before what refers to it; and those that refer to each other."""
    order: list[Schema] = []
    circles: list[SchemaConflict] = []
    state: dict[Version, bool] = {}  # whether all that it refers to is in order; absent: not looked at
    for first in sorted(schemas.values(), key=lambda it: (it.id, it.version)):
        if first.version in state:
            continue
        state[first.version] = False
        path: list[tuple[Schema, Iterator[Version]]] = [(first, iter(first.refers_to))]
        while path:
            schema, rest = path[-1]
            at = next(rest, None)
            if at is None:
                state[schema.version] = True
                order.append(schema)
                path.pop()
            elif at in schemas and at not in state:
                state[at] = False
                path.append((schemas[at], iter(schemas[at].refers_to)))
            elif at in schemas and not state[at]:
                circles.append(SchemaConflict(schema.version, schema.id, f"{at} and it refer to each other"))
    return order, circles


def _conflicts(wanted: Iterable[Schema], target: Registry) -> Iterator[SchemaConflict]:
    by_place: dict[tuple[str, int], Schema] = {}
    for at in sorted(target.schemas):
        by_place.setdefault(target.schemas[at].place, target.schemas[at])
    own: dict[tuple[str, int], Schema] = {}
    for schema in wanted:
        there = target.schemas.get(schema.version)
        if there is not None and there.id != schema.id:
            yield SchemaConflict(schema.version, schema.id, f"the target has this version with id {there.id}")
            continue
        known = by_place.get(schema.place)
        if known is not None and not schema.same_content(known):
            reason = f"the target has another schema with this id ({known.version})"
            yield SchemaConflict(schema.version, schema.id, reason)
            continue
        first = own.setdefault(schema.place, schema)
        if not schema.same_content(first):
            reason = f"the source has another schema with this id ({first.version})"
            yield SchemaConflict(schema.version, schema.id, reason)

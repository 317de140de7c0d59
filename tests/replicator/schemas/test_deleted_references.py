"""Soft-deleted schemas that refer to soft-deleted ones: the registry takes them while what they refer to is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.schemas.plan import planned
from replicator.schemas.schema import Reference, Registry, Schema, Version

pytestmark = pytest.mark.tier("default")


def deleted(subject: str, schema_id: int, *refers: str) -> Schema:
    references = tuple(Reference(it, it, 1) for it in refers)
    return Schema(Version(subject, 1), schema_id, f'"{subject}"', references=references, deleted=True)


def registry(*schemas: Schema) -> Registry:
    return Registry({it.version: it for it in schemas})


def test_what_a_missing_schema_refers_to_is_there_while_it_is_registered_and_deleted_again() -> None:
    far, base, user = deleted("far", 1), deleted("base", 2, "far"), deleted("user", 3, "base")
    plan = planned(registry(far, base, user), registry(far, base), lambda subject: True)
    assert [it.version.subject for it in plan.register] == ["far", "base", "user"]
    assert [at.subject for at in plan.delete] == ["user", "base", "far"]


def test_what_is_deleted_stays_so_where_nothing_that_is_registered_refers_to_it() -> None:
    base, user, other = deleted("base", 1), deleted("user", 2, "base"), deleted("other", 3)
    plan = planned(registry(base, user, other), registry(base, user), lambda subject: True)
    assert [it.version.subject for it in plan.register] == ["other"]
    assert [at.subject for at in plan.delete] == ["other"]
    assert planned(registry(base, user), registry(base, user), lambda subject: True).done


def test_one_that_the_target_has_live_is_deleted_after_what_refers_to_it_is_registered() -> None:
    base, user = deleted("base", 1), deleted("user", 2, "base")
    plan = planned(registry(base, user), registry(replace(base, deleted=False)), lambda subject: True)
    assert [it.version.subject for it in plan.register] == ["user"]
    assert [at.subject for at in plan.delete] == ["user", "base"]

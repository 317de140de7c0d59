"""What goes over, in which order, and what stands against it: drawn registries, and one of 1,000 subjects."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.schemas.plan import SchemaPlan, planned
from replicator.schemas.schema import Reference, Registry, Schema, Version, context_of, schema_from

FULL = pytest.mark.tier("full")


def drawn(seed: int, subjects: int) -> Registry:
    """A registry in which schemas refer to earlier ones, whatever their ids are."""
    draw = random.Random(seed)
    ids = draw.sample(range(1, subjects * 8), subjects * 4)
    schemas: dict[Version, Schema] = {}
    levels: dict[str, str] = {}
    for number in range(subjects):
        context = draw.choice(("", "", "", ":.other:"))
        subject = f"{context}s{number}"
        for version in range(1, draw.choice((2, 2, 3, 5))):
            pool = [at for at in schemas if context_of(at.subject) == context_of(subject)]
            targets = draw.sample(pool, min(len(pool), draw.choice((0, 0, 1, 3))))
            references = tuple(
                Reference(f"n{i}", at.subject.removeprefix(context), at.number) for i, at in enumerate(targets)
            )
            same = [it for it in schemas.values() if context_of(it.version.subject) == context_of(subject)]
            at = Version(subject, version)
            if same and draw.random() < 0.1:
                schemas[at] = replace(draw.choice(same), version=at, deleted=False)
            else:
                text = f'{{"name": "{subject}.{version}"}}'
                schemas[at] = Schema(at, ids.pop(), text, "AVRO", references, deleted=draw.random() < 0.1)
        if draw.random() < 0.3:
            levels[subject] = draw.choice(("FULL", "NONE"))
    return Registry(schemas, levels)


def applied(target: Registry, plan: SchemaPlan) -> Registry:
    """The target after the plan, step by step as a registry in mode IMPORT takes it."""
    schemas, levels = dict(target.schemas), dict(target.levels)
    for schema in plan.register:
        live = all(at in schemas and not schemas[at].deleted for at in schema.refers_to)
        assert live, f"{schema.version} comes before what it refers to, or that is deleted"
        schemas[schema.version] = replace(schema, deleted=False)
    for at in plan.delete:
        assert not schemas[at].deleted
        schemas[at] = replace(schemas[at], deleted=True)
    return Registry(schemas, {**levels, **dict(plan.levels)})


def assert_goes_over(source: Registry, target: Registry) -> None:
    plan = planned(source, target, lambda subject: True)
    assert plan.conflicts == ()
    after = applied(target, plan)
    assert after == source
    assert planned(source, after, lambda subject: True).done


@FULL
@given(seed=st.integers(0, 10**6), subjects=st.integers(0, 25), keep=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_whatever_the_target_has_of_it_already_all_of_it_is_there_afterwards(
    seed: int, subjects: int, keep: float
) -> None:
    source, draw = drawn(seed, subjects), random.Random(seed + 1)
    kept: dict[Version, Schema] = {}
    for at, schema in source.schemas.items():  # what it refers to is there, too
        if draw.random() < keep and all(to in kept for to in schema.refers_to):
            kept[at] = replace(schema, deleted=draw.random() < 0.2)
    assert_goes_over(source, Registry(kept))


@FULL
def test_1000_subjects_with_references() -> None:
    source = drawn(7, 1000)
    assert sum(bool(it.references) for it in source.schemas.values()) > 300
    assert_goes_over(source, Registry())


@FULL
@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_each_clash_is_named_once_and_nothing_else_is(seed: int) -> None:
    source, draw = drawn(seed, 12), random.Random(seed)
    if not source.schemas:
        return
    there = dict(source.schemas)
    at = draw.choice(sorted(there))
    there[at] = replace(there[at], id=999)
    other = Schema(Version(f"{at.subject}-other", 1), source.schemas[at].id, '{"name": "else"}')
    clash = planned(source, Registry({other.version: other}), lambda subject: True)
    places = {it.version for it in source.schemas.values() if it.place == source.schemas[at].place}
    assert {it.version for it in clash.conflicts} == places
    assert all("another schema with this id" in it.reason for it in clash.conflicts)
    clash = planned(source, Registry(there), lambda subject: True)
    assert [(it.version, it.reason) for it in clash.conflicts] == [(at, "the target has this version with id 999")]


def schema(subject: str, number: int = 1, schema_id: int = 1, text: str = "{}", *refers: Version) -> Schema:
    references = tuple(Reference(f"n{i}", at.subject, at.number) for i, at in enumerate(refers))
    return Schema(Version(subject, number), schema_id, text, references=references)


def registry(*schemas: Schema) -> Registry:
    return Registry({it.version: it for it in schemas})


@FULL
def test_what_a_selected_schema_refers_to_goes_over_and_other_subjects_dont() -> None:
    base, used = schema("base", schema_id=9), schema("used", 1, 2, '"b"', Version("base", 1))
    left = schema("left", schema_id=3, text='"c"')
    plan = planned(registry(base, used, left), Registry(), lambda subject: subject == "used")
    assert [it.version.subject for it in plan.register] == ["base", "used"]


@FULL
def test_a_reference_to_nothing_and_a_circle_are_refused() -> None:
    dangling = schema("a", 1, 1, '"a"', Version("gone", 4))
    (found,) = planned(registry(dangling), Registry(), lambda subject: True).conflicts
    assert "refers to gone version 4" in str(found)
    round_ = registry(schema("a", 1, 1, '"a"', Version("b", 1)), schema("b", 1, 2, '"b"', Version("a", 1)))
    (found,) = planned(round_, Registry(), lambda subject: True).conflicts
    assert "refer to each other" in str(found)


@FULL
def test_how_json_is_written_is_no_difference_and_what_the_target_alone_has_stays() -> None:
    here = schema("a", text='{"name": "x", "type": "int"}')
    there, more = schema("a", text='{"type":"int","name":"x"}'), schema("a", 2, 2, '"z"')
    plan = planned(registry(here), registry(there, more), lambda subject: True)
    assert plan.done
    assert plan.only_there == (Version("a", 2),)
    proto = replace(here, kind="PROTOBUF", text="message  A {\n}")
    assert proto.same_content(replace(proto, text="message A { }"))
    assert not proto.same_content(replace(proto, text="message B { }"))


@FULL
def test_an_answer_that_is_no_schema_is_told() -> None:
    good = {"subject": "s", "version": 1, "id": 4, "schema": "{}"}
    assert schema_from(good).kind == "AVRO"
    wrongs: list[Any] = [
        None,
        [],
        {**good, "id": "4"},
        {**good, "version": True},
        {**good, "references": [1]},
        {"id": 3},
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="not a version of a schema"):
            schema_from(wrong)


@pytest.mark.tier("default")
def test_two_schemas_with_one_id_at_the_source_are_both_refused_and_nothing_else_is() -> None:
    one, other, same = schema("a", text='"x"'), schema("b", text='"y"'), schema("c", text='"x"')
    free, user = schema("d", schema_id=2, text='"z"'), schema("e", 1, 3, '"u"', Version("b", 1))
    plan = planned(registry(one, other, same, free, user), Registry(), lambda subject: True)
    assert [str(it) for it in plan.conflicts] == [
        "a version 1 (id 1): the source has another schema with this id (b version 1)",
        "b version 1 (id 1): the source has another schema with this id (a version 1)",
        "c version 1 (id 1): the source has another schema with this id (b version 1)",
    ]
    assert [it.version for it in plan.register] == [("d", 1)]
    assert [(it.version, it.reason) for it in plan.held] == [(("e", 1), "refers to b version 1, which doesn't go over")]


@pytest.mark.tier("default")
def test_the_versions_of_a_subject_go_one_after_the_other_whatever_their_ids_are() -> None:
    later, earlier = schema("a", 2, 1, '"x"'), schema("a", 1, 5, '"y"', Version("b", 1))
    base = schema("b", 1, 9, '"z"')
    plan = planned(registry(later, earlier, base), Registry(), lambda subject: True)
    assert [it.version for it in plan.register] == [("b", 1), ("a", 1), ("a", 2)]
    # here a subject's second version comes before its first one, as only an import can have it
    odd = registry(schema("a", 1, 1, '"x"', Version("a", 2)), schema("a", 2, 2, '"y"'))
    plan = planned(odd, Registry(), lambda subject: True)
    assert (plan.conflicts, [it.version for it in plan.register]) == ((), [("a", 2), ("a", 1)])


@pytest.mark.tier("default")
def test_a_version_that_the_target_has_as_another_one_is_no_version_to_refer_to() -> None:
    base, user = schema("base", 1, 1, '"x"'), schema("user", 1, 2, '"y"', Version("base", 1))
    plan = planned(registry(base, user), registry(schema("base", 1, 7, '"else"')), lambda subject: True)
    assert ([it.version for it in plan.conflicts], plan.register) == ([("base", 1)], ())
    assert [it.version for it in plan.held] == [("user", 1)]

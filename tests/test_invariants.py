"""docs/invariants.md numbers the invariants of copying once: what cites them and what it names are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model import test_generations, test_map_index_rules, test_offset_map_rules
from tests.replicator.lane import decision_mutations, invariant_mutations, map_mutations, mutations

assert decision_mutations.ALL_MUTATIONS is map_mutations.ALL_MUTATIONS  # both have put theirs on the list
ROOT = Path(__file__).parents[1]
SECTION = re.compile(r"^## (M?\d+)\. .*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
CITED = re.compile(r"[Ii]nvariants? (M?\d+)(?:,? (?:and|or) (M?\d+))?\b")
SECTIONS = {found[1]: found[0] for found in SECTION.finditer((ROOT / "docs/invariants.md").read_text())}
CITING = sorted(
    path
    for package in ("replicator", "cli", "embedded_broker", "kafka_records", "docs", "tests", "integration_tests")
    for kind in ("*.py", "*.md")
    for path in (ROOT / package).rglob(kind)
    if path not in (Path(__file__), ROOT / "docs/invariants.md")
)


def _by_function(plant: object) -> str:
    return f"{_path(plant)}::{plant.__name__}"  # type: ignore[attr-defined]


def _path(function: object) -> str:
    return function.__module__.replace(".", "/") + ".py"


def _finders(planted: mutations.Mutation) -> set[str]:
    return {_by_function(getattr(finder, "func", finder)) for finder in planted.finders}


def _rules() -> Iterator[tuple[str, set[str]]]:
    test: object
    for module, test, names in (
        (test_generations, test_generations.test_each_part_is_needed, list(test_generations.ESSENTIAL)),
        (
            test_offset_map_rules,
            test_offset_map_rules.test_each_rule_is_needed,
            [rule[0].__name__ for rule in test_offset_map_rules.RULES],
        ),
        (
            test_map_index_rules,
            test_map_index_rules.test_each_rule_of_the_index_is_needed,
            [rule[0].__name__ for rule in test_map_index_rules.RULES],
        ),
    ):
        yield from ((f"{module.__name__.replace('.', '/')}.py::{name}", {_by_function(test)}) for name in names)


PLANTED: dict[str, set[str]] = {
    **{
        _by_function(each.plant): _finders(each)
        for each in (*mutations.MUTATIONS, *invariant_mutations.INVARIANT_MUTATIONS)
    },
    **dict(_rules()),
}
"""The tests that find each planted bug. What runs them also checks that they do."""


def cited(path: Path) -> set[str]:
    return {number for found in CITED.findall(path.read_text()) for number in found if number}


def listed(number: str, label: str) -> list[str]:
    """What the section's line `- label: ...` names."""
    found = re.search(rf"^- {label}: (.*?)(?=^- |\Z)", SECTIONS[number], re.MULTILINE | re.DOTALL)
    assert found is not None, f"invariant {number} has no line {label!r}"
    return re.findall(r"`([^`]+)`", found[1])


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_they_are_numbered_without_gaps() -> None:
    """Those of the offset map have an M before their number."""
    of_copying = [number for number in SECTIONS if not number.startswith("M")]
    assert of_copying == [str(number) for number in range(1, len(of_copying) + 1)]
    assert [number for number in SECTIONS if number.startswith("M")] == ["M1", "M2", "M3", "M4", "M5"]


def test_each_number_that_is_cited_is_there() -> None:
    strangers = {path.relative_to(ROOT).as_posix(): cited(path) - SECTIONS.keys() for path in CITING}
    assert {path: numbers for path, numbers in strangers.items() if numbers} == {}


@pytest.mark.parametrize("number", SECTIONS)
def test_it_is_stated_where_the_page_says(number: str) -> None:
    modules = listed(number, "Stands in")
    assert modules
    assert [module for module in modules if number not in cited(ROOT / module)] == []


@pytest.mark.parametrize("number", SECTIONS)
def test_its_tests_are_there(number: str) -> None:
    tests = [each.split("::") for each in listed(number, "Tests")]
    assert tests
    assert [f"{path}::{name}" for path, name in tests if name not in functions(ROOT / path)] == []


@pytest.mark.parametrize("number", SECTIONS)
def test_one_of_its_tests_finds_each_bug_that_breaks_it(number: str) -> None:
    bugs, tests = listed(number, "Planted bugs"), set(listed(number, "Tests"))
    assert bugs
    assert [bug for bug in bugs if not PLANTED.get(bug, set()) & tests] == []

"""docs/invariants.md numbers the invariants of copying once: what cites them and what it names are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTION = re.compile(r"^## (M?\d+)\. .*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
CITED = re.compile(r"[Ii]nvariants? (M?\d+)(?:,? (?:and|or) (M?\d+))?\b")
SECTIONS = {found[1]: found[0] for found in SECTION.finditer((ROOT / "docs/invariants.md").read_text())}
CITING = sorted(
    path
    for package in ("replicator", "cli", "tests", "integration_tests")
    for path in (ROOT / package).rglob("*.py")
    if path != Path(__file__)
)


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

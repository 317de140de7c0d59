"""Every kind of incident is played by a test, as its row in docs/operate/incidents.md says, or there is a reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from replicator.model.incident_kinds import KINDS
from tests.incidents_played import NOT_PLAYED, PLAYED

ROOT = Path(__file__).parents[1]


def test_each_kind_is_played_or_it_is_said_why_not() -> None:
    assert sorted(KINDS) == sorted((*PLAYED, *NOT_PLAYED))
    assert all(NOT_PLAYED.values())


@pytest.mark.parametrize("kind", PLAYED)
def test_the_test_that_plays_it_is_there_and_names_it(kind: str) -> None:
    path, _, name = PLAYED[kind].partition("::")
    text = (ROOT / path).read_text()
    functions = [it for it in ast.parse(text).body if isinstance(it, ast.FunctionDef)]
    (found,) = [it for it in functions if it.name == name]
    of_function = ast.get_source_segment(text, found) or ""
    parametrized = [ast.get_source_segment(text, it) or "" for it in found.decorator_list]
    tables = [ast.get_source_segment(text, it) or "" for it in ast.parse(text).body if isinstance(it, ast.Assign)]
    helpers = [ast.get_source_segment(text, it) or "" for it in functions if f"{it.name}(" in of_function]
    assert any(kind in each for each in (of_function, *parametrized, *tables, *helpers)), f"{PLAYED[kind]}: no {kind}"

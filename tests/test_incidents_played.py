"""Every kind of incident is played by a test, as its row in docs/operate/incidents.md says."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from replicator.model.incident_kinds import KINDS
from tests.incidents_played import PLAYED

ROOT = Path(__file__).parents[1]


@cache
def parsed(path: str) -> tuple[str, list[ast.stmt]]:
    """A file's text, and what stands in it."""
    text = (ROOT / path).read_text()
    return text, ast.parse(text).body


def names_it(kind: str, path: str, name: str) -> bool:
    """Whether the function is there, and it, its parameters, a table or a helper that it calls names the kind."""
    text, body = parsed(path)
    functions = [it for it in body if isinstance(it, ast.FunctionDef)]
    found = [it for it in functions if it.name == name]
    if not found:
        return False

    def said(node: ast.AST) -> str:
        return ast.get_source_segment(text, node) or ""

    of_function = said(found[0])
    parametrized = [said(it) for it in found[0].decorator_list]
    tables = [said(it) for it in body if isinstance(it, ast.Assign)]
    helpers = [said(it) for it in functions if f"{it.name}(" in of_function]
    return any(kind in each for each in (of_function, *parametrized, *tables, *helpers))


def test_each_kind_is_played() -> None:
    assert sorted(KINDS) == sorted(PLAYED)


def test_the_test_that_plays_a_kind_is_there_and_names_it() -> None:
    wrong = {kind: test for kind, test in PLAYED.items() if not names_it(kind, *test.split("::"))}
    assert wrong == {}

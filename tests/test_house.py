"""Rules of the house that a reader relies on: small modules and functions, no hosts in the lock, no stray words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("replicator", "embedded_broker", "cli")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
AROUND = sorted(path for place in ("tests", "integration_tests", "benchmarks") for path in (ROOT / place).rglob("*.py"))
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70


def test_modules_are_small() -> None:
    sizes = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in (*MODULES, *AROUND)}
    assert {path: size for path, size in sizes.items() if size > MODULE_LINES_MAX} == {}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_small(path: Path) -> None:
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LINES_MAX, f"{node.name} is too long"


def test_most_modules_are_under_150_lines() -> None:
    sizes = sorted(len(path.read_text().splitlines()) for path in MODULES)
    assert sizes[len(sizes) // 2] < 150


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_public_names_have_docstrings(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if path.name == "__init__.py" and not tree.body:
        return
    assert ast.get_docstring(tree), "the module says what it is for"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"


def test_the_lock_is_hashed_and_names_no_host() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    assert "index-url" not in text
    for block in re.split(r"\n(?=[a-z])", text):
        if re.match(r"[a-z0-9_.-]+==", block):
            assert "--hash=sha256:" in block, block.splitlines()[0]

"""Rules of the house that a reader relies on: small modules and functions, public names explained."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("replicator", "embedded_broker", "kafka_records", "cli")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
AROUND = sorted(path for place in ("tests", "integration_tests", "benchmarks") for path in (ROOT / place).rglob("*.py"))
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
OF_DOCKER = ("docker", "testcontainers", "integration_tests.harness.kafka", "integration_tests.harness.secured")


def test_modules_are_small() -> None:
    sizes = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in (*MODULES, *AROUND)}
    assert {path: size for path, size in sizes.items() if size > MODULE_LINES_MAX} == {}


@cache
def found_in(path: Path) -> tuple[dict[str, int], list[str]]:
    """Lines of the longest function of each name, and what has no docstring. All trees together would be large."""
    tree = ast.parse(path.read_text())
    lines: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines[node.name] = max(lines.get(node.name, 0), (node.end_lineno or 0) - node.lineno)
    undocumented = [] if ast.get_docstring(tree) or (path.name == "__init__.py" and not tree.body) else ["the module"]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            undocumented += [] if ast.get_docstring(node) else [node.name]
    return lines, undocumented


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_small(path: Path) -> None:
    lines, _ = found_in(path)
    assert {name: count for name, count in lines.items() if count >= FUNCTION_LINES_MAX} == {}, "too long"


def test_most_modules_are_under_150_lines() -> None:
    sizes = sorted(len(path.read_text().splitlines()) for path in MODULES)
    assert sizes[len(sizes) // 2] < 150


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_public_names_have_docstrings(path: Path) -> None:
    _, undocumented = found_in(path)
    assert undocumented == []


def imported(tree: ast.AST) -> set[str]:
    """Full names of the modules that a module imports, and of what it imports from them."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_broker_has_no_circle_of_imports_even_for_types() -> None:
    """import-linter, whose settings hold for all packages, counts what is loaded only."""
    graph = grimp.build_graph("embedded_broker", exclude_type_checking_imports=False, cache_dir=None)
    packages = [module for module in graph.modules if graph.find_children(module)]
    assert len(packages) > 10
    assert {package: found for package in packages if (found := graph.nominate_cycle_breakers(package))} == {}


def test_no_test_under_tests_needs_docker() -> None:
    """What runs on real Kafka stands under integration_tests/."""
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text()
        if not re.search(r"docker|testcontainers|integration_tests|\.\s*kafka\b", text):
            continue
        tree = ast.parse(text)
        assert not [name for name in imported(tree) if name.startswith(OF_DOCKER)], path
        marked = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "kafka"]
        assert not [node for node in marked if ast.unparse(node.value).endswith("mark")], path


def test_metadata_of_positions_is_decoded_in_one_place() -> None:
    """Whoever decodes by himself has an idea of his own of what no position is, and of metadata that can't be read."""
    module = "replicator.model.checkpoint"
    users: dict[str, set[str]] = {}
    for path in (path for path in MODULES if "checkpoint" in path.read_text()):
        tree = ast.parse(path.read_text())
        names = {name.removeprefix(f"{module}.") for name in imported(tree) if name.startswith(f"{module}.")}
        if module in imported(tree):
            attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            names |= {node.attr for node in attributes if ast.unparse(node.value).split(".")[-1] == "checkpoint"}
        for name in names & {"stored", "read", "decode"}:
            users.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    assert users == {
        "stored": {
            "replicator/group_sync/transaction_looks.py",
            "replicator/kafka/offset_reader.py",
            "replicator/planes/batches_io/position_reader.py",
            "replicator/wire/last_positions.py",
        }
    }


def test_every_test_says_its_tier_in_one_way() -> None:
    """`@pytest.mark.tier("default")`: see tests/running/tiers.py. Other markers for it would be left out silently."""
    others = re.compile(r"\bmark\.(slow|unit|default|full|long)\b")
    texts = {path: path.read_text() for path in AROUND if path != Path(__file__)}
    assert [str(path.relative_to(ROOT)) for path, text in texts.items() if others.search(text)] == []

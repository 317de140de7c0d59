"""One fault in a flow file is one error, with its key and line: a sweep over every key of the reference."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from replicator.config import FlowFileError, load_text
from replicator.config.source import Fault, dotted
from tests.budget import budget

pytestmark = pytest.mark.tier("extended")

LOADER, DUMPER = getattr(yaml, "CSafeLoader", yaml.SafeLoader), getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""Those of libyaml where there are any: what they read and write is the same, and takes a tenth of the time."""
REFERENCE = yaml.safe_load((Path(__file__).parents[3] / "configs/reference.yaml").read_text(encoding="utf-8"))
ENV = {"BERLIN_SERVERS": "berlin:1", "FRANKFURT_SERVERS": "frankfurt:1", "BERLIN_PASSWORD": "x"}
KeyPath = tuple[str | int, ...]
FREE = ("clusters.berlin.properties", "clusters.frankfurt.properties", "spark.conf")
"""Mappings whose keys are other programs' names: a value is text, whatever it looks like."""
NAMES = ("clusters.berlin", "clusters.frankfurt", "flows.orders")
"""Keys that the user chooses."""


def walk(node: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every key of the file with its value, and items of lists."""
    if path:
        yield path, node
    if isinstance(node, dict):
        for key, value in node.items():
            yield from walk(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from walk(value, (*path, index))


KEYS = [(path, value) for path, value in walk(REFERENCE)]
NUMBERS = {path: number for number, (path, _) in enumerate(KEYS)}


def planted(path: KeyPath, value: Any, *, key: str | None = None) -> tuple[str, int]:
    """The reference with another value at `path`, or the key there renamed; and the line of that key."""
    document = copy.deepcopy(REFERENCE)
    owner = document
    for part in path[:-1]:
        owner = owner[part]
    if key is None:
        owner[path[-1]] = value
    else:
        items = [(key if name == path[-1] else name, each) for name, each in owner.items()]
        owner.clear()
        owner.update(items)
    text: str = yaml.dump(document, Dumper=DUMPER, sort_keys=False)
    lines: dict[KeyPath, int] = {}
    for node, where in nodes(yaml.compose(text, Loader=LOADER), ()):
        lines[where] = node.start_mark.line + 1
    return text, lines[(*path[:-1], path[-1] if key is None else key)]


def nodes(node: Any, path: KeyPath) -> Iterator[tuple[Any, KeyPath]]:
    """The nodes of keys and items, with their paths."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key, (*path, key.value)
            yield from nodes(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield value, (*path, index)
            yield from nodes(value, (*path, index))


def only_fault(text: str, why: object) -> tuple[int, str, str]:
    found = faults(text)
    assert len(found) == 1, (why, found)
    return found[0].line, found[0].path, found[0].message


def faults(text: str) -> list[Fault]:
    try:
        load_text(text, env=ENV)
    except FlowFileError as error:
        return error.faults
    return []


def wrong_values(value: Any, path: KeyPath) -> list[Any]:
    """Values of other types than the one that is right here."""
    others: list[Any] = [None, [[]], {"x": {"y": []}}, 5, 1.5, True, "x y\n"]
    free = any(dotted(path).startswith(f"{name}.") for name in FREE)
    if isinstance(value, bool) or value is None:
        return [other for other in others if not isinstance(other, bool)]
    if isinstance(value, int):
        return [other for other in others if type(other) is not int] if path != ("version",) else others
    if dotted(path).endswith(".lanes"):
        return [other for other in others if type(other) is not int]
    if dotted(path).endswith(".hold_with"):
        return [other for other in others if not isinstance(other, list)]
    if dotted(path).endswith((".schema_registry.source", ".schema_registry.target")):
        return [other for other in others[:6] if not isinstance(other, dict)]
    if isinstance(value, str):
        return others[:3] if free or path[0] == "spark" else others[:6]
    if isinstance(value, list):
        return [other for other in others if not isinstance(other, list)]
    return [other for other in others if not isinstance(other, dict)]


def some(values: list[Any], path: KeyPath) -> list[Any]:
    """Two of them, not the same for each key; all of them in a long run."""
    return [values[(NUMBERS[path] + step) % len(values)] for step in range(budget(min(2, len(values)), len(values)))]


@pytest.mark.parametrize(("path", "value"), KEYS, ids=[dotted(path) for path, _ in KEYS])
def test_a_value_of_another_type_is_one_error_at_its_key(path: KeyPath, value: Any) -> None:
    for wrong in some(wrong_values(value, path), path):
        text, line = planted(path, wrong)
        at, where, message = only_fault(text, wrong)
        assert (at, where) == (line, dotted(path)), message
        assert not any(word in message for word in ("None", "True", "input", "Input", "{'", "[[")), message


@pytest.mark.parametrize(
    "path",
    [path for path, _ in KEYS if isinstance(path[-1], str) and dotted(path) not in NAMES],
    ids=dotted,
)
def test_a_misspelt_key_is_one_error_that_names_the_right_one(path: KeyPath) -> None:
    name = str(path[-1])
    typo = name[:-1] + ("x" if name[-1] != "x" else "y") if len(name) > 2 else f"{name}x"
    text, line = planted(path, None, key=typo)
    at, where, message = only_fault(text, typo)
    assert (at, where) == (line, dotted((*path[:-1], typo)))
    assert f"did you mean {name!r}?" in message


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_misspelt_cluster_is_one_error_that_names_the_right_one(side: str) -> None:
    text, line = planted(("flows", "orders", side), "berlni")
    assert only_fault(text, side) == (
        line,
        f"flows.orders.{side}",
        "no cluster is named 'berlni'; did you mean 'berlin'?",
    )


@pytest.mark.parametrize(
    "path",
    [path for path, value in KEYS if type(value) is int or dotted(path).endswith(".lanes")],
    ids=dotted,
)
@pytest.mark.parametrize("number", [10**12 + 1, 10**30, -(10**30)])
def test_an_absurd_number_is_one_error_with_the_bound(path: KeyPath, number: int) -> None:
    text, line = planted(path, number)
    if path[-1] == "timestamp_ms" and number == 10**12 + 1:  # a day in 2001, which goes with another kind
        return
    at, where, message = only_fault(text, number)
    assert at == line
    assert where == dotted(path)
    assert str(number) in message
    assert path == ("version",) or "must be at " in message


@pytest.mark.parametrize("path", [path for path, value in KEYS if isinstance(value, dict)], ids=dotted)
def test_an_empty_section_is_no_crash(path: KeyPath) -> None:
    needed = {("clusters",), ("flows",), ("flows", "orders"), ("clusters", "berlin"), ("clusters", "frankfurt")}
    text, _ = planted(path, {})
    assert bool(faults(text)) == (path in needed or path[-1] == "properties")


def test_a_section_that_is_missing_is_named_and_nothing_else() -> None:
    for section, needs in (("clusters", "at least one of the clusters"), ("flows", "at least one of the flows")):
        text = yaml.safe_dump({key: value for key, value in REFERENCE.items() if key != section})
        assert needs in only_fault(text, section)[2]


@pytest.mark.parametrize(
    ("settings", "key", "message"),
    [
        ({"topics": ["^("]}, "topics[0]", "'^(' is not a regular expression: missing ), unterminated subpattern at"),
        ({"topics": ["a", "b"], "rename": "x"}, "rename", "needs {topic}: without it all topics of the flow would be"),
        (
            {"delivery": "exactly-once"},
            "delivery",
            "expected exactly_once, at_least_once or at_most_once, not '",
        ),
        ({"new_topics": "cpoy"}, "new_topics", "expected copy or ignore, not 'cpoy'; did you mean 'copy'?"),
        (
            {"commit": {"interval_ms": "60s"}},
            "commit.interval_ms",
            "must be less than limits.transaction_timeout_ms",
        ),
        (
            {"commit": {"interval_ms": 100, "linger_ms": 101}},
            "commit.linger_ms",
            "must not be more than commit.interval_ms, which is 100, not 101",
        ),
    ],
)
def test_faults_of_a_flow_that_were_told_twice_or_without_a_hint(
    settings: dict[str, Any], key: str, message: str
) -> None:
    document = copy.deepcopy(REFERENCE)
    document["flows"]["orders"] |= settings
    _, where, said = only_fault(yaml.safe_dump(document), settings)
    assert where == f"flows.orders.{key}"
    assert said.startswith(message)

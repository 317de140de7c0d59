"""YAML text → plain data, with the line of every key. Safe loader only; duplicate keys are refused.

Scalars are resolved as the safe loader does, but for time stamps and numbers to the base of 60 (`1:30`), which stay
text. `Document.raw` keeps each
scalar as written, because a password `0123` is not the number 83.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]
NODES_MAX = 100_000
DEPTH_MAX = 32
SHOWN_MAX = 60
_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One error of the file. `line` counts from 1; 0 when no line can be named."""

    line: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.path}: {self.message}" if self.path else f"{where}{self.message}"


@dataclass(slots=True)
class Document:
    """The file's data; `lines` and `raw` are keyed by path."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    raw: dict[Path, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Return the line of the key at `path`, or of the nearest key around it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 0

    def fault(self, path: Path, message: str, *, line: int = 0) -> None:
        """Note an error at `path`."""
        self.faults.append(Fault(line or self.line(path), dotted(path), message))


class _Loader(yaml.SafeLoader):
    """The safe loader without time stamps."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def dotted(path: Path) -> str:
    """Write a path with dots: `("flows", "orders", "topics", 0)` → `flows.orders.topics[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def but(value: Any, *, hidden: bool = False) -> str:
    """Return the end of an error message that says what was expected: what is there instead. `hidden`: only its
    kind.
    """
    return "; it has no value" if value is None else f", not {_shown(value, hidden)}"


def _shown(value: Any, hidden: bool) -> str:
    if isinstance(value, (dict, list, tuple)):
        return "keys with values" if isinstance(value, dict) else "a list"
    if hidden:
        return "text" if isinstance(value, str) else "a number"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def parse(text: str) -> Document:
    """Read YAML. Faults of syntax, duplicate keys and the like stand in the result's `faults`."""
    document = Document()
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        document.fault((), f"not readable as YAML: {error.reason} (character {error.position})")
        return document
    try:
        node = loader.get_single_node()
        if node is not None:
            document.lines[()] = node.start_mark.line + 1
            document.data = _Reader(loader, document).value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        document.fault((), f"not readable as YAML: {problem}", line=mark.line + 1 if mark else 0)
    except yaml.YAMLError as error:
        document.fault((), f"not readable as YAML: {error}")
    finally:
        loader.dispose()
    return document


class _Reader:
    """Builds data from nodes, bounded: anchors may repeat or contain themselves."""

    def __init__(self, loader: _Loader, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._nodes_left = NODES_MAX

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._nodes_left -= 1
        if self._nodes_left < 0 or len(path) > DEPTH_MAX:
            raise yaml.YAMLError("too large or too deep (an anchor may contain itself)")
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _COLLECTIONS:
            raise yaml.MarkedYAMLError(problem=f"tag {node.tag!r} is not known", problem_mark=node.start_mark)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self._document.lines[(*path, index)] = item.start_mark.line + 1
                items.append(self.value(item, (*path, index)))
            return items
        return self._scalar(node, path)

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        self._document.raw[path] = node.value
        try:
            value: Any = self._loader.construct_object(node, deep=True)
        except ValueError as error:
            raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from error
        return node.value if isinstance(value, (int, float)) and ":" in node.value else value

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        self._refuse_duplicates(node, path)
        self._loader.flatten_mapping(node)
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if not isinstance(key, str):
                self._document.fault(
                    path,
                    f"key {key_node.value!r} is not text; put it in quotes",
                    line=key_node.start_mark.line + 1,
                )
                continue
            here = (*path, key)
            self._document.lines[here] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, here)
        return found

    def _key(self, node: yaml.Node) -> Hashable:
        if not isinstance(node, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be text", problem_mark=node.start_mark)
        key: Hashable = self._loader.construct_object(node, deep=True)
        return key

    def _refuse_duplicates(self, node: yaml.MappingNode, path: Path) -> None:
        first: dict[str, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                continue
            line = key_node.start_mark.line + 1
            if key_node.value in first:
                message = f"written twice, first on line {first[key_node.value]}"
                self._document.fault((*path, key_node.value), message, line=line)
            first.setdefault(key_node.value, line)

"""The broker goes through no set in the order of hashes or addresses: that differs from process to process, and with it
what a simulated seed does.

mypy tells the types of all expressions. Allowed are sets of numbers, whose order is always the same, and whatever gives
the same result in any order: `sorted`, `any`, another set.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mypy.build import BuildResult, build
from mypy.modulefinder import BuildSource
from mypy.nodes import (
    ArgKind,
    Argument,
    Block,
    CallExpr,
    DictionaryComprehension,
    Expression,
    ForStmt,
    GeneratorExpr,
    ListComprehension,
    MemberExpr,
    MypyFile,
    NameExpr,
    Node,
    SetComprehension,
    StarExpr,
    Statement,
)
from mypy.options import Options
from mypy.types import Instance, Type, UnionType, get_proper_type

pytestmark = pytest.mark.tier("full")  # mypy reads the whole package

ROOT = Path(__file__).parents[2]
SETS = {"builtins.set", "builtins.frozenset", "typing.AbstractSet", "typing.MutableSet", "_weakrefset.WeakSet"}
IN_ONE_ORDER = {"builtins.int", "builtins.bool"}
FREE_OF_ORDER = {"sorted", "set", "frozenset", "any", "all", "sum", "len", "min", "max", "isinstance"}
IN_ORDER = {
    *("list", "tuple", "iter", "enumerate", "zip", "map", "filter", "deque", "fromkeys", "join", "extend", "chain"),
    *("gather", "Counter"),
}


NOT_BELOW = {"info", "node", "var", "type", "original_def", "expanded", "analyzed", "impl_item"}
"""Attributes of nodes that lead somewhere else in the tree, or out of it."""


def _nodes(root: Node) -> Iterator[Node]:
    """A node and all below it, from above. mypy's own visitors are compiled, and can't be inherited from."""
    seen, stack = set[int](), [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(reversed(list(_below(node))))


_ATTRIBUTES: dict[str, list[str]] = {}


def _below(node: Node) -> Iterator[Node]:
    kind = type(node)
    if kind.__name__ not in _ATTRIBUTES:
        _ATTRIBUTES[kind.__name__] = [name for name in dir(kind) if not name.startswith("_") and name not in NOT_BELOW]
    for name in _ATTRIBUTES[kind.__name__]:
        stack = [getattr(node, name, None)]
        while stack:
            value = stack.pop()
            if isinstance(value, Statement | Expression | Block | Argument):
                yield value
            elif isinstance(value, list | tuple):
                stack.extend(reversed(value))


class _Finder:
    """Where a module goes through a set."""

    def __init__(self, types: dict[Expression, Type]) -> None:
        self._types = types
        self._free: set[int] = set()
        self.lines: list[int] = []

    def look(self, node: Node) -> None:
        """At one node; those above it have been looked at."""
        if isinstance(node, ForStmt):
            self._refuse(node.expr)
        elif isinstance(node, SetComprehension):
            self._free.add(id(node.generator))
        elif isinstance(node, DictionaryComprehension) or (
            isinstance(node, GeneratorExpr) and id(node) not in self._free
        ):
            for sequence in node.sequences:
                self._refuse(sequence)
        elif isinstance(node, StarExpr):
            self._refuse(node.expr)
        elif isinstance(node, CallExpr):
            self._look_at_call(node)

    def _look_at_call(self, call: CallExpr) -> None:
        callee = call.callee
        name = callee.name if isinstance(callee, NameExpr | MemberExpr) else ""
        if name in FREE_OF_ORDER:
            self._free |= {id(each.generator if isinstance(each, ListComprehension) else each) for each in call.args}
        elif name in IN_ORDER or any(kind is ArgKind.ARG_STAR for kind in call.arg_kinds):
            for each in call.args:
                self._refuse(each)
        elif name == "pop" and isinstance(callee, MemberExpr) and not call.args:
            self._refuse(callee.expr)

    def _refuse(self, expression: Expression) -> None:
        if self._is_set(expression):
            self.lines.append(expression.line)

    def _is_set(self, expression: Expression) -> bool:
        found = get_proper_type(self._types.get(expression))
        parts = [get_proper_type(each) for each in found.items] if isinstance(found, UnionType) else [found]
        for part in parts:
            if isinstance(part, Instance) and part.type.fullname in SETS:
                item = get_proper_type(part.args[0]) if part.args else None
                if not (isinstance(item, Instance) and item.type.fullname in IN_ONE_ORDER):
                    return True
        return False


def _types_of(sources: list[BuildSource]) -> BuildResult:
    options = Options()
    options.export_types = options.preserve_asts = True
    options.incremental, options.cache_dir = False, "/dev/null"
    options.ignore_missing_imports = True
    return build(sources, options)


def _found(result: BuildResult, names: set[str]) -> Iterator[str]:
    for name in sorted(names):
        tree = result.graph[name].tree
        assert isinstance(tree, MypyFile)
        finder = _Finder(result.types)
        for statement in tree.defs:
            for node in _nodes(statement):
                finder.look(node)
        yield from (f"{name}:{line}" for line in sorted(finder.lines))


def test_the_broker_goes_through_no_set() -> None:
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in ("embedded_broker", "kafka_records")
        for path in (ROOT / package).rglob("*.py")
    }
    result = _types_of([BuildSource(str(path), name) for name, path in paths.items()])
    assert list(_found(result, set(paths))) == []


REFUSED = """
def through(names: set[str], other: frozenset[bytes], numbers: set[int]) -> None:
    for name in names: print(name)
    print([each for each in names])
    print({each: 1 for each in other})
    print([*names])
    print(list(names | {"x"}), tuple(other))
    print(next(iter(names)), dict.fromkeys(other))
    print(names.pop())
    print(max((len(each), each) for each in names), sorted(each for each in names), {each for each in other})
    for number in numbers: print(number)
    print(any(each for each in names), set(names), sorted(names))
"""


def test_what_is_refused() -> None:
    result = _types_of([BuildSource(None, "refused", REFUSED)])
    assert list(_found(result, {"refused"})) == [f"refused:{line}" for line in (3, 4, 5, 6, 7, 7, 8, 8, 9)]

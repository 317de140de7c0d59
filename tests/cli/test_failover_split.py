"""Which parts of coupled topics may be failed over: what is named, and what leaves nothing behind that the flow has."""

from __future__ import annotations

from collections.abc import Collection

from cli.commands.failover_split import split_without_name
from replicator.coupling.sets import CoupledSet, split_sets


def refused(
    sets: list[CoupledSet], topics: set[str], named: Collection[str] = (), already: Collection[str] = ()
) -> list[str]:
    return split_without_name(split_sets(sets, topics | set(already)), topics, named)


def tied(*topics: str, outside: tuple[str, ...] = ()) -> CoupledSet:
    return CoupledSet(topics, (), (), outside)


def test_a_part_of_a_coupled_set_is_refused_with_what_it_is_tied_to() -> None:
    (said,) = refused([tied("a", "b", "c"), tied("x", "y")], {"a"})
    assert "tie a to b, c" in said
    assert "--split a" in said
    assert refused([tied("a", "b", "c")], {"a", "b", "c"}) == []
    assert refused([tied("a", "b")], {"z"}) == []


def test_each_topic_has_to_be_named() -> None:
    assert len(refused([tied("a", "b", "c")], {"a", "b"}, {"a"})) == 1
    assert refused([tied("a", "b", "c")], {"a", "b"}, {"a", "b"}) == []
    (said,) = refused([tied("a", "b"), tied("x", "y")], {"a", "x"}, {"a"})
    assert "tie x to y" in said


def test_what_is_failed_over_already_or_not_copied_at_all_is_not_left_behind() -> None:
    assert refused([tied("a", "b")], {"b"}, already={"a"}) == []
    assert refused([tied("a", "b", outside=("b",))], {"a"}) == []
    assert len(refused([tied("a", "b", "c")], {"b"}, already={"a"})) == 1

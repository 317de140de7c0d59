"""The explorer itself: it finds the nearest bad state, a dead end, and refuses to stop half way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.explore import Bad, Step, TooLarge, explore


def _count(state: int) -> Iterator[Step[int]]:
    if state < 6:
        yield "one", state + 1
        yield "two", state + 2


def test_all_states_are_visited_once() -> None:
    explored = explore(0, _count, states_max=10, keep_edges=True)
    assert sorted(explored.states) == list(range(8))
    assert explored.stuck(lambda state: state >= 6) is None


def test_the_shortest_way_to_a_bad_state_is_told() -> None:
    def steps(state: int) -> Iterator[Step[int]]:
        if state == 5:
            raise Bad("five", "look")
        yield from _count(state)

    found = explore(0, steps, states_max=10).found
    assert found is not None
    assert (found.kind, len(found.trace), found.trace[-1]) == ("five", 4, "look")


def test_a_dead_end_is_found() -> None:
    def steps(state: int) -> Iterator[Step[int]]:
        if state == 0:
            yield "right", 1
            yield "wrong", 2
        elif state == 1:
            yield "goal", 3

    stuck = explore(0, steps, states_max=10, keep_edges=True).stuck(lambda state: state == 3)
    assert stuck is not None
    assert stuck.trace == ("wrong",)


def test_a_model_that_is_cut_off_is_an_error() -> None:
    with pytest.raises(TooLarge):
        explore(0, lambda state: iter([("more", state + 1)]), states_max=100)

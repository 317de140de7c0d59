"""What the flow's policy decides by itself: as an operator would, within its bound, whoever runs the lane by then."""

from __future__ import annotations

from typing import Any

import pytest

from replicator.config.policies import DecisionPolicy
from replicator.model.commands import COMMANDS, Command
from replicator.state.decisions import BY_POLICY
from replicator.state.occurrences import Ending
from replicator.state.signed_gaps import signed_gaps
from tests.replicator.lane.fakes.kills import killed_at_each_call
from tests.replicator.lane.fakes.loads import A, filled, numbered
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_decisions import ASIDE, lose

DAY_S = 86_400.0
REFUSED = ("t[0]-1", "t[0]-3", "t[0]-4")


def rule(decide: str, bound: int) -> dict[str, Any]:
    return {"decide": decide, "gap_offsets_max_per_day": bound}


def signed(world: World, **rules: dict[str, Any]) -> World:
    """The world, with a flow whose file says this."""
    world.flow = world.flow.model_copy(update={"policy": DecisionPolicy.model_validate(rules)})
    return world


def refusing(bound: int, decide: str = "skip") -> World:
    """The target refuses three of six records."""
    world = signed(World(idle_s_max=2.0), record_refused=rule(decide, bound))
    filled(world, 6)
    world.target.topics["t.copy"].refuses = frozenset(REFUSED)
    world.target.create(ASIDE.topic)
    return world


def gaps(world: World) -> list[tuple[int, int]]:
    return [(it.first, it.end) for it in signed_gaps(world.occurrences())]


def without(*records: str) -> list[str]:
    return [record for record in numbered("t[0]", 6) if record not in records]


def test_it_decides_what_an_operator_could_and_that_is_on_record() -> None:
    world = refusing(3)
    assert world.run() is None
    assert world.copied(A) == without(*REFUSED)
    assert gaps(world) == [(1, 2), (3, 4), (4, 5)]
    for it in world.occurrences():
        assert it.closing is not None
        assert it.closing.decision is not None
        assert (it.closing.effect, it.closing.decision.by) == (Ending.SKIPPED, BY_POLICY)
        assert "at most 3 offsets" in it.closing.decision.why


def test_a_record_is_set_aside() -> None:
    world = refusing(3, "set_aside")
    assert world.run() is None
    assert world.copied(A) == without(*REFUSED)
    assert [it.value for _, it in world.target.log(ASIDE).committed()] == list(REFUSED)


def test_what_is_beyond_the_bound_waits_for_an_operator_over_restarts_until_a_day_has_gone() -> None:
    world = refusing(2)
    world.run()
    assert world.copied(A) == without(*REFUSED, "t[0]-5")
    assert gaps(world) == [(1, 2), (3, 4)]
    for owner in ("another", "a third"):
        world.run(owner)
        assert gaps(world) == [(1, 2), (3, 4)], "each session counts what was left out before"
    assert len(world.told("policy_bound_reached")) == 3
    world.time_s += DAY_S - 60
    world.run("a fourth")
    assert gaps(world) == [(1, 2), (3, 4)]
    world.time_s += 61
    assert world.run("a fifth") is None
    assert gaps(world) == [(1, 2), (3, 4), (4, 5)]
    assert world.copied(A) == without(*REFUSED)


@pytest.mark.tier("extended")
@pytest.mark.parametrize("decide", ["skip", "set_aside"])
def test_killed_at_any_call_it_leaves_out_each_once_and_no_more_than_its_bound(decide: str) -> None:
    for world in killed_at_each_call(lambda: refusing(2, decide)):
        assert world.copied(A) == without(*REFUSED, "t[0]-5")
        assert gaps(world) == [(1, 2), (3, 4)]
        aside = [it.value for _, it in world.target.log(ASIDE).committed()]
        assert aside == (list(REFUSED[:2]) if decide == "set_aside" else [])


@pytest.mark.parametrize(("bound", "left_out"), [(1, []), (2, [(6, 8)])])
def test_a_gap_is_left_out_as_a_whole_or_not_at_all(bound: int, left_out: list[tuple[int, int]]) -> None:
    world = World(idle_s_max=2.0)
    filled(world, 6)
    assert world.run() is None
    lose(world, 8)
    signed(world, source_records_gone=rule("skip", bound))
    world.run("another")
    assert gaps(world) == left_out
    assert world.copied(A) == [*numbered("t[0]", 6), *(["later-8", "later-9"] if left_out else [])]


def test_what_an_operator_has_decided_comes_first() -> None:
    world = refusing(1)
    world.flow = World().flow
    world.run()
    world.resolve(Command.SET_ASIDE, A)
    signed(world, record_refused=rule("skip", 1))
    world.run("another")
    found = {it.offset: it.closing.effect for it in world.occurrences() if it.closing is not None}
    assert found == {1: Ending.SET_ASIDE, 3: Ending.SKIPPED}


def test_nothing_is_decided_of_a_kind_without_a_rule() -> None:
    world = refusing(3)
    signed(world, source_records_gone=rule("skip", 1_000))
    world.run()
    assert world.copied(A) == ["t[0]-0"]
    assert all(it.is_open for it in world.occurrences())


def test_who_decides_is_told_apart_from_an_operator() -> None:
    """What operators leave out takes nothing from the policy's bound."""
    world = refusing(2)
    world.flow = World().flow
    world.run()
    world.resolve(Command.SKIP, A)
    signed(world, record_refused=rule("skip", 2))
    assert world.run("another") is None
    assert gaps(world) == [(1, 2), (3, 4), (4, 5)]


BY_HAND = "source_truncated"
"""What was copied is gone at the source, and other records are under its offsets: nobody can have expected that."""


def test_rules_are_there_for_all_that_leaves_something_out_and_for_nothing_else() -> None:
    moving = {kind: [it for it in commands if it.moves] for kind, commands in COMMANDS.items()}
    known = {kind: len(commands) for kind, commands in moving.items() if commands and kind != BY_HAND}
    fields = DecisionPolicy.model_fields
    assert moving[BY_HAND]
    assert fields.keys() == known.keys()
    for kind, count in known.items():
        rule_type = fields[kind].annotation
        assert rule_type is not None
        choices = rule_type.model_fields["decide"].annotation.__args__
        assert len(choices) == count + 1, kind

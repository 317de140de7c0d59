"""A decision that gives a partition its position, while the target doesn't take that: it is done later, and once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replicator.config.policies import DecisionPolicy
from replicator.model.commands import Command
from replicator.model.delivery import Delivery
from replicator.state.claims import read_claims
from replicator.state.signed_gaps import adoptions, signed_gaps
from tests.replicator.lane.fakes.loads import A, each_poll, filled, numbered
from tests.replicator.lane.fakes.map_truth import target_of
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_adopted import LATER, not_empty
from tests.replicator.lane.test_decisions import lose, refusing
from tests.replicator.lane.test_decisions_at_start import without_position
from tests.replicator.lane.test_restarted import target_again


def restarted() -> tuple[World, list[str]]:
    """The target's topic was created again. What was left out of the one before counts until it is copied anew."""
    world = refusing()
    world.run()
    world.resolve(Command.SKIP, A)
    assert world.run("another") is None
    world.target.topics["t.copy"].refuses = frozenset()
    world.time_s += 1
    target_again(world).run("a third")
    world.resolve(Command.RESTART_TOPIC, A)
    return world, numbered("t[0]", 6)


def adopted() -> tuple[World, list[str]]:
    """What another program has copied; nothing reads the target before the position is committed."""
    world = not_empty()
    world.flow = world.flow.model_copy(update={"delivery": Delivery.AT_LEAST_ONCE})
    world.run()
    world.resolve(Command.ADOPT, A, adopted=6)
    return world, [*numbered("t[0]", 6), *LATER]


def begun_behind() -> tuple[World, list[str]]:
    """The source has lost records before the partition was admitted."""
    world = without_position()
    world.resolve(Command.SKIP, A)
    return world, ["later-8", "later-9"]


Decided = Callable[[], tuple[World, list[str]]]


def deny(world: World) -> None:
    """Take a right away that commits of positions need, once the next lane has committed those that it has found."""
    world.on.append(("step.claimed", lambda: world.target.denied.update({"t.copy": {"Read"}})))


@pytest.mark.parametrize("decided", [restarted, adopted, begun_behind])
def test_without_a_right_nothing_of_it_is_done_and_with_it_all(decided: Decided) -> None:
    world, copied = decided()
    before = read_claims(world.target.claims)
    (open_,) = [it for it in world.occurrences() if it.is_open and it.source == A]
    deny(world)
    assert world.run("denied") is None
    assert world.target.denied
    now = read_claims(world.target.claims)
    assert open_ in now.occurrences
    assert now.claims.get(target_of(A)) == before.claims.get(target_of(A))
    assert signed_gaps(now.occurrences) == signed_gaps(before.occurrences)
    assert adoptions(now.occurrences) == ()
    world.target.denied.clear()
    assert world.run("allowed") is None
    assert world.copied(A) == copied
    (done,) = [it for it in world.occurrences() if it.id == open_.id]
    assert done.moved is not None
    assert [it for it in world.occurrences() if it.is_open and it.source == A] == []


def test_what_the_policy_has_decided_in_vain_takes_nothing_from_its_bound() -> None:
    world = World("latest", idle_s_max=60.0)
    rule = {"decide": "skip", "gap_offsets_max_per_day": 2}
    world.flow = world.flow.model_copy(update={"policy": DecisionPolicy.model_validate({"source_records_gone": rule})})
    filled(world, 6)
    world.open_flow()
    lose(world, 8)
    deny(world)
    began_s = world.time_s

    def allow() -> bool:
        if world.time_s > began_s + 20:
            assert world.copied(A) == []
            world.target.denied.clear()
            return False
        return True

    each_poll(world, allow)
    assert world.run() is None
    assert world.copied(A) == ["later-8", "later-9"]
    assert world.told("policy_bound_reached") == []

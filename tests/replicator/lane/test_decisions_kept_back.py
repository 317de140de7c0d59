"""What keeps back a decision about a source that was cut doesn't have the cut forgotten, which is shown only once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from replicator.lane.partition import Stopped
from replicator.model.commands import Command
from replicator.model.delivery import Delivery
from replicator.model.errors import Incident, Unreachable
from replicator.state.decisions import AdoptedSides
from tests.replicator.lane.fakes.loads import A, each_poll, numbered
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_decisions import closed
from tests.replicator.lane.test_truncated import assert_goes_on, at_the_position


def found_once(world: World, then: Callable[[], None]) -> World:
    """In the next session the client finds the cut once, and not again in that session, as librdkafka: then this is
    done."""

    def tell() -> None:
        plane = world.planes[-1]
        poll = plane.poll

        def failing(*args: object) -> object:
            plane.poll = poll  # type: ignore[method-assign]
            polled = poll(*args)  # type: ignore[arg-type]
            polled.failed[A] = Incident("source_truncated", "by its epoch", topic="t", partition=0)
            world.on.append(("plane.poll", then))
            return polled

        plane.poll = failing  # type: ignore[method-assign,assignment]

    world.on.append(("plane.poll", tell))
    return world


def away(*calls: str) -> Callable[[World], None]:
    """The source gives no answer to the next of these calls."""

    def fail() -> None:
        raise Unreachable("the source is away for a moment")

    return lambda world: world.on.extend((call, fail) for call in calls)


def denied(world: World) -> None:
    """The target takes no position of the topic for a while."""
    began_s = world.time_s
    world.target.denied["t.copy"] = {"Read"}

    def allow() -> bool:
        if world.time_s > began_s + 10:
            world.target.denied.clear()
        return bool(world.target.denied)

    each_poll(world, allow)


@pytest.mark.parametrize(
    "hinder", [away("west.log_ends"), away("west.topic_ids"), denied], ids=["no ends", "no ids", "no right"]
)
@pytest.mark.parametrize("delivery", [Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE])
def test_what_keeps_a_decision_back_for_a_while_does_not_have_the_cut_forgotten(
    hinder: Callable[[World], None], delivery: Delivery
) -> None:
    """No more records than `at_the_position` has: nothing but the client has shown the cut, and only once."""
    world = at_the_position()
    world.idle_s_max = 90.0
    world.flow = world.flow.model_copy(update={"delivery": delivery})

    def decide() -> None:
        world.resolve(Command.SKIP, A, adopted=4)
        hinder(world)

    found_once(world, decide)
    assert world.run("another") is None
    assert_goes_on(world, 2)
    assert [it.is_open for it in world.occurrences()] == [False]


def test_what_was_decided_over_other_facts_does_not_have_the_cut_forgotten() -> None:
    world = at_the_position()
    world.idle_s_max = 30.0

    def decide() -> None:
        decision = world.resolve(Command.SKIP, A, adopted=4)
        sides = replace(decision.adopted or AdoptedSides(source_topic_id="", target_topic_id="", target_end=0))
        world.write(replace(decision, adopted=replace(sides, target_end=99)))

    found_once(world, decide)
    world.run("another")
    assert len(world.told("decision_outdated")) == 1
    assert isinstance(world.states()[A], Stopped)
    assert world.copied(A) == numbered("t[0]", 6)
    (again,) = [it for it in world.occurrences("source_truncated") if it.is_open]
    assert again.id != closed(world).id
    world.resolve(Command.SKIP, A, adopted=4)
    assert world.run("a third") is None
    assert world.copied(A) == [*numbered("t[0]", 6), *numbered("new", 2)]

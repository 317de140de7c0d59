"""What keeps back a decision about a source that was cut doesn't have the cut forgotten, which is shown only once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from replicator.lane.decisions import AGAIN_S, LaneDecisions
from replicator.lane.partition import Stopped
from replicator.model.commands import Command
from replicator.model.delivery import Delivery
from replicator.model.errors import Incident, NotAllowed, Retriable, Unreachable
from replicator.state.decisions import AdoptedSides
from replicator.state.signed_gaps import adoptions
from tests.replicator.lane.fakes.loads import A, B, each_poll, numbered
from tests.replicator.lane.fakes.map_truth import target_of
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_decisions import closed
from tests.replicator.lane.test_kept_alive import committed_ms
from tests.replicator.lane.test_truncated import assert_goes_on, at_the_position, below, stopped

WHILE_S = 25.0
"""Shorter than until a decision is tried again that was postponed."""


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
    world.target.denied["t.copy"] = {"Read"}
    after_a_while(world, world.target.denied.clear)


def unready(world: World) -> None:
    """The target takes no records of the partition for a while."""
    log = world.target.log(target_of(A))
    log.not_ready = "too few in-sync replicas"

    def recover() -> None:
        log.not_ready = ""

    after_a_while(world, recover)


def after_a_while(world: World, then: Callable[[], None]) -> None:
    began_s = world.time_s

    def look() -> bool:
        if world.time_s <= began_s + WHILE_S:
            return True
        then()
        return False

    each_poll(world, look)


def found(provoke: Callable[[], World], then: Callable[[], None]) -> World:
    """The next session finds the cut: by the end of the log, or by the client, and only once. Then this is done."""
    world = provoke()
    if provoke is at_the_position:
        return found_once(world, then)
    world.on.append(("plane.poll", then))
    return world


@pytest.mark.parametrize(
    "hinder",
    [away("west.log_ends"), away("west.topic_ids"), denied, unready],
    ids=["no ends", "no ids", "no right", "not ready"],
)
@pytest.mark.parametrize(("provoke", "new"), [(below, 1), (at_the_position, 2)])
@pytest.mark.parametrize("delivery", [Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE])
def test_what_keeps_a_decision_back_for_a_while_does_not_have_the_cut_forgotten(
    hinder: Callable[[World], None], provoke: Callable[[], World], new: int, delivery: Delivery
) -> None:
    """No more records than `at_the_position` has: nothing but the client has shown the cut, and only once."""

    def decide() -> None:
        world.resolve(Command.SKIP, A, adopted=4)
        hinder(world)

    world = found(provoke, decide)
    world.idle_s_max = 90.0
    world.flow = world.flow.model_copy(update={"delivery": delivery})
    before_s = world.time_s + WHILE_S + AGAIN_S
    assert world.run("another") is None
    assert_goes_on(world, new)
    assert [it.is_open for it in world.occurrences()] == [False]
    assert closed(world).at_ms < before_s * 1000


@pytest.mark.parametrize("hinder", [away("west.topic_ids"), unready], ids=["no ids", "not ready"])
@pytest.mark.parametrize("provoke", [below, at_the_position])
def test_the_position_is_kept_alive_until_the_decision_is_done(
    hinder: Callable[[World], None], provoke: Callable[[], World]
) -> None:
    """Invariant 7: what the target has is committed again and again, whatever was to be committed in its place."""
    kept_ms: list[int] = []

    def decide() -> None:
        world.resolve(Command.SKIP, A, adopted=4)
        decided_s = world.time_s
        hinder(world)

        def look() -> bool:
            if world.time_s > decided_s + WHILE_S - 5:
                kept_ms.extend(committed_ms(world, at) for at in (A, B))
            return not kept_ms

        each_poll(world, look)

    world = found(provoke, decide)
    world.flow = world.flow.model_copy(
        update={"limits": world.flow.limits.model_copy(update={"recommit_interval_ms": 1_000})}
    )
    world.idle_s_max = 90.0
    assert world.run("another") is None
    assert kept_ms[0] == kept_ms[1]
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


def stopped_there(world: World) -> None:
    assert world.driver is not None
    world.driver.stop()
    raise Retriable("the leader moves")


def stopped_with_another_topic_made_again(world: World) -> None:
    world.source.delete("u")
    world.source.create("u", 1)
    stopped_there(world)


def denied_there(world: World) -> None:
    """The source has grown past the position, and is read on from the new one if nothing keeps it back."""
    world.source.log(A).put(*numbered("grown", 8))
    raise NotAllowed("Describe on the cluster")


@pytest.mark.parametrize("then", [stopped_there, stopped_with_another_topic_made_again, denied_there])
def test_a_decision_that_fails_half_way_moves_no_position(
    then: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new one is committed with its claim and the end of the occurrence, or not at all (invariant 4)."""
    world = stopped(below)
    before = world.position(A)
    world.resolve(Command.SKIP, A, adopted=4)
    begin = LaneDecisions._begin_behind

    def begun(decisions: LaneDecisions, *given: Any) -> Any:
        world.on.append(("east.end_records", lambda: then(world)))
        return begin(decisions, *given)

    with monkeypatch.context() as patched:
        patched.setattr(LaneDecisions, "_begin_behind", begun)
        world.run("a third")
    assert world.on == []
    assert (world.position(A), [it.is_open for it in world.occurrences() if it.source == A]) == (before, [True])
    assert len(world.copied(A)) == before
    world.run("a fourth")
    assert [(it.offset, it.why) for it in adoptions(world.occurrences())] == [(4, "w")]
    assert world.position(A) == len(world.source.log(A).committed())

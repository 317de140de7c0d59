"""How a lane learns of decisions while it runs: it is told, and asks the control topic for nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replicator.model.commands import Command
from replicator.model.errors import Incident, NotAllowed, ReplicatorError
from replicator.state.control_topic import Control
from tests.replicator.lane.fakes.loads import numbered
from tests.replicator.lane.fakes.world import CONTROL, World
from tests.replicator.lane.test_decisions import A, B, losing


def leaderless(world: World) -> None:
    world.target.log(CONTROL).leaderless = True


def unreachable(world: World) -> None:
    world.target.log(CONTROL).unreachable = True


def refused(error: ReplicatorError) -> Callable[[World], None]:
    """Whoever reads the topic is told so."""

    def happens(world: World) -> None:
        def raises() -> Control:
            world.call("state.control")
            raise error

        world.target.log(CONTROL).put("a pause")  # it has grown
        world.state.control = raises  # type: ignore[method-assign]

    return happens


DENIED = NotAllowed("cluster 'east': the user needs Read on topic '__eos.f.control'")
NOT_OURS = Incident("control_topic_unreadable", "a record without key")


@pytest.mark.parametrize(
    "happens",
    [leaderless, unreachable, refused(DENIED), refused(NOT_OURS)],
    ids=["leaderless", "unreachable", "denied", "unreadable"],
)
def test_a_control_topic_that_cannot_be_read_holds_up_no_partition(happens: Callable[[World], None]) -> None:
    world = losing()
    world.idle_s_max = 10.0

    def begun() -> None:
        world.trace.clear()
        happens(world)
        world.actions[world.calls + 60] = lambda: world.source.log(B).put(*numbered("more", 4))

    world.on.append(("step.claimed", begun))
    assert world.run("another") is None
    assert world.copied(B)[-4:] == numbered("more", 4)
    assert world.incidents()[A] == "source_records_gone"
    assert world.trace.count("state.control") == 0, "the lane's own thread would wait for the answer"
    assert len(world.told("lane_started")) == 2, "no session ends for that"


def test_what_was_told_before_a_session_began_is_not_forgotten() -> None:
    world = losing()
    world.run()
    known = world.state.current
    world.resolve(Command.SKIP, A)
    world.state.current = known  # as if it had been written behind what the session reads
    assert world.run("another") is None
    assert world.position(A) == 10

"""The start of a lane's partitions: each is decided by itself, by what was read in one order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replicator.lane.partition import Copying, Reason, Stopped, Waiting
from replicator.model.errors import Unreachable
from replicator.state.claims import read_claims
from tests.replicator.lane.fakes.loads import A, B, U, filled, numbered
from tests.replicator.lane.fakes.world import World


def no_leader(world: World) -> None:
    world.target.topics["u.copy"].logs[0].not_ready = "u.copy[0] has no leader"


def deny(world: World) -> None:
    world.source.denied["u"] = {"Read"}


def fill_target(world: World) -> None:
    world.target.topics["u.copy"].logs[0].put("somebody's")


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (no_leader, Reason.TARGET_NOT_READY),
        (deny, Reason.NOT_ALLOWED),
        (fill_target, "target_not_empty"),
    ],
)
def test_the_others_start_whatever_keeps_one_back(trouble: Callable[[World], None], expected: str) -> None:
    world = World()
    filled(world, 4)
    trouble(world)
    assert world.run() is None
    assert [world.copied(at) for at in (A, B)] == [numbered("t[0]", 4), numbered("t[1]", 4)]
    assert world.position(U) <= 0
    state = world.states()[U]
    assert isinstance(state, Waiting | Stopped)
    assert (state.incident.name if isinstance(state, Stopped) else state.reason) == expected
    assert {world.states()[at] for at in (A, B)} == {Copying()}


def test_what_kept_one_back_is_asked_about_again_until_it_has_gone() -> None:
    world = World(idle_s_max=1e6)
    filled(world, 4)
    no_leader(world)
    polls: list[float] = []

    def elect() -> None:
        polls.append(world.time_s)
        if len(polls) < 60:
            world.on.append(("plane.poll", elect))
            return
        world.target.topics["u.copy"].logs[0].not_ready = ""
        world.idle_s_max = 10.0

    world.on.append(("plane.poll", elect))
    assert world.run() is None
    assert world.copied(U) == numbered("u[0]", 4)
    assert world.trace.count("plane.fence") == 1, "in the same session"


def test_a_first_start_commits_claims_and_positions_together_and_a_second_one_claims_nothing() -> None:
    world = World()
    filled(world, 2)
    world.run()
    claims = read_claims(world.target.claims).claims
    assert {(claim.source, claim.offset) for claim in claims.values()} == {(A, 0), (B, 0), (U, 0)}
    records = len(world.target.claims)
    world.run("another")
    assert len(world.target.claims) == records


def test_a_target_that_does_not_answer_at_a_start_ends_the_session_before_anything_is_committed() -> None:
    world = World()
    filled(world, 2)

    def fail() -> None:
        world.on.append(("plane.send_positions", lambda: committed.append(world.trace.count("plane.fence"))))
        raise Unreachable("cluster 'east' doesn't answer")

    committed: list[int] = []
    world.on.append(("east.log_ends", fail))
    assert world.run() is None
    assert committed == [2], "by the second session"
    assert world.copied(A) == numbered("t[0]", 2)


def test_at_a_start_only_this_lane_s_own_positions_are_taken_for_its_own() -> None:
    world = World()
    filled(world, 2)
    world.run("first")
    world.run("second")
    assert [world.owner(at) for at in (A, B, U)] == ["", "", ""], "released at the clean stop"
    owners: list[str | None] = []
    world.on.append(("step.claimed", lambda: owners.extend(world.owner(at) for at in (A, B, U))))
    world.run("third")
    assert owners == ["third"] * 3

"""Which partitions of the claims topic a lane reads."""

from __future__ import annotations

from dataclasses import replace

from replicator.state.control_topic import Control
from replicator.state.generation import Generation, LaneAssignment, Phase
from tests.replicator.lane.fakes.loads import U, filled
from tests.replicator.lane.fakes.world import World


def test_an_expired_position_is_told_by_the_claim_of_another_lane_count() -> None:
    """The claim stands in the partition of the claims topic that the lane of then wrote to."""
    world = World()
    filled(world)
    before = LaneAssignment(7)
    lane = before.lane_of(*U)
    assert lane > 0
    listing = {"t": 2, "u": 1}
    world.state.current = Control({1: Generation(1, Phase.OPEN, 7, partitions=listing)})
    routes = tuple(route for route in world.routes() if before.lane_of(*route.source) == lane)
    world.run(plan=replace(world.plan(routes=routes), lane=lane, assignment=before, claim_partitions=7))
    assert world.position(U) > 0
    closed, opened = (
        Generation(1, Phase.CLOSED, 7, partitions=listing),
        Generation(2, Phase.OPEN, 1, partitions=listing),
    )
    world.state.current = Control({1: closed, 2: opened})
    world.target.offsets = {at: found for at, found in world.target.offsets.items() if at.topic != "u.copy"}
    world.run(plan=replace(world.plan("next"), generation=2))
    assert world.incidents() == {U: "position_expired"}

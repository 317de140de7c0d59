"""What a lane reads before it copies, and in which order."""

from __future__ import annotations

from replicator.lane.partition import Copying
from replicator.state.claims import read_claims
from tests.replicator.lane.fakes.loads import A, B, U, filled
from tests.replicator.lane.fakes.world import World

READ = ("state.control", "state.claims", "plane.positions", "west.log_ends", "east.log_ends", "plane.send_positions")


def test_everything_is_read_in_the_one_safe_order() -> None:
    world = World()
    filled(world, 3)
    world.run()
    after_fence = world.trace[world.trace.index("plane.fence") :]
    first = [after_fence.index(call) for call in READ]
    assert first == sorted(first)


def test_a_position_needs_no_claim_but_a_claim_without_its_position_stops_the_partition() -> None:
    """So claims are read first: what is committed in between, beside `status`, is a position without its claim."""
    for claims_first in (True, False):
        world = World()
        filled(world, 3)
        world.run()
        if claims_first:
            world.state.claims = lambda partition=None: read_claims([])  # type: ignore[method-assign]
        else:
            world.target.offsets.clear()
        assert world.run("next") is None
        if claims_first:
            assert {type(state) for state in world.states().values()} == {Copying}
        else:
            assert world.incidents() == dict.fromkeys((A, B, U), "position_expired")

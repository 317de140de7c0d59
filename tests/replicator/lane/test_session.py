"""One producer session: what it does in which order, and what follows an abort."""

from __future__ import annotations

from itertools import pairwise

import pytest

from replicator.model.errors import Abortable, NotAllowed, UnknownOutcome
from tests.replicator.lane.fakes.loads import A, B, U, each_poll, filled, held
from tests.replicator.lane.fakes.world import World

READS_OR_SEEKS = ("plane.poll", "plane.seek")


@pytest.mark.parametrize(
    "call", ["plane.poll", "plane.flush", "plane.send_positions", "west.topic_ids", "east.topic_ids"]
)
@pytest.mark.parametrize("nth", [1, 2])
def test_after_an_abort_the_source_is_sought_before_the_next_poll(call: str, nth: int) -> None:
    """Invariant 5, wherever the transaction has failed."""
    world = World()
    records = filled(world, 40)
    left = [nth]

    def fail() -> None:
        left[0] -= 1
        if left[0]:
            world.on.append((call, fail))
        else:
            raise Abortable("a broker is away")

    world.on.append(("step.claimed", lambda: world.on.append((call, fail))))
    assert world.run() is None
    aborts = [index for index, made in enumerate(world.trace) if made == "plane.abort"]
    for index in aborts[:-1]:  # the last one is that of the clean stop
        assert next(made for made in world.trace[index:] if made in READS_OR_SEEKS) == "plane.seek"
    world.check_exact(records)
    assert [world.position(at) for at in (A, B, U)] == [40, 40, 40]


def test_transactions_that_fail_again_and_again_are_tried_ever_more_slowly() -> None:
    world = World(idle_s_max=1e6)
    filled(world, 3)
    tried_s: list[float] = []

    def fail() -> None:
        tried_s.append(world.time_s)
        if len(tried_s) < 12:
            world.on.append(("plane.flush", fail))
            raise Abortable("a broker is away")
        world.idle_s_max = 1.0

    world.on.append(("plane.flush", fail))
    assert world.run() is None
    pauses = [later - earlier for earlier, later in pairwise(tried_s)]
    assert max(pauses[6:]) > 4 * max(pauses[:2])
    assert world.position(A) == 3


def test_what_it_has_started_with_is_logged() -> None:
    world = World()
    filled(world, 3)
    world.source.denied["u"] = {"Read"}
    world.target.log(world.routes()[1].target).put("somebody's")
    world.run()
    (told,) = world.told("lane_started")[:1]
    assert {name: told[name] for name in ("partitions", "stopped", "kept")} == {
        "partitions": 2,
        "stopped": 1,
        "kept": 0,
    }


def test_an_unknown_outcome_ends_the_session_and_nothing_is_sent_by_its_producer_again() -> None:
    world = World()
    records = filled(world, 5)

    def lose() -> None:
        raise UnknownOutcome("the answer was lost")

    world.on.append(("step.before_end_txn", lambda: world.on.append(("plane.end_answered", lose))))
    assert world.run() is None
    assert len(world.planes) == 2
    first, second = world.planes
    assert first.trace[first.trace.index("end", first.trace.index("poll")) :] == ["end", "end_answered", "close"]
    assert second.trace[:2] == ["fence", "positions"]
    world.check_exact(records)


def test_partitions_that_fail_wait_at_once_however_much_there_is_to_copy_of_others() -> None:
    """Otherwise nobody would hear of them for as long as the others have records."""
    world = World()
    filled(world, 3)
    polls: list[int] = []

    def one_poll() -> bool:
        if world.position(U) >= 3:
            world.source.denied["t"] = {"Read"}
            world.source.log(U).put("more")
            polls.append(len(world.told("waiting")))
        return len(polls) < 30

    each_poll(world, one_poll)
    assert world.run() is None
    assert polls[:2] == [0, 2]
    assert {(e["topic"], e["reason"]) for e in world.told("waiting")} == {("t", "not_allowed")}
    world.check_exact(held(world))
    assert world.position(U) == 33


def test_a_right_that_names_no_partition_makes_all_wait_and_they_go_on_together() -> None:
    world = World()
    records = filled(world, 5)
    denied: list[int] = []

    def deny() -> None:
        denied.append(1)
        if len(denied) < 3:
            world.on.append(("plane.send_positions", deny))
        raise NotAllowed("cluster 'east': the user needs Read on group '__eos.f'")

    world.on.append(("step.before_offsets", lambda: world.on.append(("plane.send_positions", deny))))
    assert world.run() is None
    world.check_exact(records)
    assert len(denied) == 3
    assert {event["reason"] for event in world.told("waiting")} == {"not_allowed"}
    assert [world.position(at) for at in (A, B, U)] == [5, 5, 5]

"""What a target loses while it is repaired stays an incident; a lost end is left to the flow only once it is whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.jobs.range_policy import RangePolicy
from replicator.jobs.repair_policy import DECIDED_AGAIN_MAX
from replicator.jobs.repair_spans import Missing
from replicator.model.checkpoint import Position, written
from replicator.model.errors import ReplicatorError, Retriable, UnknownOutcome
from tests.replicator.jobs.test_repair_policy import (
    AT,
    LOST,
    RECORDS,
    SPANS,
    THERE,
    copied,
    damage,
    plan,
    repair,
    stopped_by,
)
from tests.replicator.lane.fakes.world import World


def _ends_lost(world: World) -> None:
    world.target.log(THERE).truncate(15)


@pytest.mark.parametrize("error", [Retriable, UnknownOutcome])
def test_what_this_repair_has_copied_and_the_target_loses_is_no_silent_hole(error: type[ReplicatorError]) -> None:
    """What it had copied may be gone, and what it has decided not to copy."""
    world = copied()
    found = damage(world)

    def lose() -> None:
        world.target.log(THERE).truncate(found.target_end)
        raise error("the leader changed")

    world.on.append(("step.after_end_txn", lambda: world.on.append(("plane.flush", lose))))
    _, ended = repair(world, found)
    assert stopped_by(world, ended) in ("target_lost_data", "target_records_hidden")


def test_a_lost_reply_hides_no_loss_of_what_was_committed() -> None:
    """The session after it can't know whether it was committed, and what is there says no."""
    world = copied(lost=())
    _ends_lost(world)
    found = damage(world, (Missing(15, RECORDS, 5),))

    def lose() -> None:
        world.target.log(THERE).truncate(found.target_end)
        raise UnknownOutcome("no reply")

    world.on.append(("step.after_end_txn", lose))
    _, ended = repair(world, found)
    assert stopped_by(world, ended) == "repair_outdated"


def test_a_lost_end_that_is_there_again_in_part_is_not_left_to_the_flow() -> None:
    """The position covers no more than the target has then: nothing else would tell."""
    for stops in (True, False):
        world = copied(lost=())
        _ends_lost(world)
        found = damage(world, (Missing(15, RECORDS, 5),))

        def stop(world: World = world) -> None:
            assert world.driver is not None
            world.driver.stop()

        if stops:
            world.on.append(("step.after_end_txn", stop))
        policy, error = repair(world, found, records_max=2)
        assert error is None
        assert (policy.copied, policy.is_half_done) == ((2, True) if stops else (5, False))


def test_nothing_is_copied_of_a_source_that_was_cut_until_somebody_decides() -> None:
    """At the offsets that the target has lost the source has other records by now: the position has no leader epoch
    that would show it, and the log has grown past the position since a lane has found it cut."""
    world = copied(lost=())
    stored = world.target.position(THERE)
    assert isinstance(stored, Position)
    world.target.offsets[THERE] = written(replace(stored, evidence=replace(stored.evidence, leader_epoch=-1)))
    world.source.log(AT).truncate(15)
    world.run(policy=RangePolicy({}, {AT: RECORDS}), plan=plan(world, "a lane"))
    (before,) = world.occurrences("source_truncated")
    world.source.log(AT).put(*(f"new{number}" for number in range(6)))
    _ends_lost(world)
    policy, ended = repair(world, damage(world, (Missing(15, RECORDS, 5),)))
    assert stopped_by(world, ended) == "source_truncated"
    assert policy.copied == 0
    assert world.copied(AT) == [f"r{number}" for number in range(15)]
    assert world.occurrences() == [before]


def test_what_was_lost_between_others_is_left_to_the_flow() -> None:
    world = copied(lost=LOST[:-1])

    def stop() -> None:
        assert world.driver is not None
        world.driver.stop()

    world.on.append(("step.after_end_txn", stop))
    policy, _ = repair(world, damage(world, SPANS[:2]))
    assert 0 < policy.copied < len(LOST[:-1])
    assert not policy.is_half_done


def test_a_loss_that_nothing_can_be_committed_for_is_told_in_the_end() -> None:
    """Each abort has both sides asked again, which is progress to who watches the lane."""
    world = copied(lost=())
    _ends_lost(world)
    found = damage(world, (Missing(15, RECORDS, 5),))
    calls = 0

    def fail() -> None:
        nonlocal calls
        calls += 1
        if calls <= DECIDED_AGAIN_MAX:  # the world waits for what is to happen yet
            world.on.append(("plane.flush", fail))
        raise Retriable("not now")

    world.on.append(("plane.flush", fail))
    _, ended = repair(world, found)
    assert stopped_by(world, ended) in ("target_lost_data", "target_records_hidden")
    assert calls == DECIDED_AGAIN_MAX + 1

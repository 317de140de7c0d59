"""A target that takes records slower than a transaction may take: what goes through, and what is told meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from replicator.lane.partition import Copying, HeldUp, Waiting
from replicator.model.errors import Abortable, Fenced, NotAllowed, ReplicatorError, TakenOver, UnknownOutcome
from replicator.state.claims import read_claims
from tests.replicator.lane.fakes.loads import A, B, U, filled
from tests.replicator.lane.fakes.map_truth import target_of
from tests.replicator.lane.fakes.plane import TIMEOUT_S
from tests.replicator.lane.fakes.world import World

RECORD_BYTES = len("t[0]-0")
LATE_AS = (
    Abortable,
    *(pytest.param(other, marks=pytest.mark.tier("extended")) for other in (UnknownOutcome, Fenced)),
)
"""What a producer is told of a transaction that has timed out: its records were given up, or nothing was acknowledged,
or the coordinator has fenced it."""


def slow(records_in_time: float, late_as: type[ReplicatorError]) -> World:
    """A target that takes so many records within the timeout of a transaction."""
    world = World(idle_s_max=20 * TIMEOUT_S)
    world.target.bytes_per_s = records_in_time * RECORD_BYTES / TIMEOUT_S
    world.target.late_as = late_as
    return world


@pytest.mark.parametrize("late_as", LATE_AS)
@pytest.mark.parametrize("records", [1.5, 5.0])
def test_records_go_through_as_few_at_a_time_as_it_takes(late_as: type[ReplicatorError], records: float) -> None:
    world = slow(records, late_as)
    expected = filled(world)
    assert world.run() is None
    world.check_exact(expected)
    assert [world.position(at) for at in (A, B, U)] == [8, 8, 8]
    assert {type(state) for state in world.states().values()} == {Copying}
    told = [(event["event"], event["topic"], event["partition"]) for event in world.events if event["event"] in STATES]
    assert all(told.count(line) == 1 for line in told), "each partition waits once, and is copied again once"


STATES = ("waiting", "copying")


@pytest.mark.parametrize("late_as", LATE_AS)
def test_too_slow_for_one_record_is_told_with_what_it_would_need(late_as: type[ReplicatorError]) -> None:
    world = slow(0.5, late_as)
    expected, flushes = filled(world), list[int]()

    def flush() -> None:
        flushes.append(len(world.target.transactions["eos.f.1.0"].entries))
        if len(flushes) < 12:
            world.on.append(("plane.flush", flush))
        else:
            assert world.driver is not None
            world.driver.stop()

    world.on.append(("plane.flush", flush))
    assert world.run() is None
    world.check_exact(expected)
    assert world.position(A) == 0
    for state in world.states().values():
        assert isinstance(state, Waiting)
        assert state.reason.value == "target_slow"
        assert "a single one of its records needs 0 bytes a second" in state.detail
    assert len(world.told("waiting")) == 3
    assert flushes[0] > 4
    assert all(after <= max(1, before // 2) for before, after in pairwise(flushes)), flushes
    world.target.bytes_per_s = None
    assert world.run() is None
    assert [world.position(at) for at in (A, B, U)] == [8, 8, 8]


def test_it_is_told_while_the_lane_still_tries() -> None:
    """And the line that becomes fast again is noticed without a restart."""
    world = slow(0.5, Abortable)
    filled(world)
    seen = list[type]()

    def look() -> None:
        seen.append(type(world.driver.session.positions.entries[A].state))  # type: ignore[union-attr]
        if seen.count(HeldUp) == 3:
            world.target.bytes_per_s = None
        else:
            world.on.append(("plane.flush", look))

    world.on.append(("plane.flush", look))
    assert world.run() is None
    assert HeldUp in seen
    assert [world.position(at) for at in (A, B, U)] == [8, 8, 8]
    assert {type(state) for state in world.states().values()} == {Copying}


def stopped_while_overdue(world: World, then: Callable[[], None] = lambda: None) -> ReplicatorError | None:
    """The lane is asked to stop in the middle of a transaction that the coordinator times out."""

    def stop() -> None:
        assert world.driver is not None
        world.driver.stop()
        then()

    world.on.append(("plane.flush", stop))
    return world.run()


def test_a_stop_while_a_transaction_is_overdue_gives_it_up_and_nobody_has_taken_over() -> None:
    world = slow(0.5, Fenced)
    filled(world)
    assert stopped_while_overdue(world) is None
    assert world.driver is not None
    ended_by = world.driver.ended_by
    assert isinstance(ended_by, UnknownOutcome)
    assert ended_by.exit_code == 3
    assert world.position(A) == 0


def test_a_stop_that_aborts_records_gives_them_up_and_releases_the_positions() -> None:
    """Exit code 0 would say that everything is committed."""
    world = World()
    filled(world)

    def stop() -> None:
        assert world.driver is not None
        world.driver.stop()
        raise Abortable("the brokers have aborted it")

    world.on.append(("plane.flush", stop))
    assert world.run() is None
    assert world.driver is not None
    ended_by = world.driver.ended_by
    assert isinstance(ended_by, UnknownOutcome)
    assert ended_by.exit_code == 3
    assert "the brokers have aborted it" in str(ended_by)
    assert (world.position(A), world.owner(A)) == (0, "")


def test_an_abort_before_a_stop_gives_nothing_up() -> None:
    world = World()
    filled(world)

    def abort() -> None:
        raise Abortable("the brokers have aborted it")

    world.on.append(("plane.flush", abort))
    assert world.run() is None
    assert world.driver is not None
    assert world.driver.ended_by is None
    assert world.position(A) > 0


def test_a_stop_after_a_successor_has_fenced_the_lane_says_who_has_taken_over() -> None:
    world = slow(0.5, Fenced)
    filled(world)

    def succeed() -> None:
        for at, found in list(world.target.offsets.items()):
            world.target.offsets[at] = found._replace(metadata=found.metadata.replace('"me"', '"other"'))

    assert isinstance(stopped_while_overdue(world, succeed), TakenOver)


def test_claims_of_a_slow_start_are_committed_with_their_positions_where_a_topic_is_denied_meanwhile() -> None:
    """Invariant 4: the transaction is made once more without that topic."""
    world = World(idle_s_max=400.0)
    filled(world, 3)

    def stall() -> None:
        assert world.driver is not None
        session = world.driver.session
        assert session is not None
        for _ in range(8):
            world.time_s += 1.0
            session._stalled(session._plane.written())
        world.target.denied["u.copy"] = {"Read"}
        raise NotAllowed("Read on topic u.copy", [U])

    world.on.append(("plane.send_positions", stall))
    assert world.run() is None
    assert world.on == []
    claimed = {claim.source for claim in read_claims(world.target.claims).claims.values()}
    assert claimed == {A, B} == {at for at in (A, B, U) if target_of(at) in world.target.offsets}

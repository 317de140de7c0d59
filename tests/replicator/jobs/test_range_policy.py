"""A bounded attempt on simulated clusters: it copies its range once, wherever it is killed, and no more than that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.jobs.range_policy import RangePolicy
from replicator.lane.partition import Stopped
from replicator.lane.plan import LanePlan
from replicator.model import checkpoint
from replicator.model.errors import NotAllowed, Retriable, UnknownOutcome
from replicator.model.partition import LogEnds, Partition
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, LaneAssignment, Phase
from tests.replicator.lane.fakes.world import World

AT = Partition("t", 0)
RECORDS = 20


class Killed(BaseException):
    """The process is gone."""


def ranged(start: str = "earliest") -> World:
    """A world under a generation with a lane for each partition."""
    world = World(start)
    world.source.log(AT).put(*(f"r{number}" for number in range(RECORDS)))
    world.assignment = LaneAssignment.by_partition({"t": 2, "u": 1})
    listed = dict(world.assignment.listed)
    world.state.current = Control({1: Generation(1, Phase.OPEN, 3, partitions=listed, listed=listed)})
    return world


def plan(world: World, owner: str = "me") -> LanePlan:
    routes = tuple(route for route in world.routes() if route.source == AT)
    return replace(world.plan(owner, routes), lane=world.assignment.lane_of(*AT))


def upto(end: int, first: int = 0) -> RangePolicy:
    return RangePolicy({AT: first}, {AT: end})


def test_ranges_follow_one_another_without_gap_or_overlap() -> None:
    world = ranged()
    for end in (0, 7, 7, 15, RECORDS):
        assert world.run(policy=upto(end), plan=plan(world)) is None
        assert world.position(AT) == end
        assert world.copied(AT) == [f"r{number}" for number in range(end)]


def test_a_range_ends_behind_markers_and_aborted_records() -> None:
    world = ranged()
    log = world.source.log(AT)
    log.marker()
    log.marker()
    assert world.run(policy=upto(log.end), plan=plan(world)) is None
    assert world.position(AT) == log.end == RECORDS + 2


def test_it_begins_where_it_is_told_and_claims_that_before_the_first_record() -> None:
    world = ranged("latest")
    assert world.run(policy=upto(5, first=5), plan=plan(world)) is None
    assert (world.position(AT), world.copied(AT)) == (5, [])
    assert world.run(policy=upto(8, first=0), plan=plan(world)) is None, "the position decides, once there is one"
    assert world.copied(AT) == ["r5", "r6", "r7"]


def test_without_a_range_it_only_commits_the_position_again() -> None:
    world = ranged()
    world.run(policy=upto(5), plan=plan(world))
    world.time_s += 1_000
    assert world.run(policy=RangePolicy({}, {}), plan=plan(world, "keeper")) is None
    stands = world.target.offsets[Partition("t.copy", 0)]
    evidence = checkpoint.decode(stands.metadata)
    assert (stands.offset, evidence.owner, len(world.copied(AT))) == (5, "keeper", 5)
    assert evidence.committed_ms >= 1_000_000


def test_an_incident_stops_it_and_is_told_and_it_is_not_done() -> None:
    world = ranged()
    world.run(policy=upto(5), plan=plan(world))
    world.source.log(AT).delete_before(9)
    assert world.run(policy=upto(9), plan=plan(world)) is None, "the fake world stops a lane that stands still"
    state = world.states()[AT]
    assert isinstance(state, Stopped)
    assert state.incident.name == "source_records_gone"
    assert world.position(AT) == 5


def test_a_source_that_ends_before_the_range_is_an_incident() -> None:
    world = ranged()
    world.run(policy=upto(5), plan=plan(world))
    world.source.log(AT).truncate(12)
    world.run(policy=upto(RECORDS), plan=plan(world))
    assert world.incidents() == {AT: "source_truncated"}
    assert world.position(AT) == 12
    assert world.copied(AT) == [f"r{number}" for number in range(12)]


@pytest.mark.parametrize(("epoch", "old"), [(2, True), (3, False), (-1, False)])
def test_an_end_before_the_range_counts_only_where_no_old_leader_tells_it(epoch: int, old: bool) -> None:
    """The position was reached under leader epoch 3; the newest leader has all that is to be copied."""
    world = World(idle_s_max=2.0)
    source, log = world.source, world.source.log(AT)
    log.put(*(f"r{number}" for number in range(RECORDS)), epoch=3)
    world.run(policy=upto(5))
    ask_another = source.ask_another

    def cut_off() -> None:
        log.truncate(12)
        source.by_old_leaders[AT] = LogEnds(source.topics["t"].topic_id, 0, 12, 12, leader_epoch=epoch)

    def find_newest() -> None:
        ask_another()
        log.put(*(f"r{number}" for number in range(12, RECORDS)), epoch=3)

    world.on.append(("plane.seek", cut_off))
    source.ask_another = find_newest  # type: ignore[method-assign]
    world.run(policy=upto(RECORDS))
    assert world.incidents() == ({} if old else {AT: "source_truncated"})
    assert world.copied(AT) == [f"r{number}" for number in range(RECORDS if old else 12)]


def test_a_missing_right_is_told_and_not_waited_for() -> None:
    world = ranged()
    world.target.denied["t.copy"] = {"Write"}
    error = world.run(policy=upto(5), plan=plan(world))
    assert isinstance(error, NotAllowed)
    assert "Write" in str(error)


def test_a_refused_record_stops_it_with_all_before_it_copied() -> None:
    world = ranged()
    world.target.topics["t.copy"].refuses = frozenset({"r13"})
    world.run(policy=upto(RECORDS), plan=plan(world))
    assert world.incidents() == {AT: "record_refused"}
    assert world.copied(AT) == [f"r{number}" for number in range(13)]


def _calls() -> int:
    world = ranged()
    world.run(policy=upto(10), plan=plan(world))
    return world.calls


@pytest.mark.tier("default")
@pytest.mark.parametrize("error", [Killed, Retriable, UnknownOutcome])
def test_begun_again_after_any_call_it_copies_each_record_once(error: type[BaseException]) -> None:
    for number in range(1, _calls() + 1):
        world = ranged()

        def fail() -> None:
            raise error("here")

        world.actions[number] = fail
        try:
            world.run(policy=upto(10), plan=plan(world))
        except Killed:
            assert world.run(policy=upto(10), plan=plan(world, "again")) is None
        assert world.copied(AT) == [f"r{n}" for n in range(10)], (number, world.trace)
        assert world.position(AT) == 10


def test_an_attempt_that_another_one_fences_leaves_to_it() -> None:
    world = ranged()
    other: list[object] = []

    def speculate() -> None:
        first = world.driver
        other.append(world.run(policy=upto(10), plan=plan(world, "other")))
        world.driver = first

    world.on.append(("step.before_end_txn", speculate))
    error = world.run(policy=upto(10), plan=plan(world))
    assert type(error).__name__ == "TakenOver"
    assert other == [None]
    assert world.copied(AT) == [f"r{number}" for number in range(10)]

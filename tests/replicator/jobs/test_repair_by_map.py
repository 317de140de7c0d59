"""A repair by the offset map on simulated clusters: what is missing after the fence is copied once, wherever it is
killed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial

import pytest

from replicator.jobs.repair_by_map import RecordsByMap, decision_of, planned_by_map
from replicator.jobs.repair_policy import RepairPolicy
from replicator.jobs.repair_questions import OnRead
from replicator.jobs.repair_spans import Missing
from replicator.model.errors import Incident, ReplicatorError, Retriable, UnknownOutcome
from replicator.model.partition import Partition
from replicator.offset_map.compare import compare
from replicator.offset_map.repair_rule import RepairChoice, records_to_copy
from replicator.offset_map.verdicts import ComparedRecord, SidesEvidence
from replicator.planes.contract import ReadStopped
from tests.replicator.jobs import test_repair_policy as listed
from tests.replicator.jobs.test_repair_policy import AT, LOST, QUIET, RECORDS, THERE, Killed, keyed, under, values
from tests.replicator.lane.fakes.log import FakeLog, Fate
from tests.replicator.lane.fakes.map_truth import check_map, map_of
from tests.replicator.lane.fakes.world import World


@pytest.fixture(autouse=True)
def mapped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(listed, "World", partial(World, maps=True))
    return iter(())


class FakeChoices:
    """Compares simulated logs as `proof.map_repair` does real ones."""

    def __init__(self, world: World, untold: int = 0) -> None:
        self._world, self._untold = world, untold

    def fenced(self, partitions: Collection[Partition]) -> None: ...

    def choose(self, at: Partition, on_read: OnRead) -> RepairChoice:
        world = self._world
        on_read("clusters", 1, 2)
        here, there = world.source.log(AT), world.target.log(THERE)
        known = SidesEvidence(target_compacted=world.target.topics["t.copy"].compacted)
        found = compare(map_of(world, AT), lambda: rows(here), lambda: rows(there), lambda: known)
        return replace(records_to_copy(found), untold=self._untold)


def rows(log: FakeLog) -> list[ComparedRecord]:
    return [
        ComparedRecord(offset, entry.value.encode(), entry.value.partition("=")[0].encode())
        for offset, entry in log.committed()
    ]


def repair(
    world: World, owner: str = "repair", records_max: int = 3, untold: int = 0
) -> tuple[RepairPolicy, ReplicatorError | None]:
    lane = listed.plan(world, owner, records_max)
    policy = RepairPolicy(lane, AT, RecordsByMap(lane, AT, FakeChoices(world, untold)), QUIET)
    return policy, world.run(policy=policy, plan=lane)


def test_what_is_missing_after_the_fence_is_copied_and_a_second_repair_copies_nothing() -> None:
    world = listed.copied()
    policy, error = repair(world)
    assert error is None
    assert world.copied(AT) == values()
    assert policy.copied == len(LOST)
    check_map(world, AT)
    under(world, 3)
    policy, error = repair(world, "again")
    assert (error, policy.copied, world.copied(AT)) == (None, 0, values())


@pytest.mark.parametrize("untold", [0, 2])
def test_a_lost_end_that_the_map_covers_in_part_is_not_left_to_the_flow(untold: int) -> None:
    """What the map says nothing of isn't copied, and the position tells nothing of it any more."""
    world = listed.copied(lost=())
    world.target.log(THERE).truncate(15)
    policy, error = repair(world, untold=untold)
    assert error is None
    assert policy.copied == 5
    assert (policy.is_half_done, policy.is_finished) == ((True, False) if untold else (False, True))


def put(world: World, origin: int, value: str) -> None:
    """Where the copy of a source offset should stand."""
    entry = next(one for one in world.target.log(THERE).entries if one.origin == origin)
    entry.value, entry.fate = value, Fate.COMMITTED


def test_what_stands_elsewhere_is_not_copied() -> None:
    world = listed.copied()
    put(world, 3, "r9")
    policy, error = repair(world)
    assert error is None
    assert sorted(world.copied(AT)) == sorted(values())
    assert policy.copied == len(LOST) - 1


def test_a_compacted_target_keeps_what_its_keys_have_last() -> None:
    world = keyed(("a=1", "b=1", "a=2", "c=1", "b=2", "c=2", "d=1"), lost=(0, 4, 5, 6))
    put(world, 6, "c=others")
    policy, error = repair(world)
    assert error is None
    assert world.copied(AT) == ["b=1", "a=2", "c=1", "c=others", "b=2"]
    assert (policy.copied, policy.superseded, policy.superseded_at) == (1, 2, [(0, 1), (5, 6)])


@pytest.mark.tier("extended")
@pytest.mark.parametrize("error", [Killed, Retriable, UnknownOutcome])
@pytest.mark.parametrize("records_max", [3, 10])
def test_killed_or_failing_at_any_call_it_copies_each_record_once(error: type[BaseException], records_max: int) -> None:
    world = listed.copied()
    begun = world.calls
    repair(world, records_max=records_max)
    for number in range(1, world.calls - begun + 1):
        world = listed.copied()

        def fail() -> None:
            raise error("here")

        world.actions[world.calls + number] = fail
        try:
            policy, ended = repair(world, records_max=records_max)
            assert policy.copied == len(LOST), number
        except Killed:
            under(world, 3)
            _, ended = repair(world, "again", records_max)
        assert ended is None, (number, ended, world.trace[-30:])
        assert world.copied(AT) == values(), (number, world.trace[-60:])
        under(world, 4)
        policy, ended = repair(world, "after")
        assert (ended, policy.copied, world.copied(AT)) == (None, 0, values()), number


def test_a_zombie_that_wakes_up_in_its_transaction_copies_nothing() -> None:
    world = listed.copied()
    other: list[object] = []

    def begin_again() -> None:
        under(world, 3)
        first = world.driver
        other.append(repair(world, "other")[1])
        world.driver = first

    world.on.append(("step.before_end_txn", begin_again))
    _, error = repair(world)
    assert type(error).__name__ == "TakenOver"
    assert (other, world.copied(AT)) == ([None], values())


def test_what_an_open_transaction_hides_is_not_taken_for_missing() -> None:
    world = listed.copied()
    world.target.log(THERE).put("r9", fate=Fate.OPEN)
    _, error = repair(world)
    assert listed.stopped_by(world, error) == "target_transaction_open"
    assert len(world.copied(AT)) == RECORDS - len(LOST)


def test_a_comparison_that_fails_stops_the_partition_and_one_that_was_stopped_copies_nothing() -> None:
    for raised in (Incident("map_transaction_open", "open"), ReadStopped("asked")):
        world = listed.copied()
        lane = listed.plan(world)
        policy = RepairPolicy(lane, AT, RecordsByMap(lane, AT, FakeChoices(world)), QUIET)

        def on_read(*_: object, raised: Exception = raised, world: World = world) -> None:
            if isinstance(raised, ReadStopped):
                assert world.driver is not None
                world.driver.stop()
            raise raised

        policy.on_read = on_read
        error = world.run(policy=policy, plan=lane)
        if isinstance(raised, Incident):
            assert listed.stopped_by(world, error) == "map_transaction_open"
        else:
            assert error is None
        assert len(world.copied(AT)) == RECORDS - len(LOST)


def test_a_choice_is_told_as_spans_and_numbers() -> None:
    choice = RepairChoice(
        [3, 4, 7], {1: "standing", 2: "superseded", 5: "without_key", 6: "unproven"}, {6: "who knows"}
    )
    found, plan = decision_of(choice), planned_by_map(choice)
    assert found.copied == [Missing(3, 5, 2), Missing(7, 8, 1)]
    assert (found.standing, found.superseded, found.superseded_at) == (1, 1, [(2, 3)])
    assert sorted(found.refused.items()) == [
        ("a record without a key, which a compacted topic doesn't take", 1),
        ("who knows", 1),
    ]
    assert (plan.copied, plan.standing, plan.superseded, plan.superseded_at) == (3, 1, 1, ((2, 3),))

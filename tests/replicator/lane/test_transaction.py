"""What a lane asks before it commits, for each kind of transaction, and what follows the answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from replicator.lane import transaction
from replicator.lane.partition import Stopped, Waiting
from replicator.lane.policy import LivePolicy, Progress
from replicator.model.errors import Fatal, Unreachable
from replicator.planes.contract import Plane
from tests.replicator.lane.fakes.loads import A, B, U, each_poll, filled, held, numbered
from tests.replicator.lane.fakes.plane import FakePlane
from tests.replicator.lane.fakes.world import World

IDS = ("west.topic_ids", "east.topic_ids")
STEPS = ("plane.poll", "plane.seek", "plane.flush", "plane.send_positions", "plane.end", "plane.abort", *IDS)


def steps_before_each_end(world: World) -> list[list[str]]:
    """The lane's calls, transaction by transaction, without those that don't matter here."""
    found: list[list[str]] = [[]]
    for call in world.trace:
        if call in STEPS:
            found[-1].append(call)
        if call == "plane.end":
            found.append([])
    return found


def recreate(world: World) -> None:
    """The new topic has as many records as the old one had: only its id tells."""
    world.source.delete("t")
    world.source.create("t", 2)
    for at in (A, B):
        world.source.log(at).put(*numbered("new", 3))


def at_release(world: World, then: Callable[[], None]) -> None:
    """Let `then` happen once everything is copied and the lane was asked to stop."""

    def stop() -> None:
        assert world.driver is not None
        world.on.append(("plane.abort", then))
        world.driver.stop()

    world.on.append(("step.after_end_txn", lambda: world.on.append(("plane.poll", stop))))


def test_each_transaction_asks_for_ids_after_its_last_fetch_and_before_its_end() -> None:
    world = World()
    filled(world, 3)
    world.run()
    ended = [each for each in steps_before_each_end(world) if "plane.end" in each]
    assert len(ended) > 2
    claims, records, *_, release = ended
    assert claims == ["plane.send_positions", "plane.end"]
    assert records[-2:] == ["plane.send_positions", "plane.end"]
    fetched = max(index for index, step in enumerate(records) if step == "plane.poll")
    assert records.index("west.topic_ids") > fetched
    assert set(IDS) <= set(release[: release.index("plane.send_positions")])


def test_a_transaction_is_three_calls_into_the_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    inside = [False]

    def noted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def made_by_the_lane(*arguments: object) -> object:
            if inside[0]:
                return call(*arguments)  # the plane's own
            made.append(name)
            inside[0] = True
            try:
                return call(*arguments)
            finally:
                inside[0] = False

        return made_by_the_lane

    calls = [name for name in vars(Plane) if not name.startswith("_")]
    for name in calls:
        monkeypatch.setattr(FakePlane, name, noted(name, getattr(FakePlane, name)))
    world = World()
    filled(world, 7)
    world.run()
    assert len(calls) <= 13, "the least that each plane must do"
    assert re.fullmatch(
        "on_stall fence (positions )+commit seek ((poll )+flush commit )+((poll )+(commit )?)+abort commit close",
        " ".join(made),
    ), made


def test_records_without_their_position_are_never_committed() -> None:
    """Whatever forgets it: the next session would copy them again."""

    class Forgetful(LivePolicy):
        def progress(self, *of: Any) -> Progress:
            made = super().progress(*of)
            return Progress({at: position for at, position in made.positions.items() if at != A}, made.entries)

    world = World()
    filled(world, 3)
    error = world.run(policy=Forgetful())
    assert isinstance(error, Fatal)
    assert str(A) in str(error)
    assert world.copied(A) == world.copied(B) == []


def test_positions_that_move_past_markers_ask_for_ids_first() -> None:
    world = World()
    filled(world, 3)
    world.run()
    world.source.log(A).marker()
    world.trace.clear()
    world.run()
    assert world.position(A) == 4
    moved = steps_before_each_end(world)[1]
    assert set(IDS) <= set(moved[: moved.index("plane.send_positions")])


def test_a_topic_that_is_another_one_at_a_clean_stop_is_an_incident_and_its_position_is_released_as_it_stands() -> None:
    world = World()
    filled(world, 3)
    at_release(world, lambda: recreate(world))
    assert world.run() is None
    assert world.incidents() == dict.fromkeys((A, B), "source_topic_recreated")
    assert [world.position(at) for at in (A, B, U)] == [3, 3, 3]
    assert [world.owner(at) for at in (A, B, U)] == ["", "", ""]


def test_a_cluster_that_does_not_answer_at_a_clean_stop_keeps_no_position_from_being_released() -> None:
    world = World()
    filled(world, 3)

    def fail() -> None:
        raise Unreachable("cluster 'west' doesn't answer")

    at_release(world, lambda: world.on.append(("west.topic_ids", fail)))
    assert world.run() is None
    assert [world.owner(at) for at in (A, B, U)] == ["", "", ""]
    assert not world.told("not_released")


def test_topics_that_are_not_told_one_after_the_other_keep_no_position_from_being_released() -> None:
    world = World()
    filled(world, 3)

    def deny(topic: str) -> None:
        world.source.denied[topic] = {"Describe"}
        if topic == "t":
            world.on.append(("west.topic_ids", lambda: deny("u")))

    at_release(world, lambda: world.on.append(("west.topic_ids", lambda: deny("t"))))
    assert world.run() is None
    assert [world.owner(at) for at in (A, B, U)] == ["", "", ""]
    assert not world.told("not_released")


def test_a_keep_alive_commits_nothing_of_a_topic_that_is_another_one_and_everything_else() -> None:
    world = World(recommit_ms=1_000)
    filled(world, 3)
    kept: list[dict[str, int]] = []

    def later() -> None:
        world.advance(2.0)
        recreate(world)
        world.on.append(("plane.send_positions", lambda: kept.append({"incidents": len(world.incidents())})))

    world.on.append(("step.after_end_txn", lambda: world.on.append(("plane.poll", later))))
    assert world.run() is None
    assert kept[0] == {"incidents": 2}
    assert isinstance(world.states()[A], Stopped)
    assert world.told("recommitted")


@pytest.mark.parametrize("names_refused", [True, False])
def test_the_source_is_sought_again_after_an_abort_and_before_the_next_record(names_refused: bool) -> None:
    world = World()
    filled(world, 12)
    world.target.topics["t.copy"].refuses = frozenset({"t[0]-7"})
    world.target.topics["t.copy"].names_refused = names_refused
    assert world.run() is None
    steps = [call for call in world.trace if call in ("plane.poll", "plane.seek", "plane.abort")]
    after = [steps[index + 1] for index, step in enumerate(steps[:-1]) if step == "plane.abort"]
    assert len(after) > 1
    assert set(after) == {"plane.seek"}


def test_a_waiting_partition_is_not_read() -> None:
    world = World()
    filled(world, 3)
    world.source.denied["u"] = {"Read"}
    world.run()
    assert isinstance(world.states()[U], Waiting)
    assert world.position(U) <= 0
    assert world.position(A) == 3


def test_a_transaction_ends_early_where_its_records_have_many_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "RUNS_MAX", 2)
    world = World()
    for value in numbered("a", 8):
        world.source.log(A).put(value)
        world.source.log(A).marker()
    records = held(world)
    assert world.run() is None
    world.check_exact(records)
    sizes = [run["positions"] for run in world.told("committed")]
    assert len(sizes) >= 3, "three records a poll have three runs: no transaction has two polls"


def steady(world: World, count: int) -> None:
    """Records arrive two milliseconds apart from the first poll on."""
    began_s: list[float] = []

    def put() -> bool:
        began_s.append(world.time_s)
        while (end := world.source.log(A).end) < count and world.time_s - began_s[0] >= 0.002 * end:
            world.source.log(A).put(str(end))
        return world.source.log(A).end < count

    each_poll(world, put)


@pytest.mark.parametrize(("linger_ms", "least", "most"), [(0, 4, 16), (3, 4, 8), (30, 1, 2)])
def test_a_transaction_stays_open_for_its_linger_time_and_takes_with_few_polls_what_comes(
    linger_ms: int, least: int, most: int
) -> None:
    world = World()
    commit = world.flow.commit.model_copy(update={"linger_ms": linger_ms})
    world.flow = world.flow.model_copy(update={"commit": commit})
    steady(world, 16)
    assert world.run() is None
    world.check_exact(held(world))
    polls = [each.count("plane.poll") for each in steps_before_each_end(world) if "plane.flush" in each]
    assert least <= len(polls) <= most
    assert max(polls) <= 5 + linger_ms / 10

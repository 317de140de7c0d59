"""What a lane does whose map topic is deleted, comes back, or came back as another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.model import checkpoint
from replicator.model.checkpoint import Position, without_map
from replicator.model.partition import Partition
from replicator.offset_map.section import topic_id_bytes, topic_id_text
from tests.replicator.lane.fakes.loads import ALL, A, B, U, each_poll, filled, more
from tests.replicator.lane.fakes.map_truth import bases, check_map, stored
from tests.replicator.lane.fakes.plane import MAP
from tests.replicator.lane.fakes.world import World


def test_a_map_topic_that_was_made_again_is_told_and_the_map_begins_anew() -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    world.target.delete(MAP)
    world.target.create(MAP, 16)
    more(world)
    assert world.run("again") is None
    assert [event["name"] for event in world.told("incident")] == ["map_lost"]
    for at in ALL:
        assert bases(world, at) == [True]
        assert check_map(world, at).begin == 3


def test_a_map_topic_that_is_gone_is_told_and_copying_goes_on() -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    world.target.delete(MAP)
    more(world)
    assert world.run("again") is None
    assert [event["name"] for event in world.told("incident")] == ["map_lost"]
    assert [world.position(at) for at in ALL] == [6, 6, 6]


@pytest.mark.parametrize("change", [{"source_topic": "other"}, {"source_cluster": "other"}])
@pytest.mark.parametrize("gone", [False, True])
def test_what_a_position_of_another_flow_names_is_not_missed(change: dict[str, str], *, gone: bool) -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    position, at = stored(world, A), Partition("t.copy", 0)
    foreign = replace(position.evidence, map_topic_id=topic_id_text(bytes(16)), **change)  # type: ignore[arg-type]
    world.target.offsets[at] = checkpoint.written(Position(position.offset, foreign))
    if gone:
        world.target.delete(MAP)
        for other in (B, U):
            own = Position(stored(world, other).offset, without_map(stored(world, other)).evidence)
            world.target.offsets[Partition(f"{other.topic}.copy", other.partition)] = checkpoint.written(own)
    more(world)
    assert world.run("again") is None
    names = [event["name"] for event in world.told("incident") if event["topic"] in ("t", MAP)]
    assert "map_lost" not in names
    assert f"{next(iter(change))}_changed" in names
    assert stored(world, A).evidence.map_topic_id == topic_id_text(bytes(16)), "it is kept as it stands"


@pytest.mark.parametrize("indexed", [True, False])
def test_blocks_that_were_consolidated_are_not_lost(indexed: bool) -> None:
    world = World(maps=True)
    filled(world, 3)
    assert world.run() is None
    for log in world.target.topics[MAP].logs:
        log.delete_before(log.end)
    if indexed:
        topics = world.source.topics
        world.target.indexed = {(topic_id_bytes(topics[at.topic].topic_id), at.partition): 3 for at in ALL}
    more(world)
    assert world.run("again") is None
    assert [event["name"] for event in world.told("incident")] == ([] if indexed else ["map_lost"])
    for at in ALL:
        assert bases(world, at) == [not indexed]


def losing_map(world: World, *, made_again: bool) -> list[float]:
    """Delete the map's topic under a lane, and make it again, fit or not, a while later; when it did which."""
    at_s: list[float] = []

    def then() -> bool:
        if not at_s and world.position(A) == 3:
            world.target.delete(MAP)
            at_s.append(world.time_s)
            more(world)
        elif len(at_s) == 1 and world.position(A) == 6:
            at_s.append(world.time_s)
            if made_again:
                world.target.create(MAP, 16)
        elif len(at_s) == 2 and world.time_s > at_s[1] + 6:
            more(world)
            return False
        return True

    each_poll(world, then)
    return at_s


def test_a_map_topic_that_is_deleted_under_a_lane_holds_up_nothing() -> None:
    world = World(maps=True, idle_s_max=60)
    filled(world, 3)
    at_s = losing_map(world, made_again=False)
    assert world.run() is None
    assert [world.position(at) for at in ALL] == [9, 9, 9]
    assert at_s[1] - at_s[0] < 3, "it was copied at once"
    assert [event["name"] for event in world.told("incident")] == ["map_lost"]
    assert len(world.told("map_off")) == 1
    assert stored(world, A).evidence.map_topic_id == ""


def test_one_that_is_deleted_while_a_block_is_on_its_way_holds_it_up_for_a_moment() -> None:
    world = World(maps=True, idle_s_max=60)
    records = filled(world, 3)
    began_s: list[float] = []

    def delete() -> None:
        world.target.delete(MAP)
        began_s.append(world.time_s)
        world.on.append(("step.after_end_txn", lambda: began_s.append(world.time_s)))

    world.on.append(("plane.write_blocks", delete))
    assert world.run() is None
    world.check_exact(records)
    assert began_s[1] - began_s[0] < 5
    assert len(world.told("map_off")) == 1


def test_one_that_was_made_again_is_written_again_by_a_lane_that_runs() -> None:
    world = World(maps=True, idle_s_max=60)
    filled(world, 3)
    losing_map(world, made_again=True)
    assert world.run() is None
    assert [event["name"] for event in world.told("incident")] == ["map_lost"]
    assert len(world.told("map_on")) == 1
    for at in ALL:
        assert bases(world, at) == [True]
        assert (check_map(world, at).begin, check_map(world, at).passed) == (6, 9)


@pytest.mark.parametrize(("partitions", "configs"), [(1, {}), (16, {"retention.ms": "604800000"})])
def test_one_that_came_back_in_another_shape_is_not_written(partitions: int, configs: dict[str, str]) -> None:
    """As brokers make it with auto.create.topics.enable, whoever asks for it."""
    world = World(maps=True, idle_s_max=60)
    filled(world, 3)

    at_s: list[float] = []

    def then() -> bool:
        if not at_s and world.position(A) == 3:
            world.target.delete(MAP)
            world.target.create(MAP, partitions).configs.update(configs)
            at_s.append(world.time_s)
        elif at_s and world.time_s > at_s[0] + 5 * len(at_s):  # not at once: it may be written until it is looked at
            more(world)
            at_s.append(world.time_s)
        return len(at_s) < 3

    each_poll(world, then)
    assert world.run() is None
    assert [world.position(at) for at in ALL] == [9, 9, 9]
    assert all(not log.entries for log in world.target.topics[MAP].logs)
    assert [event["name"] for event in world.told("incident")] == ["map_lost"]
    assert len(world.told("map_off")) == 1


def test_a_lane_that_was_started_without_the_topic_writes_it_once_it_is_there() -> None:
    world = World(maps=True, idle_s_max=60)
    world.target.delete(MAP)
    filled(world, 3)
    made: list[float] = []

    def then() -> bool:
        if not made and world.position(A) == 3:
            world.target.create(MAP, 16)
            made.append(world.time_s)
        elif made and world.time_s > made[0] + 6:
            more(world)
            return False
        return True

    each_poll(world, then)
    assert world.run() is None
    assert not world.told("incident")
    assert (check_map(world, A).begin, check_map(world, A).passed) == (3, 6)

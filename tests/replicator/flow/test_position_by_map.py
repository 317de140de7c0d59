"""The position that the offset map gives is the one that the flow had, or none is given: on simulated clusters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import cast

import pytest

from replicator.flow.position_by_map import position_by_map
from replicator.kafka.topic_reader import TopicReader
from replicator.model.partition import Partition
from replicator.state.decisions import NotDecided, Objection
from tests.replicator.lane.fakes.cluster import FakeCluster
from tests.replicator.lane.fakes.loads import ALL, A, each_poll, filled, more, numbered
from tests.replicator.lane.fakes.log import Fate
from tests.replicator.lane.fakes.map_truth import target_of
from tests.replicator.lane.fakes.plane import MAP
from tests.replicator.lane.fakes.world import World


class MapReader:
    """What is read of the map topic."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def partition_count(self, topic: str) -> int:
        return len(self._cluster.topics[topic].logs) if topic in self._cluster.topics else 0

    def bounds(self, partitions: Collection[Partition]) -> dict[Partition, tuple[int, int]]:
        return {at: (self._cluster.log(at).start, self._cluster.log(at).stable) for at in partitions}

    def each(
        self,
        bounds: Mapping[Partition, tuple[int, int]],
        take: Callable[[Partition, int, tuple[bytes | None, bytes | None]], None],
    ) -> dict[Partition, Exception]:
        for at, (low, high) in bounds.items():
            for offset, entry in self._cluster.log(at).committed():
                if low <= offset < high:
                    take(at, offset, (None, entry.block))
        return {}


def by_map(world: World, at: Partition, moved: tuple[int, int] = (-1, -1)) -> int:
    reader, topic_id = cast(TopicReader, MapReader(world.target)), world.source.topics[at.topic].topic_id
    return position_by_map(reader, world.target, MAP, topic_id, (at, target_of(at)), moved)


def unproven(world: World, at: Partition = A) -> str:
    with pytest.raises(NotDecided) as refused:
        by_map(world, at)
    assert refused.value.reason is Objection.NOT_PROVEN
    return refused.value.detail


def copied(world: World | None = None) -> World:
    world = world or World(maps=True)
    filled(world)
    assert world.run() is None
    return world


def test_it_is_the_position_that_the_flow_had_over_restarts_markers_and_aborts() -> None:
    world = copied()
    world.source.log(A).marker()
    for owner in ("other", "third"):
        more(world)
        world.source.log(A).marker()
        assert world.run(owner) is None
    world.target.log(target_of(A)).put("never was", fate=Fate.ABORTED)
    world.target.log(target_of(A)).marker()
    for at in ALL:
        assert by_map(world, at) == world.position(at) > 0


def test_at_every_moment_of_a_flow_it_is_the_position_or_none() -> None:
    world, found = World(maps=True), list[int]()
    filled(world)
    left = list(range(6))

    def then() -> bool:
        if world.position(A) > 0:
            try:
                found.append(by_map(world, A))
            except NotDecided:
                found.append(-1)
            assert found[-1] in (-1, world.position(A))
        if left and world.time_s > 1_002 + 2 * (6 - len(left)):
            left.pop()
            more(world)
        return bool(left)

    each_poll(world, then)
    assert world.run() is None
    assert len({each for each in found if each > 0}) > 3


def test_a_position_that_a_decision_has_moved_since_leaves_it_open() -> None:
    """The map still ends where the target does, at a position that somebody has given up."""
    world = copied()
    assert by_map(world, A, (1, 0)) == 8
    for moved in ((1, 1 << 60), (2, 0)):
        with pytest.raises(NotDecided, match="moved by a decision since"):
            by_map(world, A, moved)


def test_a_record_behind_the_last_copy_leaves_it_open() -> None:
    world = copied()
    world.target.log(target_of(A)).put("somebody's")
    assert "has a record at offset" in unproven(world)


def test_copies_that_the_map_does_not_have_leave_it_open() -> None:
    world = copied()
    world.target.denied[MAP] = {"Write"}
    more(world)
    assert world.run("again") is None
    assert world.position(A) == 11
    assert "has a record at offset" in unproven(world)


def test_an_open_transaction_leaves_it_open() -> None:
    world = copied()
    world.target.log(target_of(A)).put("not yet", fate=Fate.OPEN)
    assert "a transaction is open there" in unproven(world)


@pytest.mark.parametrize("kept", [0, 3, 7])
def test_a_target_that_has_lost_the_last_copy_leaves_it_open(kept: int) -> None:
    world = copied()
    world.target.log(target_of(A)).truncate(kept)
    assert "map's last copy" in unproven(world)


def test_a_last_copy_that_was_aborted_after_all_leaves_it_open() -> None:
    world = copied()
    log = world.target.log(target_of(A))
    last = next(entry for _, entry in reversed(log.all()) if entry.fate is Fate.COMMITTED)
    last.fate = Fate.ABORTED
    assert "no committed record" in unproven(world)
    world.target.topics["t.copy"].compacted = True
    assert "no committed record" in unproven(world), "it is there"
    last.fate = Fate.MARKER
    assert by_map(world, A) == 8, "compaction takes tombstones, even if they are the last record"


def test_without_a_map_nothing_is_known() -> None:
    world = copied(World(maps=True))
    assert "has nothing of" in unproven(world, Partition("t", 7))
    world.target.delete(MAP)
    assert "0 partitions" in unproven(world)
    world.target.create(MAP, 16)
    assert "has nothing of" in unproven(world)


def test_what_stands_in_the_map_topic_and_is_no_block_is_passed_over() -> None:
    world = copied()
    world.target.log(Partition(MAP, 0)).put(*numbered("somebody's", 3))
    assert by_map(world, A) == 8

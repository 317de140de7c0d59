"""Whether a job may begin: who holds a flow is told by its positions, whatever the source says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from replicator.jobs.job_generation import check_free_now
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.checkpoint import NOBODY, Evidence, Position
from replicator.model.errors import TakenOver
from replicator.model.partition import LogEnds, Partition
from replicator.state.generation import Generation, Kind, Phase
from tests.replicator.jobs.test_range_policy import AT
from tests.replicator.lane.fakes.cluster import FakeCluster
from tests.replicator.lane.fakes.world import World

TO = Partition("t.copy", 0)


def check(source: FakeCluster, monkeypatch: pytest.MonkeyPatch, owner: str = "a worker", **given: bool) -> None:
    """Check a live flow of one partition, whose position was reached under leader epoch 3."""
    evidence = Evidence(
        generation=1,
        owner=owner,
        source_topic="t",
        source_cluster="",
        source_topic_id=source.topics["t"].topic_id,
        target_topic_id="",
        leader_epoch=3,
    )
    positions = {TO: Position(6, evidence)}
    monkeypatch.setattr(offset_reader, "positions", lambda flow, targets, *, stable: positions)
    target = {"t.copy": TopicInfo("t.copy", "copy-id", 1, {})}
    clients: Any = SimpleNamespace(source=source, plane=SimpleNamespace(list_target=lambda infos: target))
    live = Generation(1, Phase.OPEN, 1, partitions={"t": 1})
    infos = {"t": TopicInfo("t", source.topics["t"].topic_id, 1, {})}
    check_free_now(World().flow, clients, infos, live, Kind.REPAIR, take_over=given.get("take_over", False))


def old_leader() -> FakeCluster:
    """The source, whose only partition an old leader tells of: its log ends below the position."""
    source = FakeCluster("west")
    source.create("t", 1)
    source.by_old_leaders[AT] = LogEnds(source.topics["t"].topic_id, 0, 2, 2, leader_epoch=2)
    return source


def away() -> FakeCluster:
    """The source, whose only partition has no leader."""
    source = FakeCluster("west")
    source.create("t", 1)
    source.log(AT).unreachable = True
    return source


@pytest.mark.parametrize("make", [old_leader, away])
def test_a_live_worker_holds_its_partitions_whatever_the_source_says(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TakenOver, match="a worker"):
        check(make(), monkeypatch)
    check(make(), monkeypatch, take_over=True)
    check(make(), monkeypatch, NOBODY)

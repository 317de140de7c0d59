"""Of which partitions a map is read where a cluster doesn't answer about some of them."""

from __future__ import annotations

from typing import Any

import pytest

from replicator.kafka.admin import ClusterAdmin
from replicator.kafka.offset_questions import EARLIEST, LATEST, STABLE
from replicator.model.checkpoint import Evidence, Position
from replicator.model.errors import NotAllowed, Retriable
from replicator.model.partition import Partition
from replicator.offset_map.section import topic_id_bytes
from replicator.state.claims import Claim, Claims
from replicator.translation import partition_maps
from replicator.translation.partition_maps import MappedPartition, Untold, read_partitions
from tests.replicator.group_sync.test_source_ends import INVOICES, MORE, ORDERS, FakeTopics, id_of, make_flow

pytestmark = pytest.mark.tier("default")


def position(at: Partition) -> Position:
    evidence = Evidence(
        generation=1, owner="me", source_topic=at.topic, source_cluster="cluster of x",
        source_topic_id=id_of(at.topic), target_topic_id=id_of(at.topic), leader_epoch=4,
    )  # fmt: skip
    return Position(5, evidence)


class Clusters:
    """Both clusters of a flow that has copied all of two topics, of which the map says nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.flow = make_flow(rename="{topic}")
        self.here, self.there = FakeTopics(orders=1, invoices=2), FakeTopics(orders=1, invoices=2)
        self.state = self
        sides = ((self.flow.source, self.here), (self.flow.target, self.there))
        self.source, self.target = (
            ClusterAdmin(cluster, topics, request_timeout_ms=1000, connect_timeout_ms=1000)  # type: ignore[arg-type]
            for cluster, topics in sides
        )

        def stands(flow: object, ats: Any) -> dict[Partition, Position]:
            return {at: position(at) for at in ats}

        monkeypatch.setattr("replicator.kafka.offset_reader.positions", stands)
        monkeypatch.setattr(partition_maps, "place_of_map", lambda flow, **how: None)
        monkeypatch.setattr(partition_maps, "_looked_up", lambda flow, place, known: {})
        monkeypatch.setattr(partition_maps, "read_sections", lambda flow, place, own: None)

    def connect(self) -> Any:
        return type("Here", (), {"cluster_id": "cluster of x"}), None

    def selected(self) -> set[str]:
        return {"orders", "invoices"}

    def possible_targets(self, sources: Any) -> set[str]:
        return set(sources)

    def list_source(self, *, configs: bool) -> Any:
        return self.source.topics(self.selected())

    def list_target(self, sources: Any) -> Any:
        return self.target.topics(sources)

    def claims_if_any(self) -> Claims:
        ats = (ORDERS, INVOICES, MORE)
        return Claims({at: Claim(at, at, "s", "t", 0, 0, 1, "me", 1) for at in ats}, ())

    def read(self, *, each: bool) -> tuple[set[Partition], dict[Partition, tuple[str, str]]]:
        """Return the partitions of which the map tells, and why it doesn't of the others."""
        found = read_partitions(self.flow, clusters=self, each=each).partitions  # type: ignore[arg-type]
        told = {at for at, it in found.items() if isinstance(it, MappedPartition)}
        return told, {at: (it.problem, it.said) for at, it in found.items() if isinstance(it, Untold)}


def test_under_which_leader_epoch_a_position_was_reached_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters: Any = Clusters(monkeypatch)
    found = read_partitions(clusters.flow, clusters=clusters).partitions[ORDERS]
    assert isinstance(found, MappedPartition)
    assert (found.leader_epoch, found.key) == (4, (topic_id_bytes(id_of("orders")), 0))


@pytest.mark.parametrize("side", ["here", "there"])
def test_a_partition_without_a_leader_keeps_no_other_from_being_read(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = Clusters(monkeypatch)
    assert clusters.read(each=True) == ({ORDERS, INVOICES, MORE}, {})
    getattr(clusters, side).leaderless.add(MORE)
    assert clusters.read(each=True) == (
        {ORDERS, INVOICES},
        {MORE: ("unanswered", "invoices[1] has no leader")},
    )
    with pytest.raises(Retriable):
        clusters.read(each=False)


@pytest.mark.parametrize("side", ["here", "there"])
def test_a_topic_that_may_not_be_seen_keeps_no_other_from_being_read(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = Clusters(monkeypatch)
    getattr(clusters, side).denied.add("invoices")
    why = "unanswered", "no Describe on invoices"
    assert clusters.read(each=True) == ({ORDERS}, {INVOICES: why, MORE: why})
    with pytest.raises(NotAllowed):
        clusters.read(each=False)


@pytest.mark.parametrize("each", [True, False])
def test_each_offset_is_asked_for_once(each: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order: the log's end behind the offset below which copies are visible, and log starts at last."""
    clusters, every = Clusters(monkeypatch), frozenset({ORDERS, INVOICES, MORE})
    clusters.read(each=each)
    assert clusters.there.asked == [(STABLE, every), (LATEST, every), (EARLIEST, every)]
    assert clusters.here.asked == [(LATEST, every), (EARLIEST, every)]


def test_a_partition_of_which_the_target_tells_nothing_is_not_asked_for_at_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = Clusters(monkeypatch)
    clusters.there.leaderless.add(MORE)
    clusters.read(each=True)
    assert clusters.here.asked == [(it, frozenset({ORDERS, INVOICES})) for it in (LATEST, EARLIEST)]

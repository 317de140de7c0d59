"""A backfill of partitions with somebody else's commit in place of the position: nothing tells what is copied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from replicator.config import Config
from replicator.flow.listing import Listing
from replicator.jobs import backfill
from replicator.jobs.backfill import Backfill, BackfillRequest
from replicator.jobs.partition_state import PartitionOffsets
from replicator.jobs.ranges import plan
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.checkpoint import Evidence, Position, Unreadable
from replicator.model.errors import Incident
from replicator.model.partition import Committed, Partition
from tests.replicator.lane.fakes.cluster import FakeCluster
from tests.replicator.lane.fakes.world import World

AT, OTHER = Partition("t", 0), Partition("t", 1)
RECORDS = 3
OWN = Evidence(generation=1, owner="", source_topic="t", source_cluster="", source_topic_id="", target_topic_id="")


def stray(offset: int) -> Unreadable:
    return Unreadable(Committed(offset, ""), "position_unreadable", "a consumer's")


class Clients:
    """Stands in for what a backfill asks before it begins: a flow of one partition that was never run."""

    def __init__(self) -> None:
        self.source = FakeCluster("west")
        self.source.create("t", 1)
        self.source.log(AT).put(*(f"r{number}" for number in range(RECORDS)))
        self.plane = SimpleNamespace(list_target=lambda infos: {"t.copy": TopicInfo("t.copy", "copy-id", 1, {})})
        self.state = SimpleNamespace(control_if_any=lambda: None, claims_if_any=lambda: None)

    def __call__(self, flow: object) -> Clients:
        return self

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *error: object) -> None:
        pass


@pytest.mark.parametrize("offset", [RECORDS - 1, RECORDS, RECORDS + 5])
def test_a_backfill_says_so_and_not_that_everything_is_copied(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clients, listing = Clients(), Listing({"t": TopicInfo("t", "t-id", 1, {})})
    monkeypatch.setattr(backfill, "JobClients", clients)
    monkeypatch.setattr(backfill, "Setup", lambda *given: SimpleNamespace(list_only=lambda: listing))
    monkeypatch.setattr(
        offset_reader, "positions", lambda flow, targets, *, stable: dict.fromkeys(targets, stray(offset))
    )
    observer: Any = None
    job = Backfill(World().flow, Config.model_construct(), BackfillRequest(), observer, structlog.get_logger())
    with pytest.raises(Incident) as found:
        job.check()
    assert (found.value.name, found.value.offset) == ("position_unreadable", offset)


@pytest.mark.parametrize("own", [True, False])
def test_a_commit_that_came_while_it_was_copied_is_told(own: bool) -> None:
    before = PartitionOffsets(0, RECORDS, log_end=RECORDS).at(Position(0, OWN))
    after = before.at(Position(RECORDS, OWN) if own else stray(RECORDS + 5))
    outcome = backfill._outcome(plan({AT: before}, 10), AT, before, after, None)
    assert outcome.done is own
    assert (outcome.incident is None) is own

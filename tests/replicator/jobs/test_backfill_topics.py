"""Which topics a backfill copies: those that the flow does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from replicator.config import Config
from replicator.flow.listing import Listing
from replicator.jobs import backfill
from replicator.jobs.backfill import Backfill, BackfillRequest
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.errors import ConfigError
from replicator.model.partition import Partition
from replicator.state.claims import Claim, Claims
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Phase
from tests.replicator.lane.fakes.cluster import FakeCluster
from tests.replicator.lane.fakes.world import World

T, U, V = Partition("t", 0), Partition("u", 0), Partition("v", 0)


class Clients:
    """Stands in for what a backfill asks before it begins: `t` was listed first, `u` was copied later, `v` is new."""

    def __init__(self) -> None:
        self.source = FakeCluster("west")
        for at in (T, U, V):
            self.source.create(at.topic, 1)
            self.source.log(at).put("r0", "r1")
        control = Control({1: Generation(1, Phase.CLOSED, 1, partitions={"t": 1})})
        copy = Partition("u.copy", 0)
        claims = Claims({copy: Claim(copy, U, "u-id", "x", 0, 0, 1, "", 1)}, ())
        self.plane = SimpleNamespace(list_target=lambda infos: {})
        self.state = SimpleNamespace(control_if_any=lambda: control, claims_if_any=lambda: claims)

    def __call__(self, flow: object) -> Clients:
        return self

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def asked(monkeypatch: pytest.MonkeyPatch, new_topics: str, *topics: str) -> set[Partition]:
    """Return the partitions that the backfill would copy."""
    clients = Clients()
    listing = Listing({it.topic: TopicInfo(it.topic, f"{it.topic}-id", 1, {}) for it in (T, U, V)})
    monkeypatch.setattr(backfill, "JobClients", clients)
    monkeypatch.setattr(backfill, "Setup", lambda *given: SimpleNamespace(list_only=lambda: listing))
    monkeypatch.setattr(offset_reader, "positions", lambda flow, targets, *, stable: {})
    flow = World().flow.model_copy(update={"new_topics": new_topics})
    request, observer = BackfillRequest(topics=frozenset(topics)), None
    job: Any = Backfill(flow, Config.model_construct(), request, observer, structlog.get_logger())  # type: ignore[arg-type]
    job.check()
    return set(job._bounds)


def test_of_new_topics_that_are_ignored_those_count_that_were_copied_before(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "copy") == {T, U, V}
    assert asked(monkeypatch, "ignore") == {T, U}
    assert asked(monkeypatch, "ignore", "u") == {U}
    with pytest.raises(ConfigError, match="v"):
        asked(monkeypatch, "ignore", "v")

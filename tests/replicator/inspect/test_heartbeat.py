"""When the newest heartbeat was written: also where the leader doesn't tell of it yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from replicator.flow.topic_rules import ListedTopic
from replicator.flow.topics import ControlPlane
from replicator.inspect import heartbeat
from replicator.inspect.heartbeat import newest_heartbeat_ms
from replicator.kafka.admin import AddressedPartition, ClusterAdmin
from replicator.model import names
from replicator.model.errors import Unreachable
from tests.replicator.flow.fakes import config, topic

NOW_MS = 1_700_000_000_000


@dataclass
class FakeTarget:
    """Answers in this order, then as at last; how often it was asked."""

    answers: list[int]
    end: int = 5
    asked: int = field(default=0)

    def latest_records(self, ats: list[AddressedPartition]) -> dict[AddressedPartition, tuple[int, int]]:
        self.asked += 1
        found = self.answers[min(self.asked, len(self.answers)) - 1]
        return dict.fromkeys(ats, (4 if found > 0 else -1, found))

    def offsets(self, ats: list[AddressedPartition], *, end: bool) -> dict[AddressedPartition, int]:
        return dict.fromkeys(ats, self.end if end else 0)

    def until(self, condition: Callable[[], bool]) -> bool:
        return any(condition() for _ in range(4))

    def newest_ms(self) -> int | None:
        flow = config("heartbeat: 200ms").flows["f"]
        name = names.heartbeats_copy(flow.name)
        clusters = cast(ControlPlane, SimpleNamespace(target=cast(ClusterAdmin, self)))
        return newest_heartbeat_ms(flow, clusters, {name: ListedTopic(topic(name, 1))})


@pytest.mark.parametrize("unknown", [0, 1, 3])
def test_one_that_the_leader_does_not_tell_of_yet_is_asked_about_again(unknown: int) -> None:
    """The leader does so until the record is replicated."""
    assert FakeTarget([-1] * unknown + [NOW_MS]).newest_ms() == NOW_MS


def test_there_is_none_where_the_log_is_empty_or_says_so_for_long() -> None:
    empty, silent = FakeTarget([-1], end=0), FakeTarget([-1])
    assert (empty.newest_ms(), silent.newest_ms()) == (None, None)
    assert (empty.asked, silent.asked) == (1, 5)


def test_a_replica_that_is_away_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "REPLICATED_S", -1.0)
    silent = FakeTarget([-1])
    assert (silent.newest_ms(), silent.asked) == (None, 2)


def test_there_is_none_where_it_can_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FakeTarget, ats: object) -> None:
        raise Unreachable("away")

    monkeypatch.setattr(FakeTarget, "latest_records", fail)
    assert FakeTarget([NOW_MS]).newest_ms() is None

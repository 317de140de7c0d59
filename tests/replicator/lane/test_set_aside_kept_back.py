"""A record that is to be set aside and can't be read now, or isn't there any more, holds up no other partition."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from replicator.lane.decisions import AGAIN_S
from replicator.model.commands import Command
from replicator.planes.contract import UnreadRecord
from replicator.planes.records import record_reader
from replicator.planes.records.record_reader import LogReader
from replicator.state.occurrences import Ending
from tests.replicator.kafka.test_producer import make_flow
from tests.replicator.lane.fakes.loads import each_poll
from tests.replicator.lane.fakes.reader import FakeReader
from tests.replicator.lane.fakes.world import FakeConnections, World
from tests.replicator.lane.test_decisions import A, B, closed, set_aside, with_aside
from tests.replicator.planes.fakes import FakeConsumer, Message


def decided() -> World:
    """An operator has decided to set aside the record that stops a partition."""
    world = with_aside()
    world.run()
    world.resolve(Command.SET_ASIDE, A)
    return world


def test_a_leader_that_is_away_holds_up_its_own_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    world = decided()
    world.idle_s_max = 3 * AGAIN_S
    asked_s, copied_s = list[float](), list[float]()

    class Silent(FakeConsumer):
        """The leader is back when it was asked in vain twice."""

        def consume(self, limit: int, timeout: float) -> list[Any]:
            if len(world.told("decision_postponed")) > 1:
                return [Message(*A, 3, payload=b"t[0]-3")]
            if not asked_s:
                asked_s.append(world.time_s)
                world.source.log(B).put("beside")
            world.time_s += timeout
            return []

    def copied() -> bool:
        copied_s.extend([world.time_s] if "beside" in world.copied(B) else [])
        return not copied_s

    flow = make_flow()
    reader = LogReader(flow, flow.source, threading.Event())
    monkeypatch.setattr(record_reader, "Consumer", Silent)
    monkeypatch.setattr(record_reader, "time", SimpleNamespace(monotonic=lambda: world.time_s))
    monkeypatch.setattr(FakeConnections, "source_records", property(lambda self: reader))
    each_poll(world, copied)
    world.run("another")
    assert copied_s[0] - asked_s[0] < 5
    set_aside(world)


def test_a_batch_that_is_too_large_to_be_read_leaves_a_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    world = decided()
    monkeypatch.setattr(FakeReader, "record_now", lambda self, at, offset: UnreadRecord("larger than what is read"))
    world.run("another")
    (headers,) = world.target.aside_headers
    assert headers["eos.kept"] == b"stub"
    it = closed(world)
    assert it.closing is not None
    assert (it.closing.effect, it.moved, it.closing.kept) == (Ending.SET_ASIDE, (3, 4), "stub")
    assert world.position(A) == 6

"""A record that is to be set aside and can't be read now, or isn't there any more, holds up no other partition."""

from __future__ import annotations

import threading
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from replicator.lane.decisions import AGAIN_S
from replicator.model.commands import Command
from replicator.model.partition import Partition
from replicator.planes.contract import UnreadRecord, WholeRecord
from replicator.planes.records import record_reader
from replicator.planes.records.record_reader import LogReader
from replicator.state.decisions import decide
from replicator.state.occurrences import Ending
from tests.replicator.kafka.test_producer import make_flow
from tests.replicator.lane.fakes.loads import each_poll
from tests.replicator.lane.fakes.reader import FakeReader
from tests.replicator.lane.fakes.world import FakeConnections, World
from tests.replicator.lane.test_decisions import ASIDE, A, B, closed, lose, set_aside, with_aside
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


def test_what_retention_has_taken_is_another_incident_which_can_be_decided() -> None:
    world = decided()
    world.on.append(("west.record", lambda: lose(world, 5)))
    world.run("another")
    assert world.incidents() == {A: "source_records_gone"}
    (gone,) = world.occurrences("source_records_gone")
    world.write(decide(gone.id, Command.SKIP, [gone], world.state.current.decisions, by="ann", why="w", now_ms=1))
    world.run("a third")
    assert world.position(A) == 10
    moved = {it.name: it.moved for it in world.occurrences() if not it.is_open}
    assert moved == {"source_records_gone": (3, 5), "record_refused": None}
    assert world.target.log(ASIDE).committed() == []


def test_an_offset_without_a_record_is_not_asked_for_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that can't be decoded may begin in a gap: then the partition stops there again."""
    world, asked_s, read = decided(), list[float](), FakeReader.record_now
    world.idle_s_max = AGAIN_S

    def record(self: FakeReader, at: Partition, offset: int) -> WholeRecord | None:
        asked_s.append(world.time_s)
        return None if len(asked_s) < 3 else read(self, at, offset)

    monkeypatch.setattr(FakeReader, "record_now", record)
    world.run("another")
    set_aside(world)
    assert all(later - before >= AGAIN_S for before, later in pairwise(asked_s))

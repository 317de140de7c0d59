"""What only a lane can find stands in the claims topic as long as it stops the partition, and holds nothing else up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from replicator.model.errors import Abortable
from replicator.model.partition import Committed, Partition
from replicator.state.claims import read_claims
from replicator.state.occurrences import Ending, Occurrence
from tests.replicator.lane.fakes.loads import filled, numbered
from tests.replicator.lane.fakes.plane import FakePlane
from tests.replicator.lane.fakes.world import World

A, B, COPY = Partition("t", 0), Partition("t", 1), Partition("t.copy", 0)


def occurrences(world: World) -> tuple[Occurrence, ...]:
    return read_claims(world.target.claims).occurrences


def open_ones(world: World) -> list[Occurrence]:
    return [it for it in occurrences(world) if it.is_open]


def refusing() -> World:
    world = World()
    filled(world, 6)
    world.target.topics["t.copy"].refuses = frozenset({"t[0]-3"})
    return world


def test_a_refused_record_is_reported_until_it_is_copied() -> None:
    world = refusing()
    world.run()
    (it,) = open_ones(world)
    assert (it.target, it.source, it.name, it.offset, it.end) == (COPY, A, "record_refused", 3, 4)
    assert "found by me" in it.incident.detail
    world.target.topics["t.copy"].refuses = frozenset()
    world.on.append(("plane.seek", lambda: passed.extend(open_ones(world))))
    passed: list[Occurrence] = []
    world.run("another")
    assert passed == [it], "the partition is admitted, and nothing of it is copied yet"
    (closed,) = occurrences(world)
    assert closed.closing is not None
    assert (closed.id, closed.closing.effect, closed.closing.by, closed.moved) == (it.id, Ending.GONE, "another", None)
    assert world.copied(A) == numbered("t[0]", 6)


def test_a_cause_that_is_still_there_keeps_its_id() -> None:
    world = refusing()
    world.run()
    (before,) = open_ones(world)
    for owner in ("another", "and another"):
        world.run(owner)
        assert occurrences(world) == (before,)


def test_a_foreign_record_is_reported_with_the_first_commit_of_the_lane() -> None:
    world = World()
    filled(world, 6)
    world.run()
    world.target.topics["t.copy"].logs[0].put("somebody's")
    world.run("another")
    assert [(it.name, it.offset) for it in open_ones(world)] == [("target_has_later_records", 6)]


def test_what_both_clusters_show_is_reported_too_and_brought_up_to_date() -> None:
    world = World()
    filled(world, 6)
    world.run()
    log = world.source.log(A)
    log.put("unread-0", "unread-1", "unread-2", "unread-3")
    log.delete_before(8)
    world.run("another")
    (it,) = open_ones(world)
    assert (it.name, it.offset, it.end) == ("source_records_gone", 6, 8)
    log.delete_before(9)
    world.run("a third")
    (again,) = occurrences(world)
    assert (again.id, again.found_by, again.end) == (it.id, "another", 9)
    assert "6 to 8" in again.detail


def test_one_whose_cause_has_gone_is_closed_when_its_partition_is_admitted() -> None:
    world = World()
    filled(world, 6)
    world.run()
    world.target.topics["t.copy"].logs[0].put("somebody's")
    world.run("another")
    world.target.topics["t.copy"].logs[0].entries.pop()
    world.run("a third")
    (closed,) = occurrences(world)
    assert closed.closing is not None
    assert closed.closing.effect is Ending.GONE


def test_a_report_that_can_not_be_written_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world, send = refusing(), FakePlane.send_positions

    def refuse(
        plane: FakePlane, offsets: Mapping[Partition, Committed], entries: Sequence[tuple[bytes, bytes]]
    ) -> None:
        if any(key.startswith(b"occurrence/") for key, _ in entries):
            raise Abortable("the claims topic takes nothing")
        send(plane, offsets, entries)

    monkeypatch.setattr(FakePlane, "send_positions", refuse)
    world.run()
    assert world.copied(A) == numbered("t[0]", 3)
    assert world.copied(B) == numbered("t[1]", 6)
    assert world.incidents() == {A: "record_refused"}
    assert len(world.told("restarted")) == 1

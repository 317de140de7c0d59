"""What only a lane can find stands in the claims topic as long as it stops the partition, and holds nothing else up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import pytest

from replicator.lane.positions import LanePositions
from replicator.lane.start import LaneStart
from replicator.model.errors import Abortable, Incident, UnknownOutcome
from replicator.model.partition import Committed, Partition
from replicator.state.claims import read_claims
from replicator.state.occurrences import Ending, Occurrence
from tests.replicator.lane.fakes.loads import each_poll, filled, numbered
from tests.replicator.lane.fakes.log import FakeEntry, Fate
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
    world.idle_s_max = 20  # until it is tried again
    world.run()
    assert world.copied(A) == numbered("t[0]", 3)
    assert world.copied(B) == numbered("t[1]", 6)
    assert world.incidents() == {A: "record_refused"}
    assert len(world.told("restarted")) == 1


def gone(others: Collection[Partition] = (B, Partition("u", 0))) -> World:
    """Records of `A` are gone that were not copied; `others` have some, too."""
    world = World()
    for at in (A, *others):
        world.source.log(at).put(*numbered(str(at), 6))
    world.run()
    log = world.source.log(A)
    log.put(*numbered("unread", 4))
    log.delete_before(8)
    return world


def test_a_report_whose_commit_had_an_unknown_outcome_is_written_by_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, send, failed = gone(), FakePlane.send_positions, list[float]()

    def fail_once(
        plane: FakePlane, offsets: Mapping[Partition, Committed], entries: Sequence[tuple[bytes, bytes]]
    ) -> None:
        if not failed and any(key.startswith(b"occurrence/") for key, _ in entries):
            failed.append(world.time_s)
            raise UnknownOutcome("its coordinator has moved")
        send(plane, offsets, entries)

    monkeypatch.setattr(FakePlane, "send_positions", fail_once)
    each_poll(world, lambda: world.time_s < failed[0] + 40)
    world.run("another")
    assert len(failed) == 1
    assert world.trace.count("plane.fence") == 3, "a failed start, and the one after it"
    assert [(it.name, it.offset, it.source) for it in open_ones(world)] == [("source_records_gone", 6, A)]


def test_a_report_is_written_though_a_right_of_another_topic_has_kept_back_its_first_commit() -> None:
    world = gone(others=(B,))
    world.target.denied["u.copy"] = {"Read"}  # nothing was copied to it: nothing but the commit needs that right
    world.run("another")
    assert [(it.name, it.source) for it in open_ones(world)] == [("source_records_gone", A)]
    assert world.told("restarted") == []


@pytest.mark.tier("default")
def test_a_report_survives_a_topic_that_is_found_to_be_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is found before anything is sent."""
    world = World(recommit_ms=1_000)
    filled(world, 6)
    lane, _ = world.lane()
    incident = Incident("record_refused", "planned", topic="t", partition=0, offset=6)
    told_s: list[float] = []
    before_all = LaneStart.before_all

    def note(start: LaneStart, positions: LanePositions) -> None:
        before_all(start, positions)
        if not told_s:
            told_s.append(world.time_s)
            start.stop(A, incident)
            world.source.delete("u")
            world.source.create("u")

    monkeypatch.setattr(LaneStart, "before_all", note)
    each_poll(world, lambda: not told_s or world.time_s < told_s[0] + 5)
    world.idle_s_max = 1
    lane.drive()
    assert {(it.name, it.source) for it in open_ones(world)} == {
        ("record_refused", A),
        ("source_topic_recreated", Partition("u", 0)),
    }
    assert world.trace.count("plane.fence") == 1


@pytest.mark.tier("default")
def test_a_report_that_fails_again_and_again_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    world, send, failed = gone(), FakePlane.send_positions, list[float]()

    def refuse(
        plane: FakePlane, offsets: Mapping[Partition, Committed], entries: Sequence[tuple[bytes, bytes]]
    ) -> None:
        if any(key.startswith(b"occurrence/") for key, _ in entries):
            failed.append(world.time_s)
            raise Abortable("the claims topic takes nothing")
        send(plane, offsets, entries)

    monkeypatch.setattr(FakePlane, "send_positions", refuse)
    each_poll(world, lambda: world.time_s < failed[0] + 250)
    world.run("another")
    pauses_s = [round(after - before) for before, after in pairwise(failed)]
    assert pauses_s == [30, 60, 120]


@pytest.mark.tier("default")
def test_what_could_not_be_reported_and_has_gone_since_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    world, send, failed = gone(), FakePlane.send_positions, list[float]()
    log = world.source.log(A)
    start, entries_ = log.start, list(log.entries)

    def fail_once(
        plane: FakePlane, offsets: Mapping[Partition, Committed], entries: Sequence[tuple[bytes, bytes]]
    ) -> None:
        if not failed and any(key.startswith(b"occurrence/") for key, _ in entries):
            failed.append(world.time_s)
            log.start, log.entries = 6, [FakeEntry("back", Fate.COMMITTED)] * (start - 6) + entries_
            raise UnknownOutcome("its coordinator has moved")
        send(plane, offsets, entries)

    monkeypatch.setattr(FakePlane, "send_positions", fail_once)
    each_poll(world, lambda: world.time_s < failed[0] + 40)
    world.run("another")
    assert world.position(A) == 10
    assert occurrences(world) == ()

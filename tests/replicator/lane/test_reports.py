"""What only a lane can find stands in the claims topic as long as it stops the partition, and holds nothing else up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from replicator.model.errors import Abortable
from replicator.model.partition import Committed, Partition
from replicator.state.claims import Report, read_claims
from tests.replicator.lane.fakes.loads import filled, numbered
from tests.replicator.lane.fakes.plane import FakePlane
from tests.replicator.lane.fakes.world import World

A, B, COPY = Partition("t", 0), Partition("t", 1), Partition("t.copy", 0)


def reports(world: World) -> Mapping[Partition, Report]:
    return read_claims(world.target.claims).reports


def refusing() -> World:
    world = World()
    filled(world, 6)
    world.target.topics["t.copy"].refuses = frozenset({"t[0]-3"})
    return world


def test_a_refused_record_is_reported_until_its_partition_is_copied_again() -> None:
    world = refusing()
    world.run()
    (report,) = reports(world).values()
    assert (report.target, report.source, report.name, report.offset) == (COPY, A, "record_refused", 3)
    assert "found by me" in report.incident.detail
    world.target.topics["t.copy"].refuses = frozenset()
    world.run("another")
    assert reports(world) == {}
    assert world.copied(A) == numbered("t[0]", 6)


def test_a_cause_that_is_still_there_is_reported_anew_by_the_next_process() -> None:
    world = refusing()
    for owner in ("me", "another"):
        world.run(owner)
        (report,) = reports(world).values()
        assert (report.owner, report.name) == (owner, "record_refused")


def test_a_foreign_record_is_reported_with_the_first_commit_of_the_lane() -> None:
    world = World()
    filled(world, 6)
    world.run()
    world.target.topics["t.copy"].logs[0].put("somebody's")
    world.run("another")
    (report,) = reports(world).values()
    assert (report.name, report.offset) == ("target_has_later_records", 6)


def test_a_report_that_can_not_be_written_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world, send = refusing(), FakePlane.send_positions

    def refuse(
        plane: FakePlane, offsets: Mapping[Partition, Committed], entries: Sequence[tuple[bytes, bytes]]
    ) -> None:
        if any(key.startswith(b"incident/") for key, _ in entries):
            raise Abortable("the claims topic takes nothing")
        send(plane, offsets, entries)

    monkeypatch.setattr(FakePlane, "send_positions", refuse)
    world.run()
    assert world.copied(A) == numbered("t[0]", 3)
    assert world.copied(B) == numbered("t[1]", 6)
    assert world.incidents() == {A: "record_refused"}
    assert len(world.told("restarted")) == 1

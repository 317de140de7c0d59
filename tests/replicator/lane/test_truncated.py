"""A source whose log was cut below the position, and what an operator has decided: copying goes on at the cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from replicator.jobs.range_policy import RangePolicy
from replicator.lane.incident_report import IncidentReport
from replicator.lane.partition import Stopped
from replicator.model.checkpoint import Position, written
from replicator.model.commands import Command
from replicator.model.errors import Abortable, Incident
from replicator.model.partition import Committed, Partition
from replicator.state.decisions import AdoptedSides
from replicator.state.occurrences import Ending
from replicator.state.signed_gaps import adoptions, signed_gaps
from tests.replicator.lane.fakes.kills import killed_at_each_call
from tests.replicator.lane.fakes.loads import A, B, filled, numbered
from tests.replicator.lane.fakes.map_truth import target_of
from tests.replicator.lane.fakes.plane import FakePlane
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_decisions import closed


def cut(new: int) -> World:
    """Six records are copied; the source has lost the last two, and has so many new ones."""
    world = World(idle_s_max=2.0)
    filled(world, 6)
    assert world.run() is None
    world.source.log(A).truncate(4)
    world.source.log(A).put(*numbered("new", new), epoch=1)
    return world


def found_by_epoch(world: World) -> World:
    """In the next session the client finds the cut by leader epochs, where offsets don't show it: until the position is
    another one."""

    def tell() -> None:
        plane = world.planes[-1]
        poll = plane.poll

        def failing(*args: object) -> object:
            polled = poll(*args)  # type: ignore[arg-type]
            stored = world.target.position(target_of(A))
            if isinstance(stored, Position) and stored.evidence.count == 6:
                polled.failed[A] = Incident("source_truncated", "by its epoch", topic="t", partition=0)
            return polled

        plane.poll = failing  # type: ignore[method-assign,assignment]

    world.on.append(("plane.poll", tell))
    return world


def below() -> World:
    return cut(1)


def at_the_position() -> World:
    return cut(2)


def stopped(provoke: Callable[[], World]) -> World:
    world = provoke()
    if provoke is at_the_position:
        found_by_epoch(world)
    world.run("another")
    (it,) = world.occurrences("source_truncated")
    assert (it.offset, it.is_open) == (6, True)
    assert world.copied(A) == numbered("t[0]", 6)
    return world


def assert_goes_on(world: World, new: int) -> None:
    assert world.copied(A) == [*numbered("t[0]", 6), *numbered("new", new)]
    assert world.position(A) == 4 + new
    it = closed(world, "source_truncated")
    assert it.closing is not None
    assert (it.closing.effect, it.moved) == (Ending.ADOPTED, (6, 4))


@pytest.mark.parametrize(("provoke", "new"), [(below, 1), (at_the_position, 2)])
def test_it_goes_on_at_the_cut_and_what_was_copied_behind_it_stays(provoke: Callable[[], World], new: int) -> None:
    world = stopped(provoke)
    world.resolve(Command.SKIP, A, adopted=4)
    if provoke is at_the_position:
        found_by_epoch(world)
    assert world.run("a third") is None
    assert_goes_on(world, new)
    (adopted,) = adoptions(world.occurrences())
    assert (adopted.offset, adopted.copied_end, adopted.former_topic_id) == (4, 6, "")
    assert "offsets 4 to 5, which were copied and stay" in adopted.said
    assert signed_gaps(world.occurrences()) == ()
    stored = world.target.position(target_of(A))
    assert isinstance(stored, Position)
    assert stored.evidence.count == new
    assert world.copied(B) == numbered("t[1]", 6)
    world.source.log(A).put("on", epoch=1)
    assert world.run("a fourth") is None
    assert world.copied(A)[-1] == "on"


def test_what_only_reading_shows_is_the_same_incident_after_a_restart() -> None:
    world = stopped(at_the_position)
    (before,) = world.occurrences()
    found_by_epoch(world)
    world.run("a third")
    assert world.occurrences() == [before]
    world.source.log(A).put("behind", epoch=1)
    world.run("a fourth")  # which the client doesn't find cut any more
    assert [it.is_open for it in world.occurrences()] == [False]


def without_epoch() -> World:
    """As `below`, of a log whose records have no leader epoch: once it has grown past the position nothing shows it."""
    world = World(idle_s_max=2.0)
    for at in (A, B):
        world.source.log(at).put(*numbered(str(at), 6), epoch=-1)
    assert world.run() is None
    world.source.log(A).truncate(4)
    world.source.log(A).put(*numbered("new", 1), epoch=-1)
    return world


def grown_past(world: World) -> None:
    world.source.log(A).put(*numbered("newer", 3), epoch=-1)


def test_without_an_epoch_it_stops_until_somebody_decides() -> None:
    world = stopped(without_epoch)
    (before,) = world.occurrences()
    grown_past(world)
    for owner in ("a third", "a fourth"):
        world.run(owner)
        assert world.incidents() == {A: "source_truncated"}
        assert world.occurrences() == [before]
        assert world.copied(A) == numbered("t[0]", 6)
        assert world.copied(B) == numbered("t[1]", 6)
    world.resolve(Command.RETRY, A)
    assert world.run("a fifth") is None
    it = closed(world, "source_truncated")
    assert it.closing is not None
    assert it.closing.effect is Ending.RETRIED
    assert world.copied(A) == [*numbered("t[0]", 6), *numbered("newer", 3)[1:]]


def test_without_an_epoch_it_stops_also_where_that_can_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    world, send = without_epoch(), FakePlane.send_positions

    def refuse(
        plane: FakePlane, offsets: Mapping[Partition, Committed], entries: Sequence[tuple[bytes, bytes]]
    ) -> None:
        if any(key.startswith(b"occurrence/") for key, _ in entries):
            grown_past(world)
            raise Abortable("the claims topic takes nothing")
        send(plane, offsets, entries)

    monkeypatch.setattr(FakePlane, "send_positions", refuse)
    world.run("another")
    assert len(world.told("restarted")) == 1
    assert world.incidents() == {A: "source_truncated"}
    assert world.copied(A) == numbered("t[0]", 6)


def test_without_an_epoch_it_goes_on_at_the_cut_that_was_decided() -> None:
    world = stopped(without_epoch)
    world.resolve(Command.SKIP, A, adopted=4)
    grown_past(world)
    assert world.run("a third") is None
    assert world.copied(A) == [*numbered("t[0]", 6), "new-0", *numbered("newer", 3)]


def test_without_an_epoch_it_stays_stopped_over_other_facts() -> None:
    world = stopped(without_epoch)
    world.resolve(Command.SKIP, A, adopted=4)
    grown_past(world)
    world.target.log(target_of(A)).put("somebody else's")
    world.run("a third")
    assert isinstance(world.states()[A], Stopped)
    assert world.position(A) == 6
    world.target.log(target_of(A)).entries.pop()
    world.run("a fourth")
    assert world.incidents()[A] == "source_truncated"
    assert world.position(A) == 6


@pytest.mark.parametrize("ends", [{A: 8}, {}], ids=["a range", "kept alive"])
def test_without_an_epoch_no_job_goes_on_either(ends: Mapping[Partition, int]) -> None:
    """A lane of `run` has found it, and the log has grown past the position since."""
    world = stopped(without_epoch)
    (before,) = world.occurrences()
    grown_past(world)
    world.run("a job", RangePolicy({}, ends))
    assert world.incidents() == {A: "source_truncated"}
    assert isinstance(world.states()[A], Stopped)
    assert world.occurrences() == [before]
    assert world.copied(A) == numbered("t[0]", 6)
    assert world.position(A) == 6


def test_without_an_epoch_what_a_job_has_found_stops_whoever_comes_next() -> None:
    world = without_epoch()
    world.run("a job", RangePolicy({}, {A: 8}))
    (it,) = world.occurrences()
    assert (it.name, it.offset, it.is_open, it.found_by) == ("source_truncated", 6, True, "a job")
    grown_past(world)
    world.run("another")
    assert world.incidents() == {A: "source_truncated"}
    assert world.occurrences() == [it]
    assert world.copied(A) == numbered("t[0]", 6)
    world.resolve(Command.RETRY, A)
    assert world.run("a third") is None
    assert world.copied(A) == [*numbered("t[0]", 6), *numbered("newer", 3)[1:]]


def test_without_an_epoch_one_that_reading_shows_stops_it_at_its_position() -> None:
    """The client tells the offset that it has read up to; what was read behind the position is read again."""
    world = World(idle_s_max=2.0)
    world.source.log(A).put(*numbered("t[0]", 6), epoch=-1)
    assert world.run() is None
    world.source.log(A).put(*numbered("newer", 2), epoch=-1)

    def cut() -> None:
        plane, once = world.planes[-1], Incident("source_truncated", "by its epoch", topic="t", partition=0, offset=8)
        poll = plane.poll

        def failing(*args: object) -> object:
            plane.poll = poll  # type: ignore[method-assign]
            polled = poll(*args)  # type: ignore[arg-type]
            polled.failed[A] = once
            return polled

        plane.poll = failing  # type: ignore[method-assign,assignment]

    world.on.append(("plane.seek", cut))
    world.run("another")
    (it,) = world.occurrences()
    assert (it.name, it.offset, it.is_open) == ("source_truncated", 6, True)
    world.run("a third")
    assert world.occurrences() == [it]
    assert world.copied(A) == numbered("t[0]", 6)


def test_what_offsets_show_a_job_of_otherwise_it_leaves_to_the_next_lane() -> None:
    """With a leader epoch in the position the next one finds the cut, however the log grows."""
    world = below()
    world.run("a job", RangePolicy({}, {A: 8}))
    assert world.incidents() == {A: "source_truncated"}
    assert world.occurrences() == []


def test_a_position_that_was_set_to_the_cut_is_not_taken_for_the_one_before() -> None:
    world = stopped(without_epoch)
    stored = world.target.position(target_of(A))
    assert isinstance(stored, Position)
    world.target.offsets[target_of(A)] = written(Position(4, stored.evidence))
    world.source.log(A).put("newer", epoch=-1)
    assert world.run("a third") is None
    it = closed(world, "source_truncated")
    assert it.closing is not None
    assert it.closing.effect is Ending.GONE
    assert world.position(A) == 6
    world.source.log(A).put("newest", epoch=-1)
    assert world.run("a fourth") is None
    assert world.copied(A) == [*numbered("t[0]", 6), "new-0", "newer", "newest"]


@pytest.mark.parametrize(("before", "epoch", "over"), [(6, 0, True), (6, -1, False), (7, 0, False)])
def test_only_a_position_with_an_epoch_that_passes_the_cut_shows_that_it_is_over(
    before: int, epoch: int, over: bool
) -> None:
    world = stopped(below)
    stored = world.target.position(target_of(A))
    assert isinstance(stored, Position)
    position = Position(before, replace(stored.evidence, leader_epoch=epoch))
    report = IncidentReport().read(world.occurrences())
    assert [it.closing is not None for it in report.passed(world.plan(), position, 8, 1)] == [True] * over


@pytest.mark.parametrize("change", ["target", "source", "position"])
def test_over_other_facts_nothing_is_done(change: str) -> None:
    world = stopped(below)
    decision = world.resolve(Command.SKIP, A, adopted=4)
    if change == "target":
        world.target.log(target_of(A)).put("somebody else's")
    elif change == "source":
        sides = replace(decision.adopted or AdoptedSides(source_topic_id="", target_topic_id="", target_end=0))
        world.write(replace(decision, adopted=replace(sides, source_topic_id="another")))
    else:
        world.write(replace(decision, offset=7))
    world.run("a third")
    assert isinstance(world.states()[A], Stopped)
    assert world.position(A) == 6
    assert all(it.moved is None for it in world.occurrences())
    assert [value for value in world.copied(A) if value.startswith("new")] == []


def test_that_it_was_cut_further_meanwhile_is_another_incident() -> None:
    world = stopped(below)
    world.resolve(Command.SKIP, A, adopted=4)
    world.source.log(A).truncate(2)
    world.run("a third")
    assert world.incidents()[A] == "source_truncated"
    assert world.position(A) == 6


@pytest.mark.tier("full")
def test_killed_at_any_call_it_is_done_once() -> None:
    def decided() -> World:
        world = stopped(below)
        world.resolve(Command.SKIP, A, adopted=4)
        return world

    for world in killed_at_each_call(decided):
        assert_goes_on(world, 1)
        assert [it for it in world.occurrences() if it.is_open] == []


def read_ahead_and_cut(*offsets: int) -> World:
    """A running lane has copied six records, and reads on; the client says of one offset after the other that the log
    was cut below it, by its leader epoch."""
    world = World(idle_s_max=2.0)
    filled(world, 6)
    told = list(offsets)

    def tell() -> None:
        plane = world.planes[-1]
        poll = plane.poll

        def failing(*args: object) -> object:
            polled = poll(*args)  # type: ignore[arg-type]
            stored = world.target.position(target_of(A))
            if told and isinstance(stored, Position) and stored.evidence.count == 6:
                world.source.log(A).put("behind", epoch=1)
                at, cut = A.partition, told.pop(0)
                polled.failed[A] = Incident("source_truncated", "by its epoch", topic="t", partition=at, offset=cut)
            return polled

        plane.poll = failing  # type: ignore[method-assign,assignment]

    world.on.append(("plane.poll", tell))
    return world


def test_a_cut_of_what_was_only_read_ahead_stops_nothing() -> None:
    world = read_ahead_and_cut(9)
    assert world.run() is None
    assert world.incidents() == {}
    assert world.occurrences() == []
    assert world.copied(A) == [*numbered("t[0]", 6), "behind"]


def test_a_cut_of_what_was_read_ahead_stops_where_the_check_of_the_position_finds_one() -> None:
    world = read_ahead_and_cut(9, 6)
    world.run()
    assert world.incidents() == {A: "source_truncated"}
    (it,) = world.occurrences()
    assert it.offset == 6
    assert world.copied(A) == numbered("t[0]", 6)

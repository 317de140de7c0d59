"""Who owns positions: a predecessor's name that could not be overwritten yet is no successor's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from replicator.lane.driver import CountsChanged
from replicator.lane.partition import Stopped, Waiting
from replicator.lane.partitions import PartitionCounts
from replicator.lane.plan import LanePlan
from replicator.model.checkpoint import NOBODY
from replicator.model.errors import Incident, Retriable, TakenOver, Unreachable
from replicator.model.partition import Committed, Partition
from replicator.state.run_settings import NO_SETTINGS, Paused
from tests.replicator.lane.fakes.loads import A, B, U, each_poll, filled, held, more, numbered
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_failed_over import fail_over
from tests.replicator.lane.test_truncated import grown_past, without_epoch


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def world() -> World:
    """A worker has copied everything, and was killed: positions have its name."""
    made = World(recommit_ms=3_600_000, idle_s_max=400.0)
    filled(made, 3)

    def look() -> bool:
        if all(made.position(at) == 3 for at in (A, B, U)):
            raise Killed
        return True

    each_poll(made, look)
    with pytest.raises(Killed):
        made.run("old")
    made.on.clear()
    return made


@pytest.mark.parametrize("back_s", [20.0, None], ids=["it comes back", "it stays missing"])
def test_a_right_is_missing_at_the_start(world: World, back_s: float | None) -> None:
    """Without Read on a target topic its positions can't be committed again, with the new name."""
    world.target.denied["t.copy"] = {"Read"}
    began_s = world.time_s
    gone_on: list[bool] = []

    def look() -> bool:
        past_s = world.time_s - began_s
        if back_s is not None and past_s > back_s:
            world.target.denied.clear()
        if past_s > 90 and not gone_on:
            gone_on.append(True)
            world.source.log(U).put("later")
        return past_s < 120

    each_poll(world, look)
    assert world.run("new") is None
    assert world.copied(U)[-1] == "later"
    assert world.owner(A) == ("old" if back_s is None else NOBODY)


def test_a_broker_that_comes_up_denies_a_topic_for_a_moment(world: World) -> None:
    began_s = world.time_s
    plan = world.plan("new")
    kept = world.target.topics.pop("u.copy")

    def look() -> bool:
        if world.time_s > began_s + 1:
            world.target.topics["u.copy"] = kept
        return world.time_s < began_s + 20

    each_poll(world, look)
    assert world.run("new", plan=plan) is None
    assert not world.incidents()


INTERVAL_S = World().flow.limits.discovery_interval_ms / 1000
STRAY = Committed(1, "")
"""What a consumer with the flow's group id commits, and `kafka-consumer-groups --reset-offsets`."""


def strays(world: World, target: Partition, at_s: tuple[float, ...], until_s: float) -> None:
    """Somebody commits an offset of this target partition at these times after now; the lane ends later."""
    began_s, left = world.time_s, list(at_s)

    def look() -> bool:
        past_s = world.time_s - began_s
        if left and past_s > left[0]:
            left.pop(0)
            world.target.offsets[target] = STRAY
        return past_s < until_s

    each_poll(world, look)


def made() -> World:
    world = World(idle_s_max=400.0)
    filled(world, 3)
    return world


def test_a_stray_commit_stops_its_partition_until_the_lane_has_committed_its_own_again() -> None:
    world = made()
    strays(world, Partition("t.copy", 0), (100.0,), 200.0)
    assert world.run() is None
    assert world.incidents() == {A: "position_unreadable"}
    assert [line["topic"] for line in world.told("copying")] == ["t"]
    assert (world.position(A), world.owner(A)) == (3, NOBODY)
    assert world.copied(A) == [value for _, value in held(world)[A]]


def reset_all(world: World, then: Callable[[], None] = lambda: None) -> list[int]:
    """Somebody resets the whole group between two looks; then this is done. Once that is found a record is written to
    each partition. Returns the positions half an interval after that look."""
    began_s, written, left = world.time_s, False, list[int]()

    def look() -> bool:
        nonlocal written
        past_s = world.time_s - began_s
        if past_s > INTERVAL_S * 1.5 and STRAY not in world.target.offsets.values() and not world.told("incident"):
            world.target.offsets = dict.fromkeys(world.target.offsets, STRAY)
            then()
        if world.told("incident") and not written:
            written = True
            for at in (A, B, U):
                world.source.log(at).put("later")
        if past_s > INTERVAL_S * 2.5:
            left.extend(world.position(at) for at in (A, B, U))
        return not left

    each_poll(world, look)
    return left


def counted(world: World) -> list[PartitionCounts]:
    """Run a lane; the counts that its worker is told."""
    driver, events = world.lane()
    driver.drive()
    found = [events.get() for _ in range(events.qsize())]
    return [event.counts for event in found if isinstance(event, CountsChanged)]


def test_a_reset_of_the_whole_group_is_told_and_healed_at_the_next_look_and_stops_no_flow() -> None:
    """A worker that runs a flow alone ends it once everything is stopped."""
    world = made()
    positions = reset_all(world)
    counts = counted(world)
    assert world.incidents() == dict.fromkeys((A, B, U), "position_unreadable")
    assert len(world.told("copying")) == len(world.told("incident")) == 3
    assert positions == [4, 4, 4]
    assert not any(each.stopped for each in counts)


def test_partitions_that_can_not_be_decided_over_right_after_a_reset_wait_for_that() -> None:
    world = made()

    def fail() -> None:
        raise Unreachable("the target is away for a moment")

    reads = [("plane.positions", lambda: None), ("plane.positions", fail)]  # at the look, and for deciding
    positions = reset_all(world, lambda: world.on.extend(reads))
    counts = counted(world)
    assert positions == [4, 4, 4]
    assert {line["reason"] for line in world.told("waiting")} == {"no_answer"}
    assert not any(each.stopped for each in counts)
    assert world.trace.count("plane.fence") == 1


def test_nothing_counts_as_stopped_while_the_commit_that_heals_it_takes_long() -> None:
    world = made()

    def stall() -> None:
        assert world.driver is not None
        session = world.driver.session
        assert session is not None
        for _ in range(8):
            world.time_s += 1.0
            session._stalled(session._plane.written())

    positions = reset_all(world, lambda: world.on.append(("plane.send_positions", stall)))
    counts = counted(world)
    assert world.on == []
    assert positions == [4, 4, 4]
    assert PartitionCounts(0, 3, 0) in counts
    assert not any(each.stopped for each in counts)


def test_what_was_found_of_a_partition_stays_where_others_can_not_be_decided_over_right_after_a_reset() -> None:
    """Without leader epochs only the log's end shows that the source was cut, until it has grown again."""
    world = World(idle_s_max=400.0)
    for at in (A, B):
        world.source.log(at).put(*numbered(str(at), 6), epoch=-1)
    began_s, reset = world.time_s, False

    def cut() -> None:
        world.source.log(A).truncate(4)
        world.source.log(A).put("new", epoch=-1)

    def fail() -> None:
        world.source.log(A).put(*numbered("newer", 3), epoch=-1)
        raise Retriable("the target's end can't be read now")

    def look() -> bool:
        nonlocal reset
        if not reset and world.time_s - began_s > INTERVAL_S * 1.5:
            reset = True
            world.target.offsets = dict.fromkeys(world.target.offsets, STRAY)
            world.on += [("plane.positions", lambda: None), ("plane.positions", cut), ("east.end_records", fail)]
        return world.time_s - began_s < INTERVAL_S * 4

    each_poll(world, look)
    world.run()
    assert world.on == []
    assert (world.incidents()[A], len(world.copied(A))) == ("source_truncated", 6)
    assert [(it.name, it.is_open) for it in world.occurrences() if it.source == A] == [("source_truncated", True)]
    assert {(line["topic"], line["partition"]) for line in world.told("waiting")} == {B, U}


def failed_over() -> tuple[World, LanePlan]:
    world = World(idle_s_max=400.0)
    filled(world, 6)
    assert world.run() is None
    more(world)
    fail_over(world, ["t"])
    return world, world.plan("another")


def cut() -> tuple[World, LanePlan]:
    """Nothing shows it once the log has grown past the position."""
    world = without_epoch()
    world.idle_s_max = 400.0
    world.on.append(("step.claimed", lambda: grown_past(world)))
    return world, world.plan("another")


def in_conflict() -> tuple[World, LanePlan]:
    world = World(idle_s_max=400.0)
    filled(world, 6)
    assert world.run() is None
    more(world)
    conflict = Incident("flows_in_conflict", "it comes from there", topic="t")
    routes = tuple(replace(it, stopped=conflict) if it.source == A else it for it in world.routes())
    return world, world.plan("another", routes)


def paused() -> tuple[World, LanePlan]:
    world = World(idle_s_max=400.0)
    filled(world, 6)
    assert world.run() is None
    more(world)
    settings = NO_SETTINGS.pause(["t"], Paused(by="ann", at_ms=1))
    world.state.current = replace(world.state.current, settings=settings)
    return world, world.plan("another")


def unread() -> tuple[World, LanePlan]:
    """The source doesn't say how far its log goes: it is asked again and again, and positions are read with that."""
    world = World(idle_s_max=400.0)
    filled(world, 6)
    assert world.run() is None
    more(world)
    world.source.denied["t"] = {"Describe"}
    return world, world.plan("another")


@pytest.mark.parametrize("keep_back", [failed_over, cut, in_conflict, paused, unread])
def test_a_stray_commit_over_the_position_of_what_is_not_copied_changes_nothing_of_that(
    keep_back: Callable[[], tuple[World, LanePlan]],
) -> None:
    """What stops it, or why it waits, is still so; only its position is committed again."""
    world, plan = keep_back()
    began_s, found = world.time_s, list[object]()
    target = Partition("t.copy", 0)

    def look() -> bool:
        past_s = world.time_s - began_s
        if past_s > 100 and not found:
            found.append(world.states()[A])
            world.target.offsets[target] = STRAY
        return past_s < 300

    each_poll(world, look)
    assert world.run("another", plan=plan) is None
    (before,), now = found, world.states()[A]
    assert isinstance(before, Stopped | Waiting)
    if isinstance(before, Waiting):
        assert isinstance(now, Waiting)
        assert now.reason is before.reason
    else:
        assert now == before
    assert len(world.copied(A)) == 6
    assert world.position(A) == 6
    assert "position_unreadable" not in world.incidents().values()
    assert all(it.is_open for it in world.occurrences())


def test_a_partition_that_a_stray_commit_has_stopped_is_decided_over_anew() -> None:
    """Its topic is another one by then."""
    world = made()
    began_s, done = world.time_s, list[None]()

    def recreate() -> None:
        world.source.delete("t")
        world.source.create("t", 2)
        world.source.log(A).put("new")

    def look() -> bool:
        past_s = world.time_s - began_s
        if past_s > 100 and not done:
            done.append(None)
            world.target.offsets[Partition("t.copy", 0)] = STRAY
            world.on.append(("plane.positions", recreate))  # which finds the stray commit
        return past_s < 250

    each_poll(world, look)
    world.run()
    assert world.told("incident")[0]["name"] == "position_unreadable"
    assert world.incidents()[A] == "source_topic_recreated"
    assert [line for line in world.told("copying") if line["topic"] == "t" and line["partition"] == 0] == []
    assert world.position(A) == 3


def test_while_something_else_commits_again_and_again_the_other_partitions_go_on() -> None:
    world = made()
    strays(world, Partition("t.copy", 0), tuple(range(100, 300, 5)), 300.0)
    for number in range(10):
        world.source.log(U).put(f"later-{number}")
    assert world.run() is None
    assert set(world.incidents()) == {A}
    assert len(world.told("incident")) <= 200 / INTERVAL_S + 1, "once a look"
    assert world.copied(U) == [value for _, value in held(world)[U]]
    assert world.copied(A) == [value for _, value in held(world)[A]]


def test_a_stray_commit_between_two_starts_stops_its_partition_only() -> None:
    world = made()
    assert world.run("first") is None
    world.target.offsets[Partition("t.copy", 0)] = STRAY
    world.source.log(U).put("later")
    assert world.run("second") is None
    assert world.incidents() == {A: "position_unreadable"}
    assert world.target.offsets[Partition("t.copy", 0)] == STRAY
    assert world.copied(U)[-1] == "later"


def test_a_fenced_lane_takes_no_stray_commit_for_a_successor() -> None:
    """The transaction's timeout fences too: the lane starts again, and that partition alone is stopped."""
    world = made()
    began_s, fenced = world.time_s, list[float]()

    def look() -> bool:
        if world.time_s > began_s + 50 and not fenced:
            fenced.append(world.time_s)
            world.target.offsets[Partition("t.copy", 0)] = STRAY
            world.target.init("eos.f.1.0")
            world.source.log(U).put("later")
        return world.time_s < began_s + 150

    each_poll(world, look)
    assert world.run() is None
    assert world.incidents() == {A: "position_unreadable"}
    assert world.copied(U)[-1] == "later"


def test_a_process_with_other_topics_under_the_flow_s_name_is_a_successor() -> None:
    """Two files of one name: the positions that the second one writes are no position of the first one's topics."""
    world = made()
    plan_of = {name: world.plan(name, tuple(r for r in world.routes() if r.source.topic == name)) for name in "tu"}
    began_s, second = world.time_s, list[object]()

    def look() -> bool:
        if world.time_s > began_s + 50 and not second:
            second.append(None)
            first, world.driver = world.driver, None
            second.append(world.run(plan=plan_of["u"]))
            world.driver = first
            for name, found in list(world.target.offsets.items()):  # it runs: its name stays in its positions
                metadata = found.metadata.replace('"o":""', '"o":"u"') if name.topic == "u.copy" else found.metadata
                world.target.offsets[name] = found._replace(metadata=metadata)
            world.source.log(A).put("later")
        return world.time_s < began_s + 250

    each_poll(world, look)
    assert isinstance(world.run(plan=plan_of["t"]), TakenOver)
    assert second == [None, None]

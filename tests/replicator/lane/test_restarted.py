"""A topic that was created again is copied from its beginning, once somebody has decided that of this very topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from replicator.lane.partition import Copying, Stopped
from replicator.model.checkpoint import Position
from replicator.model.commands import Command
from replicator.model.partition import Partition
from replicator.state.claims import read_claims
from replicator.state.occurrences import Ending
from replicator.state.run_settings import NO_SETTINGS, Paused
from replicator.state.signed_gaps import adoptions, signed_gaps
from tests.replicator.lane.fakes.kills import killed_at_each_call
from tests.replicator.lane.fakes.loads import A, filled, numbered
from tests.replicator.lane.fakes.map_truth import target_of
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_decisions import closed

pytestmark = pytest.mark.tier("default")

OTHER = Partition("t", 1)
NEW = numbered("new", 9)


def source_again(world: World | None = None, *, records: list[str] | None = None) -> World:
    """Six records of each partition are copied when the source topic is another one."""
    if world is None:
        world = World(idle_s_max=2.0)
        filled(world, 6)
        assert world.run() is None
    world.source.delete("t")
    world.source.create("t", 2)
    for at in (A, OTHER):
        world.source.log(at).put(*(NEW if records is None else records))
    return world


def target_again(world: World | None = None) -> World:
    """The same of the target topic: what was copied is gone, and its position."""
    if world is None:
        world = World(idle_s_max=2.0)
        filled(world, 6)
        assert world.run() is None
    world.target.delete("t.copy")
    world.target.create("t.copy", 2)
    for at in (A, OTHER):
        world.target.offsets.pop(target_of(at), None)
    return world


def both_again() -> World:
    """The same of both: nothing of what was copied is left on either side."""
    return source_again(target_again())


def stopped(world: World) -> World:
    """A lane has found that, and has written it down."""
    world.run("another")
    return world


def test_the_new_topic_is_copied_behind_the_old_one_and_both_are_told_apart() -> None:
    world = stopped(source_again())
    old, end = world.source.topics, world.target.log(target_of(A)).end
    former = read_claims(world.target.claims).claims[target_of(A)].source_topic_id
    assert world.copied(A) == numbered("t[0]", 6)
    world.resolve(Command.RESTART_TOPIC, A)
    world.run("a third")
    assert world.copied(A) == [*numbered("t[0]", 6), *NEW]
    assert world.copied(OTHER) == numbered("t[1]", 6), "nobody has decided that"
    it = closed(world, "source_topic_recreated")
    assert it.closing is not None
    assert (it.closing.effect, it.moved) == (Ending.RESTARTED, (6, 0))
    claim = read_claims(world.target.claims).claims[target_of(A)]
    assert (claim.offset, claim.target_end, claim.source_topic_id) == (0, end, old["t"].topic_id)
    stored = world.target.position(target_of(A))
    assert isinstance(stored, Position)
    assert (stored.offset, stored.evidence.count) == (9, 9)
    (adopted,) = adoptions(world.occurrences())
    assert (adopted.former_topic_id, adopted.target_end, adopted.offset) == (former, end, 0)
    assert f"target offsets below {end} are of the source topic with the id {former}" in adopted.said
    world.source.log(A).put("on")
    world.run("a fourth")
    assert world.copied(A)[-1] == "on"


def test_a_target_topic_that_was_made_again_is_filled_from_the_beginning() -> None:
    world = stopped(target_again())
    world.resolve(Command.RESTART_TOPIC, A)
    world.run("a third")
    assert world.copied(A) == numbered("t[0]", 6)
    assert world.copied(OTHER) == []
    assert "the target topic with the id" in adoptions(world.occurrences())[0].said


def test_a_target_is_filled_each_time_it_was_made_again_whatever_the_clock_says() -> None:
    world = stopped(target_again())
    world.time_s -= 900.0  # by a host whose clock is behind
    world.resolve(Command.RESTART_TOPIC, A)
    world.run("a third")
    claim = read_claims(world.target.claims).claims[target_of(A)]
    assert claim.target_topic_id == world.target.topics["t.copy"].topic_id
    stopped(target_again(world))
    world.resolve(Command.RESTART_TOPIC, A)
    world.run("a fourth")
    assert world.copied(A) == numbered("t[0]", 6)
    assert world.told("decision_outdated") == []


def test_a_topic_that_was_made_again_on_both_sides_is_copied_from_its_beginning() -> None:
    world = stopped(both_again())
    former = read_claims(world.target.claims).claims[target_of(A)]
    assert world.incidents()[A] == "target_topic_recreated"
    world.resolve(Command.RESTART_TOPIC, A)
    world.run("a third")
    assert world.copied(A) == NEW
    assert world.copied(OTHER) == [], "nobody has decided that"
    (adopted,) = adoptions(world.occurrences())
    ids = (former.target_topic_id, former.source_topic_id)
    assert (adopted.former_topic_id, adopted.former_other_id, adopted.offset) == (*ids, 0)
    assert f"the target topic with the id {ids[0]} was deleted, and so was the source topic with the id {ids[1]}" in (
        adopted.said
    )
    claim = read_claims(world.target.claims).claims[target_of(A)]
    assert (claim.source_topic_id, claim.target_topic_id, claim.offset) == (
        world.source.topics["t"].topic_id,
        world.target.topics["t.copy"].topic_id,
        0,
    )
    world.source.log(A).put("on")
    world.run("a fourth")
    assert world.copied(A) == [*NEW, "on"]


def test_on_both_sides_it_is_also_restarted_where_the_position_outlived_the_target() -> None:
    """A coordinator that is away while a topic is deleted keeps what was committed."""
    world = World(idle_s_max=2.0)
    filled(world, 6)
    assert world.run() is None
    kept = dict(world.target.offsets)
    both = source_again(target_again(world))
    both.target.offsets.update(kept)
    stopped(both)
    assert world.incidents()[A] == "source_topic_recreated"
    world.resolve(Command.RESTART_TOPIC, A)
    world.run("a third")
    assert world.copied(A) == NEW


def test_a_running_lane_restarts_it_within_about_a_second() -> None:
    world, at_s = source_again(), list[float]()

    def decide() -> None:
        world.resolve(Command.RESTART_TOPIC, A)
        at_s.append(world.time_s)
        world.on.append(("plane.seek", lambda: at_s.append(world.time_s)))

    world.actions[world.calls + 60] = decide
    world.run("another")
    assert world.copied(A) == [*numbered("t[0]", 6), *NEW]
    assert at_s[1] - at_s[0] <= 1.5
    assert isinstance(world.states()[A], Copying)


def test_a_paused_topic_is_stopped_until_it_is_restarted_after_the_pause() -> None:
    world = stopped(source_again())
    paused = NO_SETTINGS.pause(["t"], Paused(by="ann", at_ms=1))
    world.state.current = replace(world.state.current, settings=paused)
    world.resolve(Command.RESTART_TOPIC, A)
    world.run("a third")
    assert isinstance(world.states()[A], Stopped), "its incident is open"
    assert any(it.is_open and it.source == A for it in world.occurrences())
    assert not world.told("waiting")

    def resume() -> None:
        world.throttle.take(world.throttle.settings.resume([]), 1)

    world.actions[world.calls + 60] = resume
    world.idle_s_max = 200.0  # it looks for the end of the pause from time to time
    world.run("a fourth")
    assert world.copied(A) == [*numbered("t[0]", 6), *NEW]
    assert isinstance(world.states()[A], Copying)
    assert closed(world, "source_topic_recreated").moved == (6, 0)


@pytest.mark.parametrize("provoke", [source_again, target_again, both_again])
def test_killed_at_any_call_it_is_restarted_once(provoke: Callable[[], World]) -> None:
    def decided() -> World:
        world = stopped(provoke())
        for at in (A, OTHER):
            world.resolve(Command.RESTART_TOPIC, at)
        return world

    source = provoke is source_again
    copied = {source_again: [*numbered("t[0]", 6), *NEW], target_again: numbered("t[0]", 6), both_again: NEW}[provoke]
    for world in killed_at_each_call(decided):
        assert world.copied(A) == copied
        assert {it.moved for it in world.occurrences()} == {(6, 0) if source else (-1, 0)}


def test_a_topic_that_was_made_once_more_is_another_decision() -> None:
    world = stopped(source_again())
    (before,) = [it for it in world.occurrences() if it.source == A]
    world.resolve(Command.RESTART_TOPIC, A)
    source_again(world, records=numbered("newer", 3))
    world.run("a third")
    assert world.copied(A) == numbered("t[0]", 6)
    assert all(it.moved is None for it in world.occurrences())
    (now,) = [it for it in world.occurrences() if it.source == A and it.is_open]
    assert now.id != before.id
    assert now.topic_id == world.source.topics["t"].topic_id
    world.resolve(Command.RESTART_TOPIC, A)
    world.run("a fourth")
    assert world.copied(A) == [*numbered("t[0]", 6), *numbered("newer", 3)]


def test_of_a_topic_that_was_made_once_more_nobody_finds_the_id_of_the_one_before() -> None:
    """Who has looked at the incident has seen another topic than is there now."""
    world = stopped(source_again())
    (before,) = [it for it in world.occurrences() if it.source == A]
    stopped(source_again(world))
    (now,) = [it for it in world.occurrences() if it.source == A and it.is_open]
    assert now.id != before.id
    stopped(world)
    assert [it.id for it in world.occurrences() if it.source == A and it.is_open] == [now.id]


def test_a_target_that_has_grown_since_is_not_what_somebody_has_looked_at() -> None:
    world = stopped(source_again())
    world.resolve(Command.RESTART_TOPIC, A)
    world.target.log(target_of(A)).put("a stranger's")
    world.run("a third")
    assert world.copied(A) == [*numbered("t[0]", 6), "a stranger's"]
    assert len(world.told("decision_outdated")) == 1
    world.resolve(Command.RESTART_TOPIC, A)
    world.run("a fourth")
    assert world.copied(A) == [*numbered("t[0]", 6), "a stranger's", *NEW]


@pytest.mark.parametrize("provoke", [source_again, target_again])
def test_where_the_other_topic_is_another_one_too_nothing_is_restarted(provoke: Callable[[], World]) -> None:
    world = stopped(provoke())
    world.resolve(Command.RESTART_TOPIC, A)
    (target_again if provoke is source_again else source_again)(world)
    copied = world.copied(A)
    world.run("a third")
    assert world.copied(A) == copied
    assert all(it.moved is None for it in world.occurrences())


def test_records_that_are_gone_from_the_new_topic_meanwhile_need_another_decision() -> None:
    world = stopped(source_again())
    world.resolve(Command.RESTART_TOPIC, A)
    world.source.log(A).delete_before(4)
    world.run("a third")
    assert world.copied(A) == numbered("t[0]", 6)
    world.resolve(Command.RESTART_TOPIC, A)
    world.run("a fourth")
    assert world.copied(A) == [*numbered("t[0]", 6), *NEW[4:]]


def test_what_was_left_out_of_the_topic_before_is_no_gap_of_this_one() -> None:
    world = World(idle_s_max=2.0)
    filled(world, 6)
    world.target.topics["t.copy"].refuses = frozenset({"t[0]-3"})
    world.run()
    world.resolve(Command.SKIP, A)
    assert world.run("another") is None
    assert [(it.first, it.end) for it in signed_gaps(world.occurrences())] == [(3, 4)]
    world.time_s += 1
    source_again(world)
    world.source.log(A).delete_before(5)
    stopped(world)
    world.resolve(Command.RESTART_TOPIC, A)
    world.run("a third")
    assert world.copied(A)[-4:] == NEW[5:]
    assert signed_gaps(world.occurrences()) == ()

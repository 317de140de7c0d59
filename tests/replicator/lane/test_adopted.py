"""What an operator adopts: a target with records, for which the flow has no position of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replicator.lane.partition import Copying
from replicator.model.checkpoint import Position
from replicator.model.commands import Command
from replicator.model.partition import Committed
from replicator.state.claims import read_claims
from replicator.state.occurrences import Ending
from replicator.state.signed_gaps import adoptions, signed_gaps
from tests.replicator.lane.fakes.kills import killed_at_each_call
from tests.replicator.lane.fakes.loads import A, each_poll, filled, numbered
from tests.replicator.lane.fakes.log import Fate
from tests.replicator.lane.fakes.map_truth import target_of
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_decisions import closed

LATER = ["later-0", "later-1", "later-2"]


def expired() -> World:
    """Six records are copied, and three more are there, when the position has gone."""
    world = World(idle_s_max=2.0)
    filled(world, 6)
    assert world.run() is None
    del world.target.offsets[target_of(A)]
    world.source.log(A).put(*LATER)
    return world


def foreign() -> World:
    """In place of the position stands what another program has committed."""
    world = expired()
    world.target.offsets[target_of(A)] = Committed(2, "somebody else's")
    return world


def not_empty() -> World:
    """Another program has copied six records; this flow has never run."""
    world = World(idle_s_max=2.0)
    filled(world, 6)
    world.target.log(target_of(A)).put(*numbered("t[0]", 6))
    world.source.log(A).put(*LATER)
    return world


@pytest.mark.parametrize(
    ("provoke", "name"),
    [(expired, "position_expired"), (foreign, "position_unreadable"), (not_empty, "target_not_empty")],
)
def test_it_goes_on_at_the_offset_that_was_decided(provoke: Callable[[], World], name: str) -> None:
    world = provoke()
    world.run("another")
    assert world.copied(A) == numbered("t[0]", 6)
    end = world.target.log(target_of(A)).end
    world.resolve(Command.ADOPT, A, adopted=6)
    assert world.run("a third") is None
    assert world.copied(A) == [*numbered("t[0]", 6), *LATER]
    it = closed(world, name)
    assert it.closing is not None
    assert (it.closing.effect, it.moved) == (Ending.ADOPTED, (it.offset, 6))
    claim = read_claims(world.target.claims).claims[target_of(A)]
    assert (claim.offset, claim.target_end) == (6, end), "a reconciliation compares what comes behind"
    stored = world.target.position(target_of(A))
    assert isinstance(stored, Position)
    assert (stored.offset, stored.evidence.count) == (9, 3)
    assert signed_gaps(world.occurrences()) == (), "nobody knows what the target has of what is before"
    assert [(it.offset, it.by, it.why) for it in adoptions(world.occurrences())] == [(6, "ann", "w")]
    world.source.log(A).put("on")
    assert world.run("a fourth") is None
    assert world.copied(A)[-1] == "on"
    assert all(not it.is_open for it in world.occurrences())


def test_a_running_lane_adopts_within_about_a_second() -> None:
    world, at_s = expired(), list[float]()

    def decide() -> None:
        world.resolve(Command.ADOPT, A, adopted=6)
        at_s.append(world.time_s)
        world.on.append(("plane.seek", lambda: at_s.append(world.time_s)))

    world.actions[world.calls + 60] = decide
    assert world.run("another") is None
    assert world.copied(A) == [*numbered("t[0]", 6), *LATER]
    assert at_s[1] - at_s[0] <= 1.5
    assert isinstance(world.states()[A], Copying)


@pytest.mark.parametrize("provoke", [expired, foreign, not_empty])
def test_killed_at_any_call_it_is_adopted_once(provoke: Callable[[], World]) -> None:
    def decided() -> World:
        world = provoke()
        world.run("another")
        world.resolve(Command.ADOPT, A, adopted=6)
        return world

    for world in killed_at_each_call(decided):
        assert world.copied(A) == [*numbered("t[0]", 6), *LATER]
        assert [it.moved for it in world.occurrences()] == [(world.occurrences()[0].offset, 6)]


def test_where_the_source_has_no_such_offset_any_more_it_needs_another_decision() -> None:
    world = expired()
    world.run("another")
    world.resolve(Command.ADOPT, A, adopted=6)
    world.source.log(A).delete_before(8)
    world.run("a third")
    assert world.copied(A) == numbered("t[0]", 6)
    assert len(world.told("decision_outdated")) == 1
    (again,) = [it for it in world.occurrences() if it.is_open]
    assert again.name == "position_expired"
    world.resolve(Command.ADOPT, A, adopted=8)
    world.run("a fourth")
    assert world.copied(A) == [*numbered("t[0]", 6), "later-2"]


def test_nothing_is_adopted_of_a_topic_that_was_made_again() -> None:
    world = expired()
    world.run("another")
    world.resolve(Command.ADOPT, A, adopted=6)
    world.source.delete("t")
    world.source.create("t", 2)
    world.source.log(A).put(*numbered("new", 12))
    world.run("a third")
    assert world.copied(A) == numbered("t[0]", 6)
    assert all(it.moved is None for it in world.occurrences())


def test_a_target_topic_that_was_made_again_is_not_adopted() -> None:
    world = expired()
    world.run("another")
    world.resolve(Command.ADOPT, A, adopted=6)
    world.target.delete("t.copy")
    world.target.create("t.copy", 2)
    world.run("a third")
    assert world.copied(A) == []


def test_what_somebody_writes_to_the_target_after_that_is_found() -> None:
    world = expired()
    world.run("another")
    world.resolve(Command.ADOPT, A, adopted=6)
    assert world.run("a third") is None
    world.target.log(target_of(A)).put("a stranger's")
    world.source.log(A).put("on")
    world.run("a fourth")
    assert world.incidents()[A] == "target_has_later_records"


@pytest.mark.parametrize("provoke", [expired, foreign, not_empty])
def test_a_target_that_has_grown_since_is_not_what_somebody_has_looked_at(provoke: Callable[[], World]) -> None:
    world = provoke()
    world.run("another")
    world.resolve(Command.ADOPT, A, adopted=6)
    world.target.log(target_of(A)).put(*LATER)  # another program has gone on
    world.run("a third")
    assert world.copied(A) == [*numbered("t[0]", 6), *LATER]
    assert len(world.told("decision_outdated")) == 1
    world.resolve(Command.ADOPT, A, adopted=9)
    assert world.run("a fourth") is None
    world.source.log(A).put("on")
    assert world.run("a fifth") is None
    assert world.copied(A) == [*numbered("t[0]", 6), *LATER, "on"]


def test_a_target_that_was_made_again_and_filled_anew_is_not_adopted() -> None:
    world = not_empty()
    world.run("another")
    world.resolve(Command.ADOPT, A, adopted=6)
    world.target.delete("t.copy")
    world.target.create("t.copy", 2)
    world.target.log(target_of(A)).put(*numbered("t[0]", 6), *numbered("x", 1))
    world.run("a third")
    assert world.copied(A) == [*numbered("t[0]", 6), *numbered("x", 1)]
    assert all(it.moved is None for it in world.occurrences())


def test_a_source_topic_that_was_made_again_while_the_position_was_gone_is_told_as_that() -> None:
    world = expired()
    world.source.delete("t")
    world.source.create("t", 2)
    world.source.log(A).put(*numbered("new", 12))
    world.run("another")
    assert world.incidents()[A] == "source_topic_recreated"
    assert world.copied(A) == numbered("t[0]", 6)


def test_an_open_transaction_of_somebody_else_is_waited_for() -> None:
    """Nobody has to decide again once it has ended as it was: with what it commits the target would be another one."""
    world = not_empty()
    world.idle_s_max = 60.0
    log = world.target.log(target_of(A))
    log.put("not yet", fate=Fate.OPEN)
    world.run("another")
    world.resolve(Command.ADOPT, A, adopted=6)
    ended: list[float] = []

    def end() -> bool:
        if world.told("decision_postponed"):
            log.entries[-1].fate = Fate.ABORTED
            ended.append(world.time_s)
        return not ended

    each_poll(world, end)
    world.run("a third")
    assert len(world.told("decision_postponed")) == 1
    assert "doesn't end" in str(world.told("decision_postponed")[0]["reason"])
    assert world.copied(A) == [*numbered("t[0]", 6), *LATER]
    assert [it.moved for it in world.occurrences() if it.moved] == [(-1, 6)]


def test_what_an_adoption_has_copied_again_is_not_left_out_any_more() -> None:
    world = World(idle_s_max=2.0)
    filled(world, 6)
    world.target.topics["t.copy"].refuses = frozenset({"t[0]-3"})
    world.run()
    world.resolve(Command.SKIP, A)
    assert world.run("another") is None
    assert [(it.first, it.end) for it in signed_gaps(world.occurrences())] == [(3, 4)]
    world.target.topics["t.copy"].refuses = frozenset()
    del world.target.offsets[target_of(A)]
    world.run("a third")
    world.time_s += 1
    world.resolve(Command.ADOPT, A, adopted=3)
    assert world.run("a fourth") is None
    assert "t[0]-3" in world.copied(A)
    assert signed_gaps(world.occurrences()) == ()

"""What an operator has decided about an incident is done once, in one transaction with the position, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replicator.lane.partition import Copying, Stopped
from replicator.model.commands import Command
from replicator.model.errors import Abortable, NotAllowed, UnknownOutcome
from replicator.model.partition import Partition
from replicator.state.occurrences import Ending, Occurrence
from tests.replicator.lane.fakes.kills import killed_at_each_call
from tests.replicator.lane.fakes.loads import filled, numbered
from tests.replicator.lane.fakes.log import Fate
from tests.replicator.lane.fakes.world import World

A, B, ASIDE = Partition("t", 0), Partition("t", 1), Partition("__eos.f.aside", 0)


def losing(world: World | None = None) -> World:
    """Six records are copied; of four more the source has lost two."""
    world = world or World(idle_s_max=2.0)
    filled(world, 6)
    assert world.run() is None
    lose(world, 8)
    return world


def lose(world: World, below: int) -> None:
    log = world.source.log(A)
    if log.end < 10:
        log.put("later-6", "later-7", "later-8", "later-9")
    log.delete_before(below)


def refusing() -> World:
    world = World(idle_s_max=2.0)
    filled(world, 6)
    world.target.topics["t.copy"].refuses = frozenset({"t[0]-3"})
    return world


def with_aside() -> World:
    world = refusing()
    world.target.create(ASIDE.topic)
    return world


def closed(world: World, name: str = "") -> Occurrence:
    (it,) = [it for it in world.occurrences(name) if not it.is_open]
    return it


def test_what_the_source_has_lost_is_skipped_at_the_next_start() -> None:
    world = losing()
    world.run()
    decision = world.resolve(Command.SKIP, A)
    assert (decision.offset, decision.end) == (6, 8)
    assert world.run("another") is None
    assert world.copied(A) == [*numbered("t[0]", 6), "later-8", "later-9"]
    assert world.position(A) == 10
    it = closed(world)
    assert it.closing is not None
    assert (it.closing.effect, it.moved, it.closing.decision, it.closing.by) == (
        Ending.SKIPPED,
        (6, 8),
        decision,
        "another",
    )
    (told,) = world.told("decided")
    assert (told["command"], told["by"], told["why"], told["end"]) == ("skip", "ann", "w", 8)
    world.run("a third")
    assert [it.is_open for it in world.occurrences()] == [False]


def test_a_running_lane_acts_within_about_a_second() -> None:
    world = losing()
    written: list[float] = []

    def decide() -> None:
        world.resolve(Command.SKIP, A)
        written.append(world.time_s)

    def act() -> None:
        written.append(world.time_s)

    world.actions[world.calls + 60] = decide
    world.on.append(("step.after_decision", act))
    assert world.run("another") is None
    assert world.copied(A) == [*numbered("t[0]", 6), "later-8", "later-9"]
    assert 0 < written[1] - written[0] <= 1.5
    assert isinstance(world.states()[A], Copying)


def test_the_position_moves_to_exactly_the_end_that_was_decided_and_what_is_lost_beyond_is_another_incident() -> None:
    world = losing()
    world.run()
    first = world.resolve(Command.SKIP, A)
    lose(world, 9)
    world.run("another")
    assert world.position(A) == 8
    assert isinstance(world.states()[A], Stopped)
    done, beyond = sorted(world.occurrences(), key=lambda it: it.is_open)
    assert (done.id, done.moved) == (first.occurrence, (6, 8))
    assert (beyond.offset, beyond.end, beyond.is_open) == (8, 9, True)
    world.resolve(Command.SKIP, A)
    world.run("a third")
    assert world.copied(A) == [*numbered("t[0]", 6), "later-9"]
    assert [it.moved for it in world.occurrences()] == [(6, 8), (8, 9)]


def test_one_refused_record_is_skipped_and_what_follows_is_copied() -> None:
    world = refusing()
    world.run()
    world.resolve(Command.SKIP, A)
    assert world.run("another") is None
    assert world.copied(A) == [value for value in numbered("t[0]", 6) if value != "t[0]-3"]
    assert closed(world).moved == (3, 4)
    assert world.copied(B) == numbered("t[1]", 6)


def test_a_refused_record_is_skipped_under_the_running_lane() -> None:
    world = refusing()
    world.idle_s_max = 5.0
    world.actions[75] = lambda: ignored(world.resolve(Command.SKIP, A))
    assert world.run() is None
    assert world.copied(A) == [value for value in numbered("t[0]", 6) if value != "t[0]-3"]


def ignored(value: object) -> None:
    """An action returns nothing."""


def test_a_record_that_the_target_takes_now_is_copied_whatever_was_decided() -> None:
    world = refusing()
    world.run()
    world.resolve(Command.SKIP, A)
    world.target.topics["t.copy"].refuses = frozenset()
    world.run("another")
    assert world.copied(A) == numbered("t[0]", 6)
    it = closed(world)
    assert it.closing is not None
    assert (it.closing.effect, it.moved) == (Ending.GONE, None)


def test_retry_judges_again_under_the_running_lane() -> None:
    world = refusing()
    world.idle_s_max = 5.0

    def mend() -> None:
        world.target.topics["t.copy"].refuses = frozenset()
        world.resolve(Command.RETRY, A)

    world.actions[75] = mend
    assert world.run() is None
    assert world.copied(A) == numbered("t[0]", 6)
    it = closed(world)
    assert it.closing is not None
    assert it.closing.effect is Ending.RETRIED


def test_retried_in_vain_it_is_another_one_and_the_decision_is_used_up() -> None:
    for world in (refusing(), losing()):
        world.run()
        before = world.resolve(Command.RETRY, A)
        world.run("another")
        (again,) = [it for it in world.occurrences() if it.is_open]
        assert again.id != before.occurrence
        assert closed(world).id == before.occurrence
        world.run("a third")
        assert len(world.occurrences()) == 2
        assert len(world.told("decided")) == 1


def test_what_a_retry_has_not_mended_is_logged_again_behind_the_decision() -> None:
    world = losing()
    world.idle_s_max = 5.0

    def retry() -> None:
        world.resolve(Command.RETRY, A)

    world.actions[world.calls + 60] = retry
    began = len(world.events)
    world.run("another")
    told = [event["event"] for event in world.events[began:] if event["event"] in ("incident", "decided")]
    assert told == ["incident", "decided", "incident"]


def test_a_decision_that_was_written_over_other_facts_does_nothing() -> None:
    world = losing()
    world.run()
    decision = world.resolve(Command.SKIP, A)
    world.write(type(decision)(**{**decision.content(), "command": Command.SKIP, "end": 9}))
    world.run("another")
    assert world.position(A) == 6
    assert world.told("decided") == []


def test_nothing_is_skipped_in_a_topic_that_was_made_again() -> None:
    world = losing()

    def recreate() -> None:
        world.source.delete("t")
        world.source.create("t", 2)
        world.source.log(A).put(*numbered("new", 12))

    world.run()
    world.resolve(Command.SKIP, A)
    world.on.append(("step.claimed", recreate))
    world.run("another")
    assert world.position(A) == 6
    assert world.incidents()[A] == "source_topic_recreated"
    assert all(it.moved is None for it in world.occurrences())


def test_a_right_that_is_missing_holds_a_decision_up_and_nobody_else() -> None:
    world = losing()
    world.run()
    world.idle_s_max = 40.0
    world.resolve(Command.SKIP, A)

    def deny(name: str) -> None:
        raise NotAllowed("Read on topic t.copy", [A])

    world.on.append(("step.before_decision", lambda: world.faults.update({world.calls + 1: deny})))
    world.run("another")
    assert world.copied(A) == [*numbered("t[0]", 6), "later-8", "later-9"]
    assert closed(world).moved == (6, 8)


def test_a_refused_record_is_set_aside_in_the_transaction_of_the_position() -> None:
    world = with_aside()
    world.run()
    decision = world.resolve(Command.SET_ASIDE, A)
    world.run("another")
    set_aside(world)
    (headers,) = world.target.aside_headers
    said = {name: value.decode() for name, value in headers.items() if value is not None}
    assert said.pop("eos.detail")
    assert said == {
        "h": "1",
        "eos.source.cluster": "west-id",
        "eos.source.topic": "t",
        "eos.source.partition": "0",
        "eos.source.offset": "3",
        "eos.source.timestamp": "7",
        "eos.target.topic": "t.copy",
        "eos.reason": "record_refused",
        "eos.occurrence": decision.occurrence,
        "eos.by": "ann",
        "eos.why": "w",
        "eos.kept": "whole",
    }
    it = closed(world)
    assert it.closing is not None
    assert (it.closing.effect, it.closing.kept) == (Ending.SET_ASIDE, "whole")


def test_without_its_topic_nothing_is_set_aside_and_everything_else_goes_on() -> None:
    world = refusing()
    world.run()
    world.resolve(Command.SET_ASIDE, A)
    world.source.log(B).put("more")
    world.run("another")
    assert world.position(A) == 3
    assert world.copied(B) == [*numbered("t[1]", 6), "more"]
    assert len(world.told("decision_postponed")) == 1
    assert world.told("restarted") == []


def test_a_topic_that_takes_nothing_holds_nobody_up() -> None:
    world = with_aside()
    world.run()
    world.resolve(Command.SET_ASIDE, A)
    world.idle_s_max = 45.0

    def refuse(name: str) -> None:
        raise Abortable("it takes nothing")

    world.on.append(("west.record", lambda: world.faults.update({world.calls + 1: refuse})))
    world.run("another")
    assert len(world.told("decision_postponed")) == 1
    set_aside(world)


def test_a_record_that_compaction_has_taken_is_nothing_to_set_aside() -> None:
    world = with_aside()
    world.run()
    world.resolve(Command.SET_ASIDE, A)

    def compact() -> None:
        world.source.log(A).entries[3].fate = Fate.ABORTED

    world.on.append(("west.record", compact))
    world.run("another")
    assert world.position(A) == 6
    assert world.copied(A) == [value for value in numbered("t[0]", 6) if value != "t[0]-3"]
    assert world.target.log(ASIDE).committed() == []
    it = closed(world)
    assert it.closing is not None
    assert (it.closing.effect, it.moved) == (Ending.GONE, None)


Provoke = Callable[[], World]


def skipped_gap(world: World) -> None:
    assert world.copied(A) == [*numbered("t[0]", 6), "later-8", "later-9"]
    assert [it.moved for it in world.occurrences() if it.moved] == [(6, 8)]


def skipped_record(world: World) -> None:
    assert world.copied(A) == [value for value in numbered("t[0]", 6) if value != "t[0]-3"]
    assert [it.moved for it in world.occurrences() if it.moved] == [(3, 4)]


def set_aside(world: World) -> None:
    assert world.copied(A) == [value for value in numbered("t[0]", 6) if value != "t[0]-3"]
    assert [entry.value for _, entry in world.target.log(ASIDE).committed()] == ["t[0]-3"]
    assert [it.moved for it in world.occurrences() if it.moved] == [(3, 4)]


def retried(world: World) -> None:
    assert world.copied(A) == numbered("t[0]", 6)
    assert all(it.moved is None for it in world.occurrences())


@pytest.mark.parametrize(
    ("provoke", "command", "check"),
    [
        pytest.param(losing, Command.SKIP, skipped_gap, id="gap"),
        pytest.param(refusing, Command.SKIP, skipped_record, id="record", marks=pytest.mark.tier("full")),
        pytest.param(with_aside, Command.SET_ASIDE, set_aside, id="aside", marks=pytest.mark.tier("full")),
        pytest.param(refusing, Command.RETRY, retried, id="retry"),
    ],
)
def test_killed_at_any_call_it_is_done_once(provoke: Provoke, command: Command, check: Callable[[World], None]) -> None:
    """At each call of a lane its process dies, before the call or (`end_answered`) after it took effect; another one
    goes on. A test that finds no more calls to die at has been through all of them."""

    def decided() -> World:
        world = provoke()
        world.run()
        world.resolve(command, A)
        if command is Command.RETRY:
            world.target.topics["t.copy"].refuses = frozenset()
        return world

    for world in killed_at_each_call(decided):
        check(world)
        assert [it for it in world.occurrences() if it.is_open] == []


@pytest.mark.parametrize("applied", [False, True])
def test_a_commit_whose_outcome_is_unknown_is_done_once(applied: bool) -> None:
    world = losing()
    world.run()
    world.resolve(Command.SKIP, A)

    def lose_answer(name: str) -> None:
        raise UnknownOutcome("no answer")

    def arm() -> None:
        world.on.append(("plane.end_answered" if applied else "plane.end", lambda: lose_answer("")))

    world.on.append(("step.before_end_decision", arm))
    world.run("another")
    skipped_gap(world)
    assert len(world.told("decided")) == 1 - applied

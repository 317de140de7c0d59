"""Invariant 4: whoever admits a partition of the first listing, however late, begins where the flow was opened."""

from __future__ import annotations

import pytest

from replicator.lane.partition import Copying
from replicator.model.commands import Command
from replicator.model.errors import UnknownOutcome
from replicator.state.claims import read_claims
from tests.replicator.lane.fakes.loads import A, B, U, filled, numbered
from tests.replicator.lane.fakes.map_truth import target_of
from tests.replicator.lane.fakes.world import World


def opened(start: str = "latest") -> World:
    """A flow that was opened over eight records in each partition, which are not to be copied."""
    world = World(start)
    filled(world)
    world.open_flow()
    return world


def put(world: World) -> None:
    """One record in each partition, after the flow was opened."""
    for at in (A, B, U):
        world.source.log(at).put(f"after {at}", at_ms=2_000_000_000_000)


@pytest.mark.parametrize("start", ["latest", "2026-01-01T00:00:00Z"])
def test_records_between_the_open_record_and_the_first_claim_are_copied(start: str) -> None:
    """As after a crash there."""
    world = opened(start)
    put(world)
    assert world.run() is None
    assert [world.copied(at) for at in (A, B, U)] == [[f"after {at}"] for at in (A, B, U)]


def test_what_is_written_while_a_partition_waits_is_copied() -> None:
    world = opened()
    world.target.denied["t.copy"] = {"Write"}
    world.run()
    put(world)
    world.run("another")
    assert (world.copied(A), world.copied(U)) == ([], ["after u[0]"])
    del world.target.denied["t.copy"]
    assert world.run("a third") is None
    assert [world.copied(at) for at in (A, B)] == [["after t[0]"], ["after t[1]"]]


def test_what_was_written_and_deleted_since_is_a_loss_that_is_told() -> None:
    world = opened()
    put(world)
    world.source.log(A).delete_before(9)
    assert world.run() is None
    assert world.incidents() == {A: "source_records_gone"}
    assert world.copied(B) == ["after t[1]"]


def test_a_log_that_was_cut_below_the_start_is_told() -> None:
    """What is written up to the start would never be copied."""
    world = opened()
    world.source.log(A).truncate(5)
    assert world.run() is None
    assert world.incidents() == {A: "source_truncated"}
    assert isinstance(world.states()[B], Copying)


def _cut_below_the_start(world: World) -> None:
    world.source.log(A).truncate(4)
    world.source.log(A).put("new", epoch=1)


def _grown_past_the_start(world: World) -> None:
    world.source.log(A).put(*numbered("newer", 5), epoch=1)


def _begins_with_its_claim(world: World) -> None:
    """Once an operator has decided, it begins at the start that was resolved, as any other."""
    assert world.position(A) == -1
    assert world.incidents() == {A: "source_truncated"}
    world.resolve(Command.RETRY, A)
    assert world.run("the next one") is None
    claim = read_claims(world.target.claims).claims[target_of(A)]
    assert (claim.offset, world.position(A)) == (8, 10)
    assert world.copied(A) == ["newer-3", "newer-4"]


def test_a_log_that_has_grown_past_the_start_since_begins_with_a_claim_or_not_at_all() -> None:
    """The incident stays until somebody decides, though nothing shows it any more."""
    world = opened()
    _cut_below_the_start(world)
    assert world.run() is None
    _grown_past_the_start(world)
    for owner in ("another", "a third"):
        assert world.run(owner) is None
    _begins_with_its_claim(world)


def test_also_in_a_later_session_of_the_same_process() -> None:
    world = opened()
    _cut_below_the_start(world)

    def grow() -> None:
        _grown_past_the_start(world)
        raise UnknownOutcome("no reply")

    world.on.append(("plane.poll", grow))
    assert world.run() is None
    assert len(world.told("restarted")) == 1
    _begins_with_its_claim(world)


def test_a_topic_that_was_created_again_begins_at_earliest() -> None:
    """The stored offset is of another topic."""
    world = opened()
    world.source.delete("t")
    world.source.create("t", 2)
    put(world)
    assert world.run() is None
    assert world.copied(A) == ["after t[0]"]


def test_partitions_that_appear_later_begin_at_earliest() -> None:
    world = opened()
    world.source.create("t9", 1).logs[0].put("first of t9")
    world.target.create("t9.copy", 1)
    assert world.run() is None
    assert [e.value for _, e in world.target.topics["t9.copy"].logs[0].committed()] == ["first of t9"]


def test_a_start_that_is_edited_after_the_flow_was_opened_moves_nothing() -> None:
    world = opened("earliest")
    world.flow = World("latest").flow
    assert world.run() is None
    assert len(world.copied(A)) == 8

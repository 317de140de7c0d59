"""Transactions of the lane's own producer that Kafka has left open in a target partition: which of them it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.lane.own_transactions import Left, decide_marker
from replicator.lane.partition import Copying, Stopped
from replicator.model.checkpoint import Evidence
from replicator.model.errors import Abortable, Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.model.transactions import Marker, OpenTransaction, ProducerState
from tests.replicator.lane.fakes.loads import A, B, U, filled, held
from tests.replicator.lane.fakes.log import Fate
from tests.replicator.lane.fakes.world import World

AT, COPY = Partition("u.copy", 0), Partition("u.copy", 0)
OWN = ProducerState("Empty", 1_000, 5)
LATE = OpenTransaction(1_000, 4, 11, 3)
"""Behind what the position covers."""
LOST = replace(LATE, start=6)
"""Begins with the block that was committed with the position."""
FOREIGN = OpenTransaction(2_000, 0, 11, -1)
POSITION = Evidence(
    generation=1,
    owner="me",
    source_topic="u",
    source_cluster="west",
    source_topic_id="s",
    target_topic_id="t",
    next_target_offset=10,
    block_first=6,
    block_count=4,
)


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
@pytest.mark.parametrize("epoch", [0, 4, 5])
def test_what_the_position_does_not_cover_is_aborted(state: str, epoch: int) -> None:
    mine = replace(LATE, epoch=epoch)
    own = replace(OWN, state=state)
    assert decide_marker(AT, [FOREIGN, mine], own, POSITION, 13) == Marker(AT, mine, commit=False)
    nothing = replace(POSITION, next_target_offset=0, block_first=-1)
    first = replace(mine, start=0)
    assert decide_marker(AT, [first], own, nothing, 1) == Marker(AT, first, commit=False)


def test_what_was_committed_with_the_position_is_committed() -> None:
    assert decide_marker(AT, [LOST], OWN, POSITION, 10) == Marker(AT, LOST, commit=True)


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"])
def test_a_coordinator_that_has_yet_to_end_it_is_waited_for(state: str) -> None:
    assert isinstance(decide_marker(AT, [LATE], replace(OWN, state=state), POSITION, 13), Retriable)


def test_one_that_has_ended_meanwhile_is_looked_at_again() -> None:
    assert isinstance(decide_marker(AT, [], OWN, POSITION, 13), Retriable)


@pytest.mark.parametrize(
    ("open_", "end", "abort_at"),
    [
        pytest.param(FOREIGN, 13, 11, id="of another producer"),
        pytest.param(replace(FOREIGN, start=6), 13, None, id="of another producer, over records of the position"),
        pytest.param(replace(LATE, epoch=6), 13, None, id="of a successor"),
        pytest.param(replace(LATE, start=9), 13, None, id="over a part of what the position covers"),
        pytest.param(LOST, 12, None, id="with more than what the position covers"),
        pytest.param(replace(LOST, start=5), 10, None, id="with what an earlier position covered"),
    ],
)
def test_any_other_is_left_open(open_: OpenTransaction, end: int, abort_at: int | None) -> None:
    found = decide_marker(AT, [open_], OWN, POSITION, end)
    assert isinstance(found, Left)
    assert found.abort_at == abort_at


def hang(world: World, *values: str, epoch: int = 1, producer: str = "eos.f.1.0") -> None:
    """A batch that came after its transaction had ended."""
    log = world.target.log(COPY)
    log.put(*values, fate=Fate.OPEN)
    for entry in log.entries[-len(values) :]:
        entry.producer = (producer, epoch)


def test_a_late_batch_of_the_predecessor_is_aborted_at_the_start() -> None:
    world = World()
    filled(world)
    world.run()
    hang(world, "late", "later")
    for at in (A, B, U):
        world.source.log(at).put("next")
    assert world.run("other") is None
    world.check_exact(held(world))
    assert [world.position(at) for at in (A, B, U)] == [9, 9, 9]
    (told,) = world.told("open_transaction_ended")
    assert (told["topic"], told["partition"]) == ("u", 0)
    assert "is aborted" in str(told["detail"])
    assert not world.told("incident")


def test_a_lost_marker_is_committed_at_the_next_start() -> None:
    """Kafka 4.3 skips that of a partition which has no leader just then."""
    world = World()
    filled(world)
    log = world.target.log(COPY)

    def lose() -> None:
        log.drops_markers = True

    world.on.append(("step.before_offsets", lose))
    assert world.run() is None
    assert world.copied(U) == [], "readers wait for the marker"
    log.drops_markers = False
    assert world.run("other") is None
    world.check_exact(held(world))
    assert [world.position(at) for at in (A, B, U)] == [8, 8, 8]
    (told,) = world.told("open_transaction_ended")
    assert "is committed" in str(told["detail"])


def test_a_lost_marker_of_an_abort_is_written_before_anything_else_is() -> None:
    world = World()
    filled(world)
    log = world.target.log(COPY)

    def lose() -> None:
        log.drops_markers = True
        raise Abortable("a broker is away")

    def again() -> None:
        log.drops_markers = False

    world.on += [("step.before_offsets", lose), ("east.end_open", again)]
    assert world.run() is None
    world.check_exact(held(world))
    assert [world.position(at) for at in (A, B, U)] == [8, 8, 8]
    (told,) = world.told("open_transaction_ended")
    assert "is aborted" in str(told["detail"])


def between(world: World, producer: str) -> None:
    """Something is left open in U between two transactions of the lane."""

    def meddle() -> None:
        hang(world, "late", producer=producer)
        for at in (A, U):
            world.source.log(at).put("later")

    world.on.append(("step.after_end_txn", meddle))


def test_a_late_batch_between_two_transactions_is_never_committed() -> None:
    """The marker of the next commit would commit it: so that transaction is aborted, and the late batch with it."""
    world = World()
    filled(world)
    between(world, "eos.f.1.0")
    assert world.run() is None
    world.check_exact(held(world))
    assert [world.position(at) for at in (A, B, U)] == [9, 8, 9]
    assert not world.told("incident")


def test_one_of_somebody_else_between_two_transactions_stops_its_partition() -> None:
    world = World()
    filled(world)
    between(world, "another")
    assert world.run() is None
    assert world.incidents() == {U: "target_transaction_open"}
    assert world.copied(A)[-1] == "later"


def test_one_of_somebody_else_stops_its_partition_and_what_to_type_is_told() -> None:
    world = World()
    filled(world)
    world.run()
    hang(world, "somebody's", producer="another")
    world.source.log(A).put("next")
    assert world.run("other") is None
    assert world.incidents() == {U: "target_transaction_open"}
    (told,) = world.told("incident")
    command = "kafka-transactions.sh --bootstrap-server e:1 abort --topic u.copy --partition 0 --start-offset 9"
    assert command in str(told["detail"])
    assert isinstance(world.states()[A], Copying)
    assert world.copied(A)[-1] == "next"


def test_without_the_right_to_write_markers_it_stops_and_says_which() -> None:
    world = World()
    filled(world)
    world.run()
    hang(world, "late")
    world.target.no_markers = True
    assert world.run("other") is None
    stopped = world.states()[U]
    assert isinstance(stopped, Stopped)
    assert "Alter or ClusterAction on the cluster" in stopped.incident.detail
    assert "--start-offset 9" in stopped.incident.detail
    assert not world.told("open_transaction_ended")


def test_a_broker_that_does_not_answer_is_asked_again() -> None:
    world = World()
    filled(world)
    world.run()
    hang(world, "late")

    def fail() -> None:
        raise Unreachable("cluster east: no answer")

    world.on += [("east.open_in", fail), ("east.producer", fail), ("east.end_open", fail)]
    assert world.run("other") is None
    world.check_exact(held(world))
    assert len(world.told("open_transaction_ended")) == 1
    assert isinstance(world.states()[U], Copying)
    assert not world.told("incident")

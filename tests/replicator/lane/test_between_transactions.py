"""What acknowledgements tell of the target between two transactions, and what the target is asked for besides."""

from __future__ import annotations

from replicator.lane.partition import Copying, Stopped
from replicator.model.errors import Abortable, Retriable
from replicator.model.incident_kinds import KINDS
from replicator.model.partition import Partition
from tests.replicator.lane.fakes.loads import A, U, filled, numbered
from tests.replicator.lane.fakes.log import Fate
from tests.replicator.lane.fakes.world import World


def test_the_target_is_asked_for_ids_where_acks_do_not_tell_them() -> None:
    """Acks that go on behind the last marker are those of the same topic; each commit asks the source."""
    world = World()
    filled(world, 3)
    for number in range(4):
        world.on.append(("plane.end", lambda number=number: world.source.log(A).put(f"more-{number}")))  # type: ignore[misc]
    assert world.run() is None
    assert world.copied(A)[-4:] == [f"more-{number}" for number in range(4)]
    commits, source, target = (
        world.trace.count(call) for call in ("step.after_end_txn", "west.topic_ids", "east.topic_ids")
    )
    assert commits >= 4
    assert source >= commits
    assert source - target >= 3


def test_a_target_topic_made_again_is_not_written_under_the_old_position() -> None:
    """Empty, or filled by somebody up to behind the position: the acks are no longer those that must follow."""
    for foreign in (0, 20):
        world = World()
        filled(world, 3)

        def made_again(world: World = world, foreign: int = foreign) -> None:
            world.target.delete("u.copy")
            world.target.create("u.copy", 1).logs[0].put(*numbered("foreign", foreign))
            world.source.log(U).put("later")

        world.on.append(("step.after_end_txn", made_again))
        assert world.run() is None
        assert world.incidents()[U] == "target_topic_recreated"
        assert "later" not in world.copied(U)
        assert isinstance(world.states()[A], Copying)


def test_records_of_somebody_else_between_two_transactions_stop_their_partition() -> None:
    """Ids don't tell, and the end of the target was looked at when the lane started."""
    world = World()
    filled(world, 3)

    def meddle() -> None:
        world.target.log(Partition("u.copy", 0)).put("somebody's")
        world.source.log(U).put("later")
        world.source.log(A).put("later")

    world.on.append(("step.after_end_txn", meddle))
    assert world.run() is None
    assert world.incidents() == {U: "target_has_later_records"}
    (stopped,) = [state for state in world.states().values() if isinstance(state, Stopped)]
    assert stopped.incident.advice == KINDS["target_has_later_records"].advice, "the log says what the page says"
    assert world.copied(U)[-1] == "somebody's"
    assert world.copied(A)[-1] == "later"
    assert isinstance(world.states()[A], Copying)


def test_markers_of_others_cost_no_transaction() -> None:
    """As by a coordinator that was killed between the markers and its note that they are written, or by a producer
    that writes nothing but aborted records."""
    world = World()
    filled(world, 3)
    left = [5]

    def marker() -> None:
        left[0] -= 1
        if left[0]:
            world.on.append(("step.after_end_txn", marker))
        world.target.log(Partition("u.copy", 0)).put("aborted", fate=Fate.ABORTED)
        world.target.log(Partition("u.copy", 0)).marker()
        world.source.log(U).put(f"later-{left[0]}")

    world.on.append(("step.after_end_txn", marker))
    assert world.run() is None
    assert not world.incidents()
    assert world.copied(U)[-1] == "later-0"
    assert not world.told("aborted")


def test_a_record_of_somebody_else_before_the_first_transaction_of_a_session_is_found() -> None:
    """The end of the target was looked at before."""
    world = World()
    filled(world, 3)
    assert world.run() is None

    def meddle() -> None:
        world.target.log(Partition("u.copy", 0)).put("somebody's")
        world.source.log(U).put("later")

    world.on.append(("plane.seek", lambda: world.on.append(("plane.poll", meddle))))
    assert world.run() is None
    assert world.incidents()[U] == "target_has_later_records"
    assert world.copied(U)[-1] == "somebody's"


def test_a_record_of_somebody_else_after_an_abort_is_found() -> None:
    world = World()
    filled(world, 3)

    def meddle() -> None:
        world.target.log(Partition("u.copy", 0)).put("somebody's")

    def fail() -> None:
        world.on.append(("plane.seek", meddle))
        raise Abortable("a record was not acknowledged")

    def later() -> None:
        world.source.log(U).put("later")
        world.on.append(("plane.flush", fail))

    world.on.append(("step.after_end_txn", later))
    assert world.run() is None
    assert world.incidents()[U] == "target_has_later_records"
    assert world.copied(U)[-1] == "somebody's"


def test_the_target_does_not_tell_what_stands_between() -> None:
    """Nothing is committed then; the lane starts anew, and everything is copied once."""
    world = World()
    filled(world, 3)

    def fail() -> None:
        assert "later" not in world.copied(U)
        raise Retriable("the end can't be read")

    def marker() -> None:
        world.target.log(Partition("u.copy", 0)).marker()
        world.source.log(U).put("later")
        world.on.append(("east.log_ends", fail))

    world.on.append(("step.after_end_txn", marker))
    assert world.run() is None
    assert not world.incidents()
    assert len(world.told("restarted")) == 1
    assert world.copied(U) == [*numbered(str(U), 3), "later"]

"""When a lane looks for decisions, and that it waits for nobody meanwhile."""

from __future__ import annotations

from replicator.model.commands import Command
from replicator.model.partition import Partition
from tests.replicator.lane.fakes.loads import filled
from tests.replicator.lane.fakes.log import Fate
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_decisions import A, lose, losing


def test_the_control_topic_is_looked_at_only_while_something_has_stopped() -> None:
    world = World()
    filled(world, 6)
    world.run()
    fine = world.trace.count("east.log_ends")
    world.trace.clear()
    lose(world, 8)
    world.run("another")
    assert world.trace.count("state.control") <= 2, "it is read once more, and then only its end is asked for"
    assert world.trace.count("east.log_ends") > fine + 10


def test_a_transaction_that_is_open_in_the_control_topic_is_not_waited_for() -> None:
    world, at_s = losing(), list[float]()
    control = world.target.log(Partition("__eos.f.control", 0))

    def decide() -> None:
        world.resolve(Command.SKIP, A)
        control.put("somebody's", fate=Fate.OPEN)
        world.on.append(("state.control", lambda: at_s.append(world.time_s)))
        world.actions[world.calls + 100] = end

    def end() -> None:
        assert not at_s, "whoever reads it waits for the end of that, and the lane's other partitions would"
        control.entries[-1].fate = Fate.COMMITTED
        at_s.append(world.time_s)

    world.actions[world.calls + 60] = decide
    assert world.run("another") is None
    assert at_s[1] - at_s[0] <= 1.5
    assert world.position(A) == 10

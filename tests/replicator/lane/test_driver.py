"""A lane's thread: producer sessions one after the other, and what its owner hears of it."""

from __future__ import annotations

import queue
import threading
from itertools import pairwise

import pytest

from replicator.lane.driver import BACKOFF_S, BACKOFF_S_MAX, WAITING_AFTER, CountsChanged, DriverEvent, LaneEnded
from replicator.lane.partition import Copying, Waiting
from replicator.lane.permit import Unasked
from replicator.model.checkpoint import NOBODY
from replicator.model.errors import Fenced, Incident, ReplicatorError, Retriable, UnknownOutcome, Unreachable
from replicator.model.partition import Partition
from tests.replicator.lane.fakes.loads import A, B, filled, held, numbered
from tests.replicator.lane.fakes.world import CONTROL, World

FAILURES = 30
JOIN_S_MAX = 60.0


def heard(events: queue.SimpleQueue[DriverEvent]) -> list[DriverEvent]:
    found: list[DriverEvent] = []
    while not events.empty():
        found.append(events.get())
    return found


def fail_at(world: World, call: str, error: Exception, times: int) -> list[float]:
    """The next calls of that name fail; returned is when they were made, those that succeed too."""
    made_s: list[float] = []

    def fail() -> None:
        world.on.append((call, fail))
        made_s.append(world.time_s)
        if len(made_s) <= times:
            raise error

    world.on.append((call, fail))
    return made_s


def test_a_lane_that_is_stopped_before_it_begins_asks_no_cluster() -> None:
    world = World()
    lane, _ = world.lane()
    lane.stop()
    lane.drive()
    assert world.trace == []


def test_the_owner_hears_what_partitions_do_and_how_the_lane_has_ended() -> None:
    world = World()
    filled(world, 3)
    lane, events = world.lane()
    lane.start()
    assert lane.join(JOIN_S_MAX)
    *told, last = heard(events)
    assert last == LaneEnded(0, None)
    (counts,) = told
    assert isinstance(counts, CountsChanged)
    assert (counts.counts.copying, counts.counts.waiting, counts.counts.stopped) == (3, 0, 0)
    assert set(map(type, lane.states.values())) == {Copying}


def test_a_bug_and_an_incident_of_the_flow_end_the_lane_and_are_told() -> None:
    for error in (ZeroDivisionError("bug"), Incident("control_topic_lost", "it is not there")):
        world = World()
        filled(world, 3)
        fail_at(world, "plane.poll", error, 1)
        lane, events = world.lane()
        lane.start()
        assert lane.join(JOIN_S_MAX)
        assert heard(events)[-1] == LaneEnded(0, error)
        assert world.position(A) == 0


def test_a_lane_that_an_incident_of_the_flow_ends_while_it_runs_releases_its_positions() -> None:
    """`rebuild-control` is refused while the process holds positions, and nobody could tell that it has gone."""
    world = World(idle_s_max=30.0)
    filled(world, 6)
    assert world.run() is None
    world.source.log(A).put("later-6", "later-7")
    world.source.log(A).delete_before(7)
    lane, events = world.lane("second")

    def lose() -> None:
        assert world.owner(B) == "second"
        raise Incident("control_topic_lost", "it is not there", topic=CONTROL.topic)

    world.on.append(("plane.poll", lose))
    lane.start()
    assert lane.join(JOIN_S_MAX)
    last = heard(events)[-1]
    assert isinstance(last, LaneEnded)
    assert "control_topic_lost" in str(last.error)
    assert {(world.position(at), world.owner(at)) for at in (A, B)} == {(6, NOBODY)}


def test_a_lane_that_finds_the_control_topic_gone_before_its_session_is_open_writes_nothing() -> None:
    """Whether its generation is still the open one isn't known: another one may have begun, and read the positions."""
    world = World()
    filled(world, 6)
    world.run("first")
    world.state.lost = True
    before = dict(world.target.offsets)
    assert "control_topic_lost" in str(world.run("second"))
    assert world.target.offsets == before


def test_a_lane_that_is_given_other_routes_starts_over_with_them_and_doubles_nothing() -> None:
    world = World()
    filled(world, 7)
    lane, _ = world.lane()

    def discover() -> None:
        world.source.create("t-new", 1)
        world.target.create("t-new.copy", 1)
        world.source.log(Partition("t-new", 0)).put(*numbered("new", 3))
        lane.reassign(world.plan())

    world.on.append(("step.mid_batch", discover))
    lane.drive()
    world.check_exact(held(world))
    assert world.copied(Partition("t-new", 0)) == numbered("new", 3)
    assert world.trace.count("plane.fence") == 2


def test_before_its_first_start_a_lane_tries_as_long_as_a_cluster_may_take_to_answer() -> None:
    world = World(idle_s_max=1e6)
    filled(world, 3)
    began_s, made_s = world.time_s, fail_at(world, "plane.fence", Unreachable("east is away"), 1_000)
    assert isinstance(world.run(), Unreachable)
    assert made_s[-1] - began_s >= world.flow.limits.connect_timeout_ms / 1000
    assert len(made_s) > 2


def test_a_lane_that_has_started_once_tries_on_with_pauses_that_have_a_bound() -> None:
    world = World(idle_s_max=1e6)
    filled(world, 3)
    lane, _ = world.lane()
    fences_s: list[float] = []
    waiting: list[int] = []

    def fence() -> None:
        fences_s.append(world.time_s)
        waiting.append(sum(isinstance(state, Waiting) for state in lane.states.values()))
        if len(fences_s) > FAILURES:
            world.idle_s_max = 1.0
            return
        world.on.append(("plane.fence", fence))
        raise Retriable("away")

    def lose() -> None:
        world.on.append(("plane.fence", fence))
        raise Retriable("away")

    world.on.append(("step.after_end_txn", lambda: world.on.append(("plane.poll", lose))))
    lane.drive()
    pauses = [later - earlier for earlier, later in pairwise(fences_s)]
    assert BACKOFF_S_MAX / 20 < max(pauses) <= BACKOFF_S_MAX
    assert (waiting[0], waiting[WAITING_AFTER]) == (0, 3), "after a while it is said"
    assert world.position(A) == 3
    assert set(map(type, lane.states.values())) == {Copying}


def test_the_winner_tells_from_whom_it_took_over() -> None:
    world = World()
    filled(world, 3)
    fail_at(world, "plane.poll", ZeroDivisionError("killed"), 1)
    with pytest.raises(ZeroDivisionError):
        world.run("killed")
    assert world.told("took_over") == [], "nobody was there before"
    world.run("winner")
    (told,) = world.told("took_over")
    assert (told["owner"], told["partitions"]) == ("killed", 3)
    world.run("after a clean stop")
    assert len(world.told("took_over")) == 1


def test_a_lane_that_commits_between_its_failures_makes_no_longer_pauses() -> None:
    world = World()
    filled(world, 3)

    def poll() -> None:
        failures = len(world.told("restarted"))
        if failures == FAILURES:
            return
        world.on.append(("plane.poll", poll))
        if len(world.told("committed")) > failures:
            world.source.log(A).put("more")
            raise Retriable("away")

    world.on.append(("plane.poll", poll))
    world.run()
    restarted = world.told("restarted")
    assert len(restarted) == FAILURES
    assert max(int(str(event["delay_ms"])) for event in restarted) <= BACKOFF_S * 1000
    assert world.told("waiting") == []


class StoppedBeforeItsSecondFence(Unasked):
    """The stop comes when a session has failed, and the next one has connected."""

    def __init__(self, world: World) -> None:
        self._world, self._asked = world, 0

    def ask(self, pause: threading.Event) -> bool:
        """See `FencePermit`."""
        self._asked += 1
        if self._asked == 2:
            assert self._world.driver is not None
            self._world.driver.stop()
        return super().ask(pause)


@pytest.mark.parametrize(
    "error", [UnknownOutcome("no ack"), Fenced("timed out")], ids=lambda error: type(error).__name__
)
def test_a_stop_before_a_failed_transaction_is_copied_again_gives_it_up(error: ReplicatorError) -> None:
    """Exit code 0 would say that everything is committed; 5 that somebody has taken over, where it was a timeout."""
    world = World()
    filled(world, 3)
    fail_at(world, "plane.flush", error, 1)
    world.permit = StoppedBeforeItsSecondFence(world)
    lane, events = world.lane()
    lane.start()
    assert lane.join(JOIN_S_MAX)
    ended = heard(events)[-1]
    assert isinstance(ended, LaneEnded)
    assert isinstance(ended.error, UnknownOutcome)
    assert world.position(A) == 0

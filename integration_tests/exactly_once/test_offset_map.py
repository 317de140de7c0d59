"""The offset map of a flow, read with another client beside both logs: each offset that it gives is compared."""

from __future__ import annotations

import signal
import time
from datetime import datetime
from itertools import pairwise

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.jobs import Threads, backfill
from integration_tests.harness.proxy import Action, Proxy, Side
from integration_tests.harness.replicator import Event
from replicator.model.names import offsets_topic
from tests.budget import budget

PAUSE_S_MAX = 3.0
STORMS = 4  # deletions; what comes back into the queue does so in one of three or so


def assert_whole(copying: Copying) -> None:
    """The map has all that was copied, without a hole, up to the positions."""
    positions = copying.wait_stable()
    for number, found in enumerate(copying.checked_map()):
        assert found.holes == []
        assert found.map.begin == 0
        assert found.map.passed == positions[number]
        assert [section.base for section in found.sections] == [True] + [False] * (len(found.sections) - 1)


@pytest.mark.tier(kafka="full")
def test_the_map_is_whole_over_kills_and_restarts(make_copying: MakeCopying) -> None:
    copying = make_copying()
    for step in ("before_flush@3", "before_end_txn@2", "after_end_txn@2"):
        with copying.writing():
            worker = copying.run(f"{step}=kill")
            assert worker.wait_exit() == -signal.SIGKILL, worker.tail()
    copying.finish(copying.running())
    assert_whole(copying)


@pytest.mark.tier("full")
def test_a_clean_stop_and_start_go_on_with_the_same_map(make_copying: MakeCopying) -> None:
    copying = make_copying()
    for _ in range(3):
        worker = copying.running()
        with copying.writing():
            worker.wait_event("committed", after=worker.mark())
        assert worker.stop() == 0
    worker = copying.running()
    copying.finish(worker)
    assert_whole(copying)
    assert not worker.seen("map_not_checked")


@pytest.mark.tier("full")
def test_more_and_fewer_lanes_go_on_with_the_same_map(make_copying: MakeCopying) -> None:
    """Lanes write different partitions of the map's topic, and begin where others have ended."""
    copying = make_copying(partitions=6, lanes=1)
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        for lanes in (3, 18, 2):
            copying.file.write(lanes=lanes)
            successor = copying.run()
            assert worker.wait_exit() == 5, worker.tail()
            for lane in range(lanes):
                successor.wait_event("lane_started", lane=lane)
            successor.wait_event("committed", after=successor.mark())
            worker = successor
    copying.finish(worker)
    assert_whole(copying)


@pytest.mark.tier("full")
def test_a_zombie_leaves_nothing_in_the_map(make_copying: MakeCopying) -> None:
    copying = make_copying(limits={"transaction_timeout_ms": 1_500})
    copying.load.mixed(200)
    with copying.writing():
        zombie = copying.run("before_end_txn@2=stop")
        zombie.wait_stopped()
    copying.wait_stable()
    successor = copying.running()
    copying.wait_copied()
    zombie.resume()
    assert zombie.wait_exit() == 5, zombie.tail()
    copying.load.mixed(100)
    copying.finish(successor)
    assert_whole(copying)


@pytest.mark.tier("full")
@pytest.mark.parametrize("api", ["Produce", "AddPartitionsToTxn", "TxnOffsetCommit", "EndTxn"])
@pytest.mark.parametrize("side", list(Side))
def test_messages_that_are_lost_leave_no_hole(make_copying: MakeCopying, proxy: Proxy, api: str, side: Side) -> None:
    copying = make_copying(via=proxy.bootstrap, limits={"request_timeout_ms": 2_000, "transaction_timeout_ms": 4_000})
    with copying.writing():
        worker = copying.running()
        worker.wait_event("committed")
        for nth in (1, 2, 3):
            proxy.rule(api, side, Action.CUT, nth=nth, client=".lane").wait_hit()
            worker.wait_event("committed", after=worker.mark())
    copying.finish(worker)
    assert_whole(copying)


@pytest.mark.tier("full")
def test_a_map_topic_that_is_gone_holds_up_nothing_and_the_map_begins_anew(make_copying: MakeCopying) -> None:
    copying = make_copying()
    worker = copying.running()
    copying.load.mixed(100)
    copying.wait_copied()  # of all partitions: the map of one without a copy begins at 0 again
    with copying.writing():
        assert worker.stop() == 0
        clients.delete_topic(copying.target, offsets_topic(copying.name))
        worker = copying.running()
        worker.wait_event("incident", name="map_lost")
    copying.finish(worker)
    for number, found in enumerate(copying.checked_map()):
        assert found.map.begin > 0
        assert found.map.passed == copying.wait_stable()[number]


@pytest.mark.tier("full")
def test_a_map_topic_that_is_deleted_under_a_lane_holds_it_up_for_seconds_and_is_made_again(
    make_copying: MakeCopying,
) -> None:
    copying = make_copying(limits={"discovery_interval_ms": 3_000})
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        clients.delete_topic(copying.target, offsets_topic(copying.name))
        deleted_s = time.monotonic()
        worker.wait_event("map_off")
        worker.wait_event("committed", after=worker.mark())
        assert time.monotonic() - deleted_s < PAUSE_S_MAX
        worker.wait_event("map_on")
    copying.finish(worker)
    assert [event["name"] for event in worker.seen("incident")] == ["map_lost"]
    positions = copying.wait_stable()
    for number, found in enumerate(copying.checked_map()):
        assert found.map.begin > 0
        assert found.map.passed == positions[number]


@pytest.mark.tier("full")
def test_no_lane_pauses_for_longer_than_seconds_while_the_map_topic_is_deleted_again_and_again(
    make_copying: MakeCopying,
) -> None:
    """A block that is in flight when the topic goes is tried again, and must not hold up the abort."""
    copying = make_copying(lanes=3, partitions=6, limits={"discovery_interval_ms": 1_500})
    worker = copying.running()
    with copying.writing():
        after, lanes = 0, dict[int, int]()
        while sum(lanes.values()) < copying.partitions:
            started = worker.wait_event("lane_started", after=after)
            after, lanes[started["lane"]] = worker.events.index(started) + 1, started["partitions"]
        worker.wait_event("committed")
        for _ in range(budget(STORMS, 4 * STORMS)):
            after = worker.mark()
            clients.delete_topic(copying.target, offsets_topic(copying.name))
            for lane in lanes:
                worker.wait_event("map_on", after=after, lane=lane)
    copying.finish(worker)
    committed = [event for event in worker.seen("committed") if event["records"]]
    pauses = [pause for lane in lanes for pause in _pauses([one for one in committed if one["lane"] == lane])]
    assert max(pauses) <= PAUSE_S_MAX, (sorted(pauses)[-8:], worker.tail())
    positions = copying.wait_stable()
    for number, found in enumerate(copying.checked_map()):
        assert found.map.passed == positions[number]


def _pauses(events: list[Event]) -> list[float]:
    times = [datetime.fromisoformat(event["timestamp"]) for event in events]
    return [(later - earlier).total_seconds() for earlier, later in pairwise(times)]


@pytest.mark.tier("full")
def test_a_map_topic_that_came_back_in_another_shape_is_not_written(make_copying: MakeCopying) -> None:
    """As a broker with auto.create.topics.enable makes it for whoever asks."""
    copying = make_copying(limits={"discovery_interval_ms": 2_000})
    topic = offsets_topic(copying.name)
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        clients.recreate_topic(copying.target, topic, 1)
        worker.wait_event("map_off")
        worker.wait_event("incident", name="map_topic_unfit")
        written = clients.stable_end(copying.target, topic)
        for _ in range(3):
            worker.wait_event("committed", after=worker.mark())
        code, status = copying.asked("status")
        assert code == 0
        assert "map_topic_unfit" in str(status["notes"])
    copying.finish(worker)
    assert clients.stable_end(copying.target, topic) == written


@pytest.mark.tier("full")
def test_a_backfill_and_its_hand_over_leave_no_hole(make_copying: MakeCopying) -> None:
    copying, engine = make_copying(), Threads()
    copying.load.mixed(3_000)
    job, _ = backfill(copying, offsets_max=300)
    job.check()
    job.run(engine)
    engine.close()
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
    copying.finish(worker)
    assert not worker.seen("incident")
    assert_whole(copying)

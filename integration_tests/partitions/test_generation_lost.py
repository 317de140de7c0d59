"""The control topic decides who may copy: without it nobody does, and who is closed by it notices while it is idle."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.compare import compare
from integration_tests.harness.copying import Copying
from integration_tests.harness.jobs import Threads, backfill
from integration_tests.harness.replicator import Event, Replicator
from integration_tests.harness.two_topics import assert_told

INCIDENT, TAKEN_OVER = 4, 5
NOTICED_S = 60.0  # the discovery interval of the tests is a second
PARTITIONS = 6


def control_topic(copying: Copying) -> str:
    """Its name, which is part of the format."""
    return f"__eos.{copying.name}.control"


def idle(make_copying: MakeCopying, lanes: int = 1) -> tuple[Copying, Replicator]:
    """A flow that has copied everything there is."""
    copying = make_copying(partitions=PARTITIONS, lanes=lanes)
    copying.load.plain(300)
    worker = copying.running()
    copying.wait_copied()
    copying.wait_positions()
    return copying, worker


def assert_lost(worker: Replicator, copying: Copying) -> None:
    """It says that the control topic is lost, writes nothing more, and ends with code 4."""
    found = worker.wait_event("incident", name="control_topic_lost", timeout_s=NOTICED_S)
    assert_told(found, control_topic(copying))
    assert worker.wait_exit() == INCIDENT, worker.tail()
    assert control_topic(copying) not in clients.topics(copying.target), "made anew, it would be another one"


def assert_nothing_doubled(copying: Copying) -> None:
    """Every record on the target is there once."""
    verdicts = compare(copying.source, copying.topic, copying.target, copying.copy, copying.partitions)
    doubled = {number: verdict.doubled for number, verdict in verdicts.items() if verdict.doubled}
    assert not doubled, f"doubled, by partition: {doubled}"


@pytest.mark.tier("full")
@pytest.mark.parametrize(
    "writing", [pytest.param(False, id="idle", marks=pytest.mark.tier("full")), pytest.param(True, id="copying")]
)
def test_one_worker_stops(make_copying: MakeCopying, writing: bool) -> None:
    copying, worker = idle(make_copying)
    clients.delete_topic(copying.target, control_topic(copying))
    if writing:
        copying.load.plain(300)
    assert_lost(worker, copying)
    before = copying.target_ends()
    copying.load.plain(50)
    assert_lost(copying.run(), copying)
    assert copying.target_ends() == before, "something was written after the incident"
    assert_nothing_doubled(copying)


def written_by(worker: Replicator, first_lane: int) -> int:
    """A partition of a lane with this number or a higher one, as the worker tells when it commits."""

    def fits(event: Event) -> bool:
        return event["event"] == "committed" and int(event["lane"]) >= first_lane

    committed = worker.wait_any(fits, f"commit of lane {first_lane} or a higher one")
    return int(next(iter(committed["positions"])).rpartition("[")[2].rstrip("]"))


@pytest.mark.tier("extended")
@pytest.mark.parametrize(
    ("before", "lanes"),
    [
        pytest.param(1, 3, id="more lanes", marks=pytest.mark.tier("full")),
        pytest.param(3, 1, id="fewer lanes"),
    ],
)
def test_two_workers_stop_and_double_nothing(make_copying: MakeCopying, before: int, lanes: int) -> None:
    """The second one has another number of lanes, so it would open a generation: the first one's number again.

    With fewer lanes it doesn't know the transactional ids of the first one's other lanes, and doesn't fence them.
    """
    copying, first = idle(make_copying, before)
    partition = written_by(first, lanes if lanes < before else 0)
    clients.delete_topic(copying.target, control_topic(copying))
    copying.file.write(lanes=lanes)
    second = copying.run()

    def decided(event: Event) -> bool:
        return event["event"] in ("incident", "lane_started")

    second.wait_any(decided, "incident or start of the second worker", timeout_s=NOTICED_S)
    clients.put(clients.producer(copying.source), copying.topic, b"once", partition=partition, key=b"once")
    for worker in (first, second):
        worker.wait_any(
            lambda event: (
                event["event"] in ("incident", "lane_ended")
                or (event["event"] == "committed" and event["records"] == 1)
            ),
            "incident, end or commit of each worker",
            timeout_s=NOTICED_S,
        )
    assert_nothing_doubled(copying)
    for worker in (first, second):
        assert_lost(worker, copying)


@pytest.mark.tier("full")
def test_a_control_topic_that_somebody_made_again_is_lost_too(make_copying: MakeCopying) -> None:
    copying, worker = idle(make_copying)
    clients.recreate_topic(copying.target, control_topic(copying), 1, {"cleanup.policy": "compact"})
    found = worker.wait_event("incident", name="control_topic_lost", timeout_s=NOTICED_S)
    assert_told(found, control_topic(copying))
    assert worker.stop() == INCIDENT
    copying.load.plain(50)
    again = copying.run()
    again.wait_event("incident", name="control_topic_lost", timeout_s=NOTICED_S)
    assert again.wait_exit() == INCIDENT
    assert_nothing_doubled(copying)


@pytest.mark.tier("full")
def test_an_idle_worker_notices_that_a_backfill_has_taken_over(make_copying: MakeCopying) -> None:
    copying, worker = idle(make_copying)
    job, _ = backfill(copying, take_over=True)
    job.check()
    engine = Threads()
    job.run(engine)
    engine.close()
    assert worker.wait_exit(NOTICED_S) == TAKEN_OVER
    copying.finish(copying.running())


@pytest.mark.tier(embedded="full")
def test_an_idle_worker_notices_that_another_one_has_changed_the_lanes(make_copying: MakeCopying) -> None:
    copying, worker = idle(make_copying)
    copying.file.write(lanes=2)
    successor = copying.run()
    for lane in range(2):
        successor.wait_event("lane_started", lane=lane)
    assert worker.wait_exit(NOTICED_S) == TAKEN_OVER
    copying.load.plain(100)
    copying.finish(successor)

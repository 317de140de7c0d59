"""The source's log is cut below the position: acknowledged records are gone, as after an unclean leader election.

What is written afterwards takes the offsets of what was lost. Where it has grown past the position, only leader
epochs tell (KIP-320): the position's epoch ends below the position.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.compare import assert_exact
from integration_tests.harness.copying import Copying
from integration_tests.harness.replicator import Replicator
from integration_tests.harness.two_topics import TwoTopics
from integration_tests.test_control import typed, wait_paused
from integration_tests.test_incident_resolve import asked, open_id

pytestmark = pytest.mark.tier(kafka="full")

INCIDENT = 4
CUT, END = 10, 20  # all records from CUT on are lost; the position is END


def numbered(prefix: str, count: int = CUT) -> list[bytes]:
    """Values for one batch or more."""
    return [b"%s %d" % (prefix.encode(), number) for number in range(count)]


def put(copying: Copying, *values: bytes, partition: int = 0) -> None:
    """Write with a producer that knows nothing of what was written before."""
    clients.put(clients.producer(copying.source), copying.topic, *values, partition=partition)


def copied(make_copying: MakeCopying, **settings: Any) -> Copying:
    """A flow of two partitions whose first holds END records, in two pieces."""
    copying = make_copying(partitions=2, **settings)
    put(copying, *numbered("kept"))
    put(copying, *numbered("lost"))
    return copying


def lose_the_end(copying: Copying, source: BrokerHandle) -> None:
    """Kill the source and start it again without the records from CUT on."""
    topic_id = clients.topic_id(copying.source, copying.topic)
    source.kill()
    source.cut_log(copying.topic, topic_id, 0, CUT)
    source.restart()
    clients.settle(copying.source, copying.topic, copying.partitions)
    assert clients.stable_end(copying.source, copying.topic) == CUT


def write_past_the_position(copying: Copying) -> None:
    """More records than were lost, under the epoch after the restart."""
    put(copying, *numbered("new", END))
    assert clients.stable_end(copying.source, copying.topic) > END


@pytest.mark.parametrize("grown", [False, True], ids=["ends below the position", "written past the position"])
@pytest.mark.parametrize(
    "running",
    [
        pytest.param(False, id="worker down", marks=pytest.mark.tier("full", kafka="long")),
        pytest.param(True, id="worker running"),
    ],
)
def test_a_source_that_lost_copied_records_is_an_incident_of_that_partition(
    make_copying: MakeCopying, source: BrokerHandle, running: bool, grown: bool
) -> None:
    copying = copied(make_copying)
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"lost 9")
    if running:
        worker.suspend()
    else:
        assert worker.stop() == 0
    lose_the_end(copying, source)
    if grown:
        write_past_the_position(copying)
    if running:
        worker.resume()
    else:
        worker = copying.run()
    found = worker.wait_event("incident")
    told = (found["name"], found["topic"], found["partition"], found["offset"])
    assert told == ("source_truncated", copying.topic, 0, END)
    put(copying, b"the other partition goes on", partition=1)
    clients.wait_value(copying.target, copying.copy, 1, b"the other partition goes on")
    assert worker.stop() == INCIDENT
    expected = numbered("kept") + numbered("lost")
    assert clients.values(clients.read(copying.target, copying.copy)) == expected, "what the cut left was copied"


def assert_stopped(copying: Copying, worker: Replicator, after: int) -> str:
    """The lane stops the first partition at its position; the id of the incident."""
    found = worker.wait_event("incident", after=after)
    told = (found["name"], found["topic"], found["partition"], found["offset"])
    assert told == ("source_truncated", copying.topic, 0, END)
    return open_id(copying.file.path, "source_truncated", worker)


@pytest.mark.tier("full")
@pytest.mark.parametrize("engine", ["records", "batches"])
def test_a_source_that_lost_copied_records_while_it_was_not_read_stops_however_often_it_is_tried(
    make_copying: MakeCopying, source: BrokerHandle, engine: str
) -> None:
    """While a topic is paused the client learns of its new leader epoch, and has no position that it could check."""
    two = TwoTopics(copied(make_copying, engine=engine))
    copying, path = two.flow, two.flow.file.path
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"lost 9")
    mark = worker.mark()
    typed(copying, "pause", "--topics", copying.topic)
    wait_paused(worker, copying, mark)
    worker.suspend()
    lose_the_end(copying, source)
    write_past_the_position(copying)
    mark = worker.mark()
    worker.resume()
    two.assert_second_goes_on()
    typed(copying, "resume", "--topics", copying.topic)
    id_ = assert_stopped(copying, worker, mark)
    mark = worker.mark()
    assert asked(path, "resolve", id_, "--retry")[1]["acted"] == "retried"
    assert assert_stopped(copying, worker, mark) != id_
    put(copying, b"the other partition goes on", partition=1)
    clients.wait_value(copying.target, copying.copy, 1, b"the other partition goes on")
    assert worker.stop() == INCIDENT
    expected = numbered("kept") + numbered("lost")
    assert clients.values(clients.read(copying.target, copying.copy)) == expected, "what the cut left was copied"


def abort(copying: Copying) -> None:
    """A transaction that nobody may see; returns once its marker is there, which an abort doesn't wait for."""
    writer = clients.transactional(copying.source, f"aborting-{copying.name}")
    writer.begin_transaction()
    last = clients.put(writer, copying.topic, *numbered("aborted"))[-1]
    writer.abort_transaction(clients.TIMEOUT_S)
    deadline = time.monotonic() + clients.TIMEOUT_S
    while clients.stable_end(copying.source, copying.topic) <= (last.offset() or 0):
        assert time.monotonic() < deadline, "the abort has no marker"


def restart(copying: Copying, source: BrokerHandle) -> None:
    """The source's leader epoch is a new one after this."""
    source.kill()
    source.restart()
    clients.settle(copying.source, copying.topic, copying.partitions)


@pytest.mark.parametrize(
    "epoch",
    [
        pytest.param("of the last record", marks=pytest.mark.tier("full")),
        pytest.param("of its own", marks=pytest.mark.tier(kafka="long")),
    ],
)
def test_a_position_behind_an_aborted_tail_is_not_taken_for_truncation(
    make_copying: MakeCopying, source: BrokerHandle, epoch: str
) -> None:
    """The position moves past the tail at the partition's end, where no record says which epoch that is."""
    copying = make_copying(partitions=1)
    put(copying, *numbered("before"))
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"before 9")
    if epoch == "of its own":
        restart(copying, source)
    abort(copying)
    copying.wait_positions()
    assert worker.stop() == 0
    restart(copying, source)
    put(copying, *numbered("after"))
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"after 9")
    assert worker.stop() == 0, worker.tail()
    assert assert_exact(copying.source, copying.topic, copying.target, copying.copy, 1) == 2 * CUT


@pytest.mark.tier("full")
def test_a_running_worker_behind_an_aborted_tail_survives_a_restart_of_the_source(
    make_copying: MakeCopying, source: BrokerHandle
) -> None:
    copying = make_copying(partitions=1)
    put(copying, *numbered("before"))
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"before 9")
    for _ in range(2):
        restart(copying, source)
        abort(copying)
        copying.wait_positions()
    restart(copying, source)
    put(copying, *numbered("after"))
    clients.wait_value(copying.target, copying.copy, 0, b"after 9")
    assert worker.stop() == 0, worker.tail()
    assert assert_exact(copying.source, copying.topic, copying.target, copying.copy, 1) == 2 * CUT


@pytest.mark.tier("full", kafka="long")
def test_a_worker_that_began_behind_an_aborted_tail_survives_a_restart_of_the_source(
    make_copying: MakeCopying, source: BrokerHandle
) -> None:
    """The position that it began with is checked as soon as the source has a new leader epoch."""
    copying = make_copying(partitions=1)
    put(copying, *numbered("before"))
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"before 9")
    restart(copying, source)
    abort(copying)
    copying.wait_positions()
    assert worker.stop() == 0
    worker = copying.running()
    restart(copying, source)
    put(copying, *numbered("after"))
    clients.wait_value(copying.target, copying.copy, 0, b"after 9")
    assert worker.stop() == 0, worker.tail()
    assert assert_exact(copying.source, copying.topic, copying.target, copying.copy, 1) == 2 * CUT


@pytest.mark.tier("full", kafka="long")
def test_a_commit_that_came_under_a_later_epoch_than_its_records_is_not_taken_for_truncation(
    make_copying: MakeCopying, source: BrokerHandle
) -> None:
    """The position behind its marker must not carry the records' epoch, which ends before the marker."""
    copying = make_copying(partitions=1)
    writer = clients.transactional(copying.source, f"spanning-{copying.name}")
    writer.begin_transaction()
    clients.put(writer, copying.topic, *numbered("before"))
    restart(copying, source)
    writer.commit_transaction(clients.TIMEOUT_S)
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"before 9")
    copying.wait_positions()
    assert worker.stop() == 0
    worker = copying.running()
    restart(copying, source)
    put(copying, *numbered("after"))
    clients.wait_value(copying.target, copying.copy, 0, b"after 9")
    assert worker.stop() == 0, worker.tail()
    assert assert_exact(copying.source, copying.topic, copying.target, copying.copy, 1) == 2 * CUT

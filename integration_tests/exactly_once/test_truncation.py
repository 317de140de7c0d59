"""The source's log is cut below the position: acknowledged records are gone, as after an unclean leader election."""

from __future__ import annotations

import time

import pytest

from integration_tests.exactly_once.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.compare import assert_exact
from integration_tests.harness.copying import Copying

INCIDENT = 4
CUT, END = 10, 20  # all records from CUT on are lost; the position is END


def numbered(prefix: str, count: int = CUT) -> list[bytes]:
    """Values for one batch or more."""
    return [b"%s %d" % (prefix.encode(), number) for number in range(count)]


def put(copying: Copying, *values: bytes, partition: int = 0) -> None:
    """Write with a producer that knows nothing of what was written before."""
    clients.put(clients.producer(copying.source), copying.topic, *values, partition=partition)


def copied(make_copying: MakeCopying) -> Copying:
    """A flow of two partitions whose first holds END records, in two pieces."""
    copying = make_copying(partitions=2)
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


def test_a_source_that_lost_copied_records_is_an_incident_of_that_partition(
    make_copying: MakeCopying, source: BrokerHandle
) -> None:
    copying = copied(make_copying)
    worker = copying.running()
    clients.wait_value(copying.target, copying.copy, 0, b"lost 9")
    assert worker.stop() == 0
    lose_the_end(copying, source)
    worker = copying.run()
    found = worker.wait_event("incident")
    assert (found["name"], found["topic"], found["partition"]) == ("source_truncated", copying.topic, 0)
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


@pytest.mark.parametrize("epoch", ["of the last record", "of its own"])
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

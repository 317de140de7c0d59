"""The weaker delivery modes cost what they say and no more: one transaction's records at a crash, never their order."""

from __future__ import annotations

import signal
from itertools import pairwise

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.test_incidents_played import asked as incidents_asked
from integration_tests.test_metrics import observed
from replicator.observe.view import Doing

STEPS = [
    pytest.param("claimed", marks=pytest.mark.tier("full", kafka="long")),
    pytest.param("before_send", marks=pytest.mark.tier("full", kafka="long")),
    pytest.param("before_flush", marks=pytest.mark.tier("long")),
    pytest.param("before_offsets", marks=pytest.mark.tier("long")),
    "before_end_txn",
    pytest.param("after_end_txn", marks=pytest.mark.tier("full", kafka="full")),
]
PARTITIONS = 2
RECORDS_MAX = 50  # in a transaction
INCIDENT = 4
COMMIT = {"interval_ms": 100, "records_max": RECORDS_MAX}


class Numbers:
    """Writes 0, 1, 2 … to every partition of a flow's source, and reads what became of them."""

    def __init__(self, copying: Copying) -> None:
        self._copying, self._next = copying, 0

    def write(self, count: int) -> None:
        """The next `count` numbers, to each partition."""
        writer = clients.producer(self._copying.source)
        values = [b"%d" % number for number in range(self._next, self._next + count)]
        for partition in range(PARTITIONS):
            clients.put(writer, self._copying.topic, *values, partition=partition)
        self._next += count

    def wait_last(self) -> None:
        """Return once a reader of the target has seen the last one of each partition."""
        for partition in range(PARTITIONS):
            clients.wait_value(self._copying.target, self._copying.copy, partition, b"%d" % (self._next - 1))

    def copied(self, partition: int) -> list[int]:
        """The numbers on the target."""
        found = clients.read(self._copying.target, self._copying.copy, partition)
        return [int(value or b"-1") for value in clients.values(found)]

    def lost(self) -> int:
        """How many are nowhere on the target."""
        return sum(self._next - len(set(self.copied(partition))) for partition in range(PARTITIONS))

    def doubled(self) -> int:
        """How many stand there more than once."""
        copied = [self.copied(partition) for partition in range(PARTITIONS)]
        return sum(len(numbers) - len(set(numbers)) for numbers in copied)

    def jumps(self) -> list[tuple[int, int]]:
        """Neighbours on the target that aren't neighbours on the source."""
        found = [pair for partition in range(PARTITIONS) for pair in pairwise([-1, *self.copied(partition)])]
        return [(before, after) for before, after in found if after != before + 1]


def killed(copying: Copying, failpoint: str) -> None:
    """Run until that point of a transaction."""
    worker = copying.run(f"{failpoint}=kill")
    assert worker.wait_exit() == -signal.SIGKILL, worker.tail()


def finished(worker: Replicator, numbers: Numbers) -> None:
    """The last numbers arrive; a clean stop."""
    numbers.write(20)
    numbers.wait_last()
    assert worker.stop() == 0, worker.tail()
    assert not worker.seen("incident")


def crash_twice(copying: Copying, step: str) -> Numbers:
    """A flow that is killed at its third transaction, and at its second after that."""
    numbers = Numbers(copying)
    numbers.write(300)
    killed(copying, f"{step}@{1 if step == 'claimed' else 3}")
    killed(copying, f"{step}@{1 if step == 'claimed' else 2}")
    finished(copying.running(), numbers)
    return numbers


@pytest.mark.parametrize("step", STEPS)
def test_at_least_once_loses_nothing_and_doubles_one_transaction_at_a_crash(
    make_copying: MakeCopying, step: str
) -> None:
    numbers = crash_twice(make_copying(partitions=PARTITIONS, delivery="at_least_once", commit=COMMIT), step)
    assert numbers.lost() == 0
    assert numbers.doubled() <= 2 * RECORDS_MAX
    assert (numbers.doubled() > 0) or step not in ("before_offsets", "before_end_txn")
    assert all(after <= before for before, after in numbers.jumps()), "it went on somewhere ahead"
    assert len(numbers.jumps()) <= 2 * PARTITIONS, "it went back more often than it was killed"


@pytest.mark.parametrize("step", STEPS)
def test_at_most_once_doubles_nothing_and_loses_one_transaction_at_a_crash(
    make_copying: MakeCopying, step: str
) -> None:
    numbers = crash_twice(make_copying(partitions=PARTITIONS, delivery="at_most_once", commit=COMMIT), step)
    assert numbers.doubled() == 0
    assert numbers.lost() <= 2 * RECORDS_MAX
    assert (numbers.lost() > 0) == (step == "after_end_txn")
    assert all(after > before for before, after in numbers.jumps()), "it went back"
    assert len(numbers.jumps()) <= 2 * PARTITIONS, "it left out more often than it was killed"


@pytest.mark.parametrize(
    "crash",
    [pytest.param("", marks=pytest.mark.tier("long"), id="clean stop"), pytest.param("before_offsets@2", id="crash")],
)
@pytest.mark.parametrize("mode", ["at_least_once", pytest.param("at_most_once", marks=pytest.mark.tier("full"))])
def test_after_a_switch_exactly_once_is_exactly_once(make_copying: MakeCopying, mode: str, crash: str) -> None:
    """What the old mode has doubled or lost stays so; nothing is added to it, and nothing looks like an incident."""
    copying = make_copying(partitions=PARTITIONS, delivery=mode, commit=COMMIT)
    numbers = Numbers(copying)
    numbers.write(300)
    if crash:
        killed(copying, crash)
    else:
        worker = copying.running()
        numbers.wait_last()
        assert worker.stop() == 0
    copying.file.write(delivery="exactly_once")
    killed(copying, "claimed@1")  # nothing was copied since the switch, but the positions are of the new mode
    finished(copying.running(), numbers)
    before = numbers.lost(), numbers.doubled()
    numbers.write(300)
    killed(copying, "before_end_txn@2")
    killed(copying, "after_end_txn@2")
    finished(copying.running(), numbers)
    assert (numbers.lost(), numbers.doubled()) == before


@pytest.mark.parametrize(
    "mode", ["at_least_once", pytest.param("at_most_once", marks=pytest.mark.tier(embedded="full"))]
)
def test_a_target_that_lost_its_end_stops_its_partition_and_no_other(
    make_copying: MakeCopying, target: BrokerHandle, mode: str
) -> None:
    """The idempotent producer fails for good then; at_most_once promises nothing of what was acknowledged."""
    copying = make_copying(partitions=PARTITIONS, delivery=mode, commit=COMMIT)
    numbers = Numbers(copying)
    numbers.write(RECORDS_MAX)
    worker = copying.running()
    numbers.wait_last()
    kept = RECORDS_MAX  # the log is cut where a batch begins
    numbers.write(RECORDS_MAX)
    numbers.wait_last()
    topic_id = clients.topic_id(copying.target, copying.copy)
    worker.suspend()
    target.kill()
    target.cut_log(copying.copy, topic_id, 0, kept)
    target.restart()
    clients.settle(copying.target, copying.copy, PARTITIONS)
    worker.resume()
    numbers.write(RECORDS_MAX)
    clients.wait_value(copying.target, copying.copy, 1, b"%d" % (3 * RECORDS_MAX - 1))
    if mode == "at_most_once":
        clients.wait_value(copying.target, copying.copy, 0, b"%d" % (3 * RECORDS_MAX - 1))
        assert worker.stop() == 0, worker.tail()
        return
    found = worker.wait_event("incident", name="target_lost_data")
    assert (found["topic"], found["partition"]) == (copying.topic, 0)
    numbers.write(RECORDS_MAX)
    clients.wait_value(copying.target, copying.copy, 1, b"%d" % (4 * RECORDS_MAX - 1))
    assert worker.stop() == INCIDENT, worker.tail()
    assert [e["name"] for e in worker.seen("incident")] == ["target_lost_data"]


@pytest.mark.tier("full", kafka="long")
@pytest.mark.parametrize("mode", ["at_least_once", "at_most_once"])
def test_every_line_of_the_log_is_json_while_a_cluster_is_away(
    make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle, mode: str
) -> None:
    copying = make_copying(partitions=PARTITIONS, delivery=mode, commit=COMMIT)
    numbers = Numbers(copying)
    numbers.write(1)
    worker = copying.running()
    numbers.wait_last()
    target.kill()
    numbers.write(1)
    target.restart()
    source.kill()
    source.restart()
    numbers.write(1)
    numbers.wait_last()
    assert worker.stop() == 0, worker.tail()
    assert worker.other_lines == []


@pytest.mark.tier("long", kafka="long")
def test_at_most_once_counts_and_logs_what_the_target_refuses_and_goes_on(make_copying: MakeCopying) -> None:
    """A compacted topic takes no record without a key. There is no incident, and no partition waits."""
    two = TwoTopics(make_copying(partitions=1, delivery="at_most_once"))
    asked = observed(two.flow)
    clients.create_topic(two.target, two.copy_of(two.first), 1, {"cleanup.policy": "compact"})
    worker = two.running(10)
    assert asked.value("eos_flow_lost_records_total", flow=two.name) == 0
    writer = clients.producer(two.source)
    clients.put(writer, two.first, b"without a key", key=None)
    two.put(two.first, [b"behind"])
    two.wait_copied(two.first, b"behind")
    clients.put(writer, two.first, b"once more", b"and again", key=None)
    two.put(two.first, [b"last"])
    two.wait_copied(two.first, b"last")
    two.assert_second_goes_on()
    wait_until(lambda: sum(it["records"] for it in worker.seen("records_lost")) == 3, "it is logged", worker.tail)
    lost = worker.seen("records_lost")
    assert {(it["level"], it["topic"], it["partition"]) for it in lost} == {("error", two.first, 0)}
    offsets = [offset for it in lost for first, end in it["offsets"] for offset in range(first, end + 1)]
    assert offsets == [10, 12, 13]
    assert all(it["detail"] for it in lost)
    assert two.values(two.first) == [*numbered("old", 10), b"behind", b"last"]

    one, other = ({"flow": two.name, "topic": topic, "partition": "0"} for topic in (two.first, two.second))
    asked.wait("it is counted", lambda it: it.value("eos_partition_lost_records_total", **one) == 3)
    assert asked.value("eos_flow_lost_records_total", flow=two.name) == 3
    assert asked.value("eos_partition_lost_records_total", **other) is None
    assert asked.value("eos_partition_records_total", **one) == 15, "committed, and three of them lost"
    assert asked.value("eos_partition_state", **one) == Doing.COPYING
    assert incidents_asked(two.flow, "incident", "list")[:2] == (0, {"incidents": [], "errors": {}})
    assert (worker.seen("incident"), worker.seen("waiting")) == ([], [])
    two.assert_stops(worker, 0)

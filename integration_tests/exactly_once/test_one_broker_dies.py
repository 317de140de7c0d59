"""One broker of three dies, on either side of a running flow, each of them in turn: what it doesn't lead goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact
from integration_tests.harness.kafka_cluster import KafkaCluster, running
from integration_tests.harness.kafka_container import KafkaContainer, need_kafka
from integration_tests.harness.replicator import FlowFile, Replicator
from tests.budget import budget

pytestmark = [pytest.mark.kafka, pytest.mark.tier("full")]

BROKERS = 3
ROUNDS = budget(1, 20)  # each kills every broker once
PACE_S = 0.05  # between two records of the writer
WATCHED_S, IDLE_S = 12.0, 5.0  # longer than librdkafka holds on to what it believes is the controller
PAUSE_S_MAX = 5.0
CPU_MAX = 0.05
PARTITIONS = 3
QUICK = {"discovery_interval_ms": 1_000}


class Numbers:
    """Writes numbers to the source's partitions, and sees when each arrives at the target."""

    def __init__(self, source: str, target: str, topic: str, copy: str) -> None:
        self._source, self._target, self._topic, self._copy = source, target, topic, copy
        self._over = threading.Event()
        self._number = 0  # of the last record: no two are equal
        self._arrived: list[tuple[float, int]] = []  # when, partition
        self._lock = threading.Lock()

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """For as long as the block runs."""
        self._over.clear()
        threads = [threading.Thread(target=run) for run in (self._write, self._read)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _write(self) -> None:
        writer = clients.producer(self._source, message_timeout_ms=60_000)
        while not self._over.wait(PACE_S):
            self._number += 1
            for partition in range(PARTITIONS):
                writer.produce(self._topic, b"%d" % self._number, partition=partition)
            writer.poll(0)
        assert writer.flush(clients.TIMEOUT_S) == 0

    def _read(self) -> None:
        reader = clients.consumer(self._target, isolation_level="read_committed", auto_offset_reset="latest")
        with ExitStack() as closing:
            closing.callback(reader.close)
            ends = [clients.stable_end(self._target, self._copy, number) for number in range(PARTITIONS)]
            reader.assign([TopicPartition(self._copy, n, end) for n, end in enumerate(ends)])
            while not self._over.is_set():
                message = reader.poll(0.1)
                if message is not None and message.error() is None:
                    with self._lock:
                        self._arrived.append((time.monotonic(), message.partition() or 0))

    def pauses_s(self, since_s: float) -> list[float]:
        """The longest time without a record in each partition until now."""
        with self._lock:
            arrived = list(self._arrived)
        found = []
        for partition in range(PARTITIONS):
            times = [since_s, *(at for at, of in arrived if of == partition and at > since_s), time.monotonic()]
            found.append(max(after - before for before, after in pairwise(times)))
        return found


def cpu_share(worker: Replicator, for_s: float) -> float:
    """Its share of a core over the next seconds."""
    before, began_s = worker.cpu_s(), time.monotonic()
    time.sleep(for_s)
    return (worker.cpu_s() - before) / (time.monotonic() - began_s)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with running(BROKERS) as made:
        yield made


@pytest.fixture(scope="module")
def other() -> Iterator[KafkaContainer]:
    need_kafka()
    made = KafkaContainer()
    try:
        made.start()
        yield made
    finally:
        made.stop()


def led_by(bootstrap: str, *topics: str) -> set[int]:
    """Brokers that lead a partition of these topics."""
    admin = clients.admin(bootstrap)
    listed = admin.list_topics(timeout=clients.TIMEOUT_S).topics
    return {partition.leader for name in topics for partition in listed[name].partitions.values()}


@pytest.mark.parametrize("side", ["target", "source"])
def test_each_broker_in_turn(cluster: KafkaCluster, other: KafkaContainer, tmp_path: Path, side: str) -> None:
    """Whatever leads nothing of the flow isn't missed; what it did lead is led by another one soon."""
    source, target = (other, cluster) if side == "target" else (cluster, other)
    topic, copy = f"in-{side}", f"in-{side}.copy"
    copies = BROKERS if side == "source" else 1
    new = NewTopic(topic, PARTITIONS, copies, config=clients.FOR_EVER)
    admin = clients.admin(source.bootstrap)
    admin.create_topics([new])[topic].result(clients.TIMEOUT_S)
    clients.settle(source.bootstrap, topic, PARTITIONS)
    replication = {"replication_factor": BROKERS} if side == "target" else {}
    flow = FlowFile(
        tmp_path,
        f"dies-{side}",
        source.bootstrap,
        target.bootstrap,
        topics=[topic],
        topic_configs=replication,
        limits=QUICK,
    )
    worker = Replicator(flow)
    try:
        worker.wait_event("lane_started")
        numbers = Numbers(source.bootstrap, target.bootstrap, topic, copy)
        own = {"target": (copy, f"__eos.dies-{side}.control", f"__eos.dies-{side}.claims"), "source": (topic,)}[side]
        internal = ("__consumer_offsets", "__transaction_state") if side == "target" else ()
        calm = cpu_share(worker, IDLE_S)
        for _ in range(ROUNDS):
            for broker in range(1, BROKERS + 1):
                concerned = broker in led_by(cluster.bootstrap, *own, *internal)
                killed(worker, numbers, cluster, broker, concerned=concerned, calm=calm)
        assert worker.stop() == 0, worker.tail()
        assert not worker.seen("incident")
        assert_exact(source.bootstrap, topic, target.bootstrap, copy, PARTITIONS)
    finally:
        worker.close()


def killed(
    worker: Replicator, numbers: Numbers, cluster: KafkaCluster, broker: int, *, concerned: bool, calm: float
) -> None:
    """One broker is away for a while, under load, then without."""
    with numbers.flowing():
        wait_flowing(numbers)
        began_s, mark = time.monotonic(), worker.mark()
        cluster.kill(broker)
        time.sleep(WATCHED_S)
        pauses = numbers.pauses_s(began_s)
    idle = cpu_share(worker, IDLE_S)
    failed = worker.seen("discovery_failed", after=mark)
    print(f"broker {broker}, {concerned=}: pauses {pauses}, CPU {idle:.3f} (calm {calm:.3f})")
    assert max(pauses) <= (2 * PAUSE_S_MAX if concerned else PAUSE_S_MAX), worker.tail()
    assert idle <= max(CPU_MAX, 2 * calm), worker.tail()
    assert len(failed) <= 1, failed
    cluster.restart(broker)


def wait_flowing(numbers: Numbers) -> None:
    """Return once records arrive in each partition."""
    wait_until(lambda: max(numbers.pauses_s(time.monotonic() - 1.0)) < 0.9)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + clients.TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, "no records arrive"
        time.sleep(0.2)

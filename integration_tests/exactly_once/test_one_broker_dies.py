"""One broker of three dies, on either side of a running flow, each of them in turn: what it doesn't lead goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact
from integration_tests.harness.kafka_cluster import KafkaCluster, running
from integration_tests.harness.kafka_container import KafkaContainer, need_kafka
from integration_tests.harness.numbers import Numbers, cpu_share, led_by, wait_flowing
from integration_tests.harness.replicator import FlowFile, Replicator
from tests.budget import budget

pytestmark = [pytest.mark.kafka, pytest.mark.tier(kafka="long")]

BROKERS = 3
ROUNDS = budget(1, 20)  # each kills every broker once
WATCHED_S, IDLE_S = 12.0, 5.0  # longer than librdkafka holds on to what it believes is the controller
PAUSE_S_MAX = 5.0
CPU_MAX = 0.05
PARTITIONS = 3
QUICK = {"discovery_interval_ms": 1_000}


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


@pytest.mark.parametrize("side", ["target", "source"])
def test_each_broker_in_turn(cluster: KafkaCluster, other: KafkaContainer, tmp_path: Path, side: str) -> None:
    """Whatever leads nothing of the flow isn't missed; what it did lead is led by another one soon."""
    source, target = (other, cluster) if side == "target" else (cluster, other)
    topic, copy = f"in-{side}", f"in-{side}.copy"
    copies = BROKERS if side == "source" else 1
    clients.create_topic(source.bootstrap, topic, PARTITIONS, replicas=copies)
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
        numbers = Numbers(source.bootstrap, target.bootstrap, topic, copy, PARTITIONS)
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

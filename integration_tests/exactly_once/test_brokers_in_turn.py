"""Brokers of a source and of a target of three each die in turn under load, again and again: `make test-brokers`.

All partitions have three replicas, so each has a living leader soon after: none may pause for longer than that takes,
and nothing may be lost, doubled or reordered.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact
from integration_tests.harness.kafka_cluster import KafkaCluster
from integration_tests.harness.kafka_container import need_kafka
from integration_tests.harness.numbers import Numbers, cpu_share, led_by, wait_flowing
from integration_tests.harness.replicator import FlowFile, Replicator
from tests.budget import budget

pytestmark = [pytest.mark.kafka, pytest.mark.tier("long"), pytest.mark.timeout(1_200)]

BROKERS, LANES, PARTITIONS = 3, 4, 8
ROUNDS = budget(2, 50)
WATCHED_S, IDLE_S = 12.0, 5.0
PAUSE_S_MAX, CPU_MAX = 10.0, 0.05
NAME, TOPIC, COPY = "in-turn", "in-turn.in", "in-turn.in.copy"
OWN = {
    "source": (TOPIC,),
    "target": (COPY, f"__eos.{NAME}.control", f"__eos.{NAME}.claims", "__consumer_offsets", "__transaction_state"),
}


@dataclass(frozen=True)
class Scene:
    """Both clusters, and a worker that runs all the time."""

    clusters: dict[str, KafkaCluster]
    worker: Replicator
    numbers: Numbers
    calm: float
    """The worker's share of a core without load and without faults."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    need_kafka()
    clusters = {"source": KafkaCluster(BROKERS), "target": KafkaCluster(BROKERS)}
    with ExitStack() as closing, ThreadPoolExecutor() as pool:
        for each in clusters.values():
            closing.callback(each.stop)
        list(pool.map(KafkaCluster.start, clusters.values()))
        source, target = (clusters[side].bootstrap for side in ("source", "target"))
        clients.create_topic(source, TOPIC, PARTITIONS, replicas=BROKERS)
        flow = FlowFile(
            tmp_path_factory.mktemp("flow"),
            NAME,
            source,
            target,
            topics=[TOPIC],
            lanes=LANES,
            topic_configs={"replication_factor": BROKERS},
            limits={"discovery_interval_ms": 1_000},
        )
        worker = Replicator(flow)
        closing.callback(worker.close)
        for lane in range(LANES):
            worker.wait_event("lane_started", lane=lane)
        numbers = Numbers(source, target, TOPIC, COPY, PARTITIONS)
        yield Scene(clusters, worker, numbers, cpu_share(worker, IDLE_S))
        assert worker.stop() == 0, worker.tail()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_broker_of_each_cluster_dies(scene: Scene, number: int) -> None:
    """One round: those whose turn it is, in an order and for a time that the round draws."""
    drawn = random.Random(number)
    order = [(side, number % BROKERS + 1) for side in scene.clusters]
    drawn.shuffle(order)
    seen = [dies(scene, side, broker, away_s=WATCHED_S + drawn.uniform(0.0, 3.0)) for side, broker in order]
    source, target = (scene.clusters[side].bootstrap for side in ("source", "target"))
    for partition in range(PARTITIONS):
        wait_equal(scene, partition)
    assert_exact(source, TOPIC, target, COPY, PARTITIONS)
    assert not scene.worker.seen("incident"), scene.worker.tail()
    assert all(pause <= PAUSE_S_MAX and idle <= max(CPU_MAX, 2 * scene.calm) for pause, idle in seen), seen


def dies(scene: Scene, side: str, broker: int, *, away_s: float) -> tuple[float, float]:
    """One broker is away for a while, under load, then without: the longest pause, and the worker's share of a core."""
    cluster, worker = scene.clusters[side], scene.worker
    concerned = broker in led_by(cluster.bootstrap, *OWN[side])
    with scene.numbers.flowing():
        wait_flowing(scene.numbers)
        began_s = time.monotonic()
        cluster.kill(broker)
        time.sleep(away_s)
        pauses = scene.numbers.pauses_s(began_s)
    idle = cpu_share(worker, IDLE_S)
    print(f"{side} {broker}, {concerned=}: longest pause {max(pauses):.2f} s, CPU {idle:.3f} (calm {scene.calm:.3f})")
    cluster.restart(broker)
    return max(pauses), idle


def wait_equal(scene: Scene, partition: int) -> None:
    """Return once the flow has copied all that the source has."""
    source, target = (scene.clusters[side].bootstrap for side in ("source", "target"))
    deadline_s, end = time.monotonic() + clients.TIMEOUT_S, clients.stable_end(source, TOPIC, partition)
    group = f"eos-replicate.{NAME}"
    while (found := clients.committed(target, group, COPY, partition).offset) != end:
        assert time.monotonic() < deadline_s, f"position {found} of {end}\n{scene.worker.tail()}"
        time.sleep(0.1)

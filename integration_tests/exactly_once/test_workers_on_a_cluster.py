"""The same schedules on real Kafka with three brokers, each partition on all of them and two in sync: brokers die and
come back, and leaders move. Nothing is lost, doubled or reordered.

EOS_CLUSTER_SEEDS=11,12,13 runs these schedules.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration_tests.harness.copying import Copying
from integration_tests.harness.crew import LANES, PARTITIONS, Crew
from integration_tests.harness.kafka_cluster import KafkaCluster
from integration_tests.harness.kafka_container import KafkaContainer, need_kafka

pytestmark = [pytest.mark.kafka, pytest.mark.tier("long"), pytest.mark.timeout(1_200)]

SEEDS = [int(text) for text in os.environ.get("EOS_CLUSTER_SEEDS", ",".join(map(str, range(601, 611)))).split(",")]
BROKERS, SESSION_MS = 3, 6_000
AWAY_S = 2.0, 12.0
IN_SYNC = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}


@dataclass(frozen=True)
class Sides:
    """The source, one broker, and the target of three."""

    source: KafkaContainer
    target: KafkaCluster


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    need_kafka()
    found = Sides(KafkaContainer(), KafkaCluster(BROKERS, settings=IN_SYNC))
    with ExitStack() as closing, ThreadPoolExecutor() as pool:
        closing.callback(found.source.stop)
        closing.callback(found.target.stop)
        for started in [pool.submit(found.source.start), pool.submit(found.target.start)]:
            started.result()
        yield found


def kill_a_broker(target: KafkaCluster, pause_s: float, broker: int) -> str:
    """One dies, and comes back a while later."""
    target.kill(broker)
    time.sleep(pause_s)
    target.restart(broker)
    return f"broker {broker} is away for {pause_s:.1f} s"


def freeze_a_broker(target: KafkaCluster, pause_s: float, broker: int) -> str:
    """One stands still: its connections stay open."""
    target.suspend(broker)
    time.sleep(pause_s)
    target.resume(broker)
    return f"broker {broker} stands still for {pause_s:.1f} s"


def move_leaders(target: KafkaCluster) -> str:
    """All partitions go to the leaders that they had at first."""
    target.move_leaders()
    return "leaders move"


@pytest.mark.parametrize("seed", SEEDS)
def test_any_schedule_with_dying_brokers_loses_and_doubles_nothing(sides: Sides, tmp_path: Path, seed: int) -> None:
    print(f"EOS_CLUSTER_SEEDS={seed}")

    def kill(drawn: random.Random) -> str:
        return kill_a_broker(sides.target, drawn.uniform(*AWAY_S), drawn.randint(1, BROKERS))

    def freeze(drawn: random.Random) -> str:
        return freeze_a_broker(sides.target, drawn.uniform(*AWAY_S), drawn.randint(1, BROKERS))

    copying = Copying(
        sides.source,
        sides.target,
        tmp_path,
        partitions=PARTITIONS,
        seed=seed,
        lanes=LANES,
        topic_configs={"replication_factor": BROKERS},
        limits={"session_timeout_ms": SESSION_MS},
    )
    try:
        Crew(copying, seed, SESSION_MS / 1000, kill, kill, freeze, lambda _: move_leaders(sides.target)).schedule()
    finally:
        copying.close()

"""The coordinator of the group by which workers share a flow is away for a minute, and nothing else is: copying goes
on, no lane changes hands, and afterwards all of them are members again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact
from integration_tests.harness.crew import lanes_given
from integration_tests.harness.kafka_cluster import KafkaCluster
from integration_tests.harness.kafka_container import KafkaContainer, need_kafka
from integration_tests.harness.numbers import Numbers, led_by, wait_flowing
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import FlowFile, Replicator
from replicator.model import names
from tests.budget import budget

pytestmark = [pytest.mark.kafka, pytest.mark.tier(kafka="long"), pytest.mark.timeout(900)]

BROKERS, LANES, PARTITIONS, WORKERS = 2, 4, 8, 2
AWAY_S = budget(25, 60)  # beyond a session; the long one beyond the time for which a revoked lane goes on
PAUSE_S_MAX = 3.0
TOPIC = "numbers"
ON_ONE_BROKER = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "2"}
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def coordinator(bootstrap: str, group: str) -> int:
    """The broker that leads the group's partition of the offsets topic (GroupMetadataManager.partitionFor)."""
    hashed = 0
    for letter in group:
        hashed = (31 * hashed + ord(letter)) & 0xFFFFFFFF
    listed = clients.admin(bootstrap).list_topics(OFFSETS, timeout=clients.TIMEOUT_S).topics[OFFSETS].partitions
    return listed[(hashed & 0x7FFFFFFF) % len(listed)].leader


def flow_name(bootstrap: str) -> tuple[str, int]:
    """A flow whose workers' group has another coordinator than its positions, and that coordinator."""
    for number in range(100):
        name = f"apart-{number}"
        away = coordinator(bootstrap, names.workers_group(name))
        if away != coordinator(bootstrap, names.position_group(name)):
            return name, away
    raise AssertionError("each group has the same coordinator")


def test_copying_goes_on(tmp_path: Path) -> None:
    need_kafka()
    source = KafkaContainer()
    target = KafkaCluster(BROKERS, settings=ON_ONE_BROKER)
    workers: list[Replicator] = []
    try:
        source.start()
        target.start()
        clients.warm_up(target.bootstrap)
        name, away = flow_name(target.bootstrap)
        copy = f"{TOPIC}.copy"
        clients.create_topic(source.bootstrap, TOPIC, PARTITIONS)
        clients.create_topic(target.bootstrap, copy, PARTITIONS, replicas=BROKERS)
        settings = {"topics": [TOPIC], "lanes": LANES, "topic_configs": {"replication_factor": BROKERS}}
        file = FlowFile(tmp_path, name, source.bootstrap, target.bootstrap, **settings)
        workers = [Replicator(file, options=("--shared",)) for _ in range(WORKERS)]
        wait_until(lambda: shared(workers), "the lanes are shared", workers[0].tail)
        marks = [worker.mark() for worker in workers]
        target.kill(away)  # what has a replica elsewhere is led there from now on
        own = copy, names.control_topic(name), names.claims_topic(name), names.offsets_topic(name), TRANSACTIONS
        wait_until(lambda: led_by(target.bootstrap, *own) == {BROKERS + 1 - away}, "leaders move", workers[0].tail)
        for worker, mark in zip(workers, marks, strict=True):  # one that is back sooner gives nobody lanes again
            worker.wait_event("membership_lost", after=mark)
        target.restart(away)
        wait_until(lambda: shared(workers, marks), "they are members again", workers[0].tail)
        numbers = Numbers(source.bootstrap, target.bootstrap, TOPIC, copy, PARTITIONS)
        with numbers.flowing():
            wait_flowing(numbers)
            marks = [worker.mark() for worker in workers]
            began_s = time.monotonic()
            target.kill(away)
            time.sleep(AWAY_S)
            pauses = numbers.pauses_s(began_s)
            taken = [worker.seen("lane_left", after=mark) for worker, mark in zip(workers, marks, strict=True)]
            target.restart(away)
            wait_until(lambda: shared(workers, marks), "they are members again", workers[0].tail)
        print(f"longest pause of a partition meanwhile: {max(pauses):.2f} s")
        assert max(pauses) < PAUSE_S_MAX, pauses
        assert not any(taken), taken
        for worker in workers:
            assert worker.stop() == 0, worker.tail()
        assert_exact(source.bootstrap, TOPIC, target.bootstrap, copy, PARTITIONS)
    finally:
        for worker in workers:
            worker.close()
        source.stop()
        target.stop()


def shared(workers: list[Replicator], since: list[int] | None = None) -> bool:
    """Whether each lane is one worker's, by what each has been given last."""
    given = lanes_given(workers, since)
    return None not in given and sorted(lane for lanes in given for lane in lanes or ()) == list(range(LANES))

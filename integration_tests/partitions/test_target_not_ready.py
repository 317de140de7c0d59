"""Target partitions below min.insync.replicas, and without a leader: two real brokers, one of them dead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.kafka_cluster import KafkaCluster
from integration_tests.harness.kafka_container import need_kafka
from integration_tests.harness.replicator import FlowFile, Replicator
from integration_tests.harness.two_topics import numbered

pytestmark = [pytest.mark.kafka, pytest.mark.tier(kafka="full"), pytest.mark.timeout(500)]

SHORT, WHOLE, LEADERLESS = "short", "whole", "leaderless"
MIN_ISR = "min.insync.replicas"
STEP = 200


@pytest.fixture
def target() -> Iterator[KafkaCluster]:
    """One of its brokers is killed below; topics are on both, or on that one alone."""
    need_kafka()
    cluster = KafkaCluster(2)
    try:
        cluster.start()
        admin = clients.admin(cluster.bootstrap)
        made = admin.create_topics(
            [
                NewTopic(f"{SHORT}.copy", 1, replica_assignment=[[1, 2]], config={MIN_ISR: "2"}),
                NewTopic(f"{WHOLE}.copy", 1, replica_assignment=[[1, 2]]),
                NewTopic(f"{LEADERLESS}.copy", 1, replica_assignment=[[2]]),
            ]
        )
        for future in made.values():
            future.result(clients.TIMEOUT_S)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """The source."""
    broker = EmbeddedBroker(tmp_path / "source")
    try:
        broker.start()
        for topic in (SHORT, WHOLE, LEADERLESS):
            clients.create_topic(broker.bootstrap, topic)
        yield broker
    finally:
        broker.stop()


def test_it_waits_and_the_others_go_on(source: EmbeddedBroker, target: KafkaCluster, tmp_path: Path) -> None:
    """Before it was looked at, one such partition held up all others of its lane for as long as it lasted."""
    flow = FlowFile(
        tmp_path,
        "ready",
        source.bootstrap,
        target.bootstrap,
        topics=[SHORT, WHOLE, LEADERLESS],
        topic_configs={"replication_factor": 2},
        limits={"transaction_timeout_ms": 60_000},
    )
    writer = clients.producer(source.bootstrap)

    def put(name: str, *topics: str) -> None:
        for topic in topics:
            clients.put(writer, topic, *numbered(name, STEP), f"last {name}".encode())

    def arrived(name: str, *topics: str) -> None:
        for topic in topics:
            clients.wait_value(target.bootstrap, f"{topic}.copy", 0, f"last {name}".encode())

    with ExitStack() as closing:
        worker = Replicator(flow)
        closing.callback(worker.close)
        closing.callback(lambda: print(worker.tail(200)))
        worker.wait_event("lane_started")
        put("first", SHORT, WHOLE, LEADERLESS)
        arrived("first", SHORT, WHOLE, LEADERLESS)
        target.kill(2)
        short = worker.wait_event("waiting", topic=SHORT, reason="target_not_ready")
        gone = worker.wait_event("waiting", topic=LEADERLESS, reason="target_not_ready")
        assert "1 of 2 replicas in sync" in short["detail"]
        assert "has no leader" in gone["detail"]
        mark = worker.mark()
        put("second", SHORT, WHOLE, LEADERLESS)
        arrived("second", WHOLE)
        assert not worker.seen("aborted", after=mark)
        # The broker that died may have coordinated the group: that is found when positions are committed.
        restarts = worker.seen("restarted", after=mark)
        assert all("its coordinator" in restart["reason"] for restart in restarts), restarts
        clients.set_topic_config(target.bootstrap, f"{SHORT}.copy", MIN_ISR, "1")
        worker.wait_event("copying", topic=SHORT, after=mark)
        arrived("second", SHORT)
        assert worker.stop() == 0, worker.tail()
        assert not worker.seen("incident")
    for topic in (SHORT, WHOLE):
        assert_exact(source.bootstrap, topic, target.bootstrap, f"{topic}.copy", 1)


def test_one_that_goes_away_under_load_is_left_out_or_named(
    source: EmbeddedBroker, target: KafkaCluster, tmp_path: Path
) -> None:
    """Where it is part of the open transaction, nothing can be committed before it is back: that is told, of all."""
    flow = FlowFile(
        tmp_path,
        "middle",
        source.bootstrap,
        target.bootstrap,
        topics=[SHORT, WHOLE],
        topic_configs={"replication_factor": 2},
        commit={"interval_ms": 1_000},
        limits={"transaction_timeout_ms": 60_000},
    )
    writer = clients.producer(source.bootstrap)
    with ExitStack() as closing:
        worker = Replicator(flow)
        closing.callback(worker.close)
        closing.callback(lambda: print(worker.tail(200)))
        worker.wait_event("lane_started")
        clients.set_topic_config(target.bootstrap, f"{SHORT}.copy", MIN_ISR, "1")
        target.kill(2)
        for number in range(40):
            clients.put(writer, WHOLE, *numbered(f"{number}", 20))
            clients.put(writer, SHORT, *numbered(f"{number}", 20))
            if number == 10:
                clients.set_topic_config(target.bootstrap, f"{SHORT}.copy", MIN_ISR, "2")
        told = worker.wait_event("waiting", topic=SHORT, reason="target_not_ready")
        assert "replicas in sync" in told["detail"]
        if not worker.seen("waiting", topic=WHOLE):  # it was left out in time
            clients.put(writer, WHOLE, b"beside it")
            worker.wait_any(
                lambda event: event["event"] == "committed" or event.get("topic") == WHOLE,
                "the others",
                worker.mark(),
            )
        clients.set_topic_config(target.bootstrap, f"{SHORT}.copy", MIN_ISR, "1")
        for topic in (WHOLE, SHORT):
            clients.put(writer, topic, b"last")
            clients.wait_value(target.bootstrap, f"{topic}.copy", 0, b"last")
        assert worker.stop() == 0, worker.tail()
        assert not worker.seen("incident")
    for topic in (SHORT, WHOLE):
        assert_exact(source.bootstrap, topic, target.bootstrap, f"{topic}.copy", 1)

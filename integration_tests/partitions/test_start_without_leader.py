"""`start: latest` of a partition that has no leader when the flow is opened: two real brokers, one of them dead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.kafka_cluster import KafkaCluster
from integration_tests.harness.kafka_container import need_kafka
from integration_tests.harness.two_topics import numbered

pytestmark = [pytest.mark.kafka, pytest.mark.tier(kafka="full")]

PARTITIONS = 6


@pytest.fixture
def two_brokers() -> Iterator[KafkaCluster]:
    """A source of which one broker can be killed."""
    need_kafka()
    cluster = KafkaCluster(2)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """The target."""
    broker = EmbeddedBroker(tmp_path / "target")
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def test_it_is_said_to_begin_at_earliest_and_the_others_begin_at_latest(
    two_brokers: KafkaCluster, elsewhere: EmbeddedBroker, tmp_path: Path
) -> None:
    """It holds the flow back for the connect timeout only."""
    copying = Copying(
        two_brokers,
        elsewhere,
        tmp_path,
        partitions=PARTITIONS,
        start={"kind": "latest"},
        limits={"connect_timeout_ms": 8_000},
    )
    try:
        writer = clients.producer(copying.source)
        for number in range(PARTITIONS):
            clients.put(writer, copying.topic, *numbered("before", 3), partition=number)
        two_brokers.kill(2)
        worker = copying.running()
        gone = {int(event["partition"]) for event in worker.seen("starts_at_earliest")}
        assert 0 < len(gone) < PARTITIONS
        assert {int(event["partition"]) for event in worker.seen("start_not_resolved")} == gone
        assert starts_of(copying) == [None if number in gone else 3 for number in range(PARTITIONS)]
        led = next(number for number in range(PARTITIONS) if number not in gone)
        clients.put(clients.producer(copying.source), copying.topic, b"after", partition=led)
        clients.wait_value(copying.target, copying.copy, led, b"after")
        assert clients.values(clients.read(copying.target, copying.copy, led)) == [b"after"]
    finally:
        copying.close()


def test_status_and_plan_show_it_at_that_partition(
    two_brokers: KafkaCluster, elsewhere: EmbeddedBroker, tmp_path: Path
) -> None:
    copying = Copying(two_brokers, elsewhere, tmp_path, partitions=PARTITIONS)
    try:
        writer = clients.producer(copying.source)
        worker = copying.running()
        for number in range(PARTITIONS):
            clients.put(writer, copying.topic, *numbered("old", 3), partition=number)
            clients.wait_value(copying.target, copying.copy, number, numbered("old", 3)[-1])
        assert worker.stop() == 0, worker.tail()
        two_brokers.kill(2)
        code, shown = copying.asked("status")
        states = {row["state"] for row in shown["partitions"]}
        assert (code, states) == (0, {"in_sync", "waiting"})
        waiting = [row for row in shown["partitions"] if row["state"] == "waiting"]
        assert all("LEADER_NOT_AVAILABLE" in row["detail"] for row in waiting), waiting
        assert [row["position"] for row in shown["partitions"]] == [3] * PARTITIONS
        code, planned = copying.asked("plan")
        first, unknown = planned["findings"]
        assert (code, first["severity"], unknown["severity"]) == (0, "warning", "warning")
        assert first["message"].startswith(f"{copying.topic}[{waiting[0]['partition']}] would wait")
        assert unknown["message"].endswith("whether more transactions stay open at the source is not known")
    finally:
        copying.close()


@pytest.mark.tier("long", kafka="long")
def test_a_broker_that_is_not_known_to_be_dead_yet_holds_back_its_partitions_only(
    elsewhere: EmbeddedBroker, tmp_path: Path
) -> None:
    """Its partitions still have it as leader. One flow waits for it in vain, the next one sees it come back."""
    need_kafka()
    cluster = KafkaCluster(2, settings={"broker.session.timeout.ms": "600000"})
    made: list[Copying] = []

    def opened(connect_timeout_ms: int) -> Copying:
        limits = {"connect_timeout_ms": connect_timeout_ms}
        copying = Copying(cluster, elsewhere, tmp_path, partitions=PARTITIONS, start={"kind": "latest"}, limits=limits)
        made.append(copying)
        writer = clients.producer(copying.source)
        for number in range(PARTITIONS):
            clients.put(writer, copying.topic, *numbered("before", 3), partition=number)
        return copying

    try:
        cluster.start()
        copying, patient = opened(6_000), opened(60_000)
        cluster.suspend(2)
        worker = copying.running()
        gone = {int(event["partition"]) for event in worker.seen("starts_at_earliest")}
        assert 0 < len(gone) < PARTITIONS
        assert [int(event["partition"]) for event in worker.seen("start_not_resolved")] == sorted(gone), "once each"
        assert worker.stop() == 0, worker.tail()

        worker = patient.run()
        worker.wait_event("start_not_resolved")
        cluster.resume(2)
        worker.wait_event("lane_started")
        assert not worker.seen("starts_at_earliest")
        assert starts_of(patient) == [3] * PARTITIONS
        for number in range(PARTITIONS):
            clients.put(clients.producer(patient.source), patient.topic, b"after", partition=number)
            clients.wait_value(patient.target, patient.copy, number, b"after")
            assert clients.values(clients.read(patient.target, patient.copy, number)) == [b"after"]
        assert worker.stop() == 0, worker.tail()

        worker = copying.running()
        for number in gone:
            clients.wait_value(copying.target, copying.copy, number, numbered("before", 3)[-1])
        assert worker.stop() == 0, worker.tail()
    finally:
        for copying in made:
            copying.close()
        cluster.stop()


def starts_of(copying: Copying) -> list[int | None]:
    """Where its partitions begin, as its control topic says."""
    bodies = [json.loads(m.value() or b"") for m in clients.read(copying.target, f"__eos.{copying.name}.control")]
    (offsets,) = [body["topics"][0][3] for body in bodies if body["kind"] == "starts"]
    return list(offsets)

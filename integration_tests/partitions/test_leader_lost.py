"""Source partitions that lose their leader while the flow runs: two real brokers, of which one is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import free_port
from integration_tests.harness.copying import Copying
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.kafka_cluster import KafkaCluster
from integration_tests.harness.kafka_container import need_kafka
from integration_tests.harness.observed import Observed
from integration_tests.harness.replicator import DEFAULT

pytestmark = [pytest.mark.kafka, pytest.mark.tier("long", kafka="long")]

PARTITIONS = 6
SUMMARY_S_MAX = 70.0  # there is one every 30 s


@pytest.mark.parametrize("engine", ["records", "batches"])
def test_log_status_and_metrics_say_so_and_the_others_go_on(tmp_path: Path, engine: str) -> None:
    need_kafka()
    cluster, elsewhere = KafkaCluster(2), EmbeddedBroker(tmp_path / "target")
    try:
        cluster.start()
        elsewhere.start()
        copying = Copying(
            cluster,
            elsewhere,
            tmp_path,
            partitions=PARTITIONS,
            engine=engine,
            limits={"discovery_interval_ms": DEFAULT},
        )
        try:
            _lost(cluster, copying)
        finally:
            copying.close()
    finally:
        elsewhere.stop()
        cluster.stop()


def _lost(cluster: KafkaCluster, copying: Copying) -> None:
    address = f"127.0.0.1:{free_port()}"
    copying.file.listen(address)
    asked, worker = Observed(address), copying.running()
    writer = clients.producer(copying.source)
    for number in range(PARTITIONS):
        clients.put(writer, copying.topic, b"old", partition=number)
        clients.wait_value(copying.target, copying.copy, number, b"old")
    asked.wait("no lag", lambda it: it.value("eos_flow_lag_records", flow=copying.name) == 0)

    cluster.kill(2)
    worker.wait_event("waiting", reason="no_answer", topic=copying.topic)
    _, shown = copying.asked("status")
    waiting = {row["partition"] for row in shown["partitions"] if row["state"] == "waiting"}
    assert 0 < len(waiting) < PARTITIONS
    for number in waiting:
        found = worker.wait_event("waiting", reason="no_answer", partition=number)
        assert "has no leader" in found["detail"]
    asked.wait(
        "metrics say so", lambda it: it.value("eos_flow_partitions", flow=copying.name, state="waiting") == len(waiting)
    )
    led = next(number for number in range(PARTITIONS) if number not in waiting)
    clients.put(clients.producer(copying.source), copying.topic, b"new", partition=led)
    clients.wait_value(copying.target, copying.copy, led, b"new")
    said = worker.wait_event("summary", timeout_s=SUMMARY_S_MAX, waiting=len(waiting))
    assert said["lag_records"] == 0
    asked.wait("lag of the others", lambda it: it.value("eos_flow_lag_records", flow=copying.name) == 0)

    cluster.restart(2)
    for number in waiting:
        clients.put(clients.producer(copying.source), copying.topic, b"new", partition=number)
        clients.wait_value(copying.target, copying.copy, number, b"new")
        worker.wait_event("copying", topic=copying.topic, partition=number)
    assert {event["partition"] for event in worker.seen("waiting")} == waiting
    assert len(worker.seen("waiting")) == len(waiting), "once for each"
    assert worker.stop() == 0, worker.tail()

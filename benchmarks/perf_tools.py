"""Kafka's own performance tools, from the image of its brokers, on the host's network: one client for either broker."""

from __future__ import annotations

import re

from benchmarks.clusters import IMAGE, docker
from benchmarks.load import BATCH_BYTES, RECORD_BYTES

HEAP = "-Xmx512m"
PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
RATE = re.compile(r"([\d.]+) records/sec")


def _run(main_class: str, *arguments: str) -> str:
    command = ("run", "--rm", "--network", "host", "--entrypoint", "java", IMAGE)
    return docker(*command, HEAP, "-cp", "/opt/kafka/libs/*", main_class, *arguments)


def produce(bootstrap: str, topic: str, records: int, warm_up: int) -> float:
    """Records a second, acks=all, idempotent (Kafka's default), the first `warm_up` not counted."""
    said = _run(
        PRODUCER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(records), "--record-size", str(RECORD_BYTES), "--warmup-records", str(warm_up)),
        *("--command-property", f"batch.size={BATCH_BYTES}", "linger.ms=100"),
    )
    return float(RATE.findall(said)[-1])


def consume(bootstrap: str, topic: str, records: int) -> float:
    """Records a second once the group has assigned the partitions."""
    said = _run(
        CONSUMER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records), "--timeout", "60000"),
        "--hide-header",
    )
    figures = [figure.strip() for figure in said.splitlines()[-1].split(",")]
    read, rate = float(figures[4]), float(figures[-1])
    if read < records:
        raise RuntimeError(f"{topic}: {read:.0f} of {records} records read: {said}")
    return rate

"""When a process that nobody shares a flow with has its first commit: as a worker that others may join, and, in turn
with it, as the only process of its flow (`run --standalone`). Used by `benchmarks.workers`."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from rich.console import Console

from integration_tests.harness import clients
from integration_tests.harness.replicator import DEFAULT, FlowFile, Replicator

MODES = ("shared", "standalone")
START, RESTART, KILL = "first start of a flow", "stopped and started", "killed and started"
RECORDS = 100


def first_commits(
    directory: Path, source: str, target: str, number: int, partitions: int, lanes: int, console: Console
) -> dict[str, dict[str, float]]:
    """Start, stop, kill and start flows of one worker, so many of either kind.

    Args:
        source, target: addresses of the brokers.

    Returns medians in seconds, from the start of the process to its first commit, by what was done and by kind.
    """
    found: dict[str, dict[str, list[float]]] = {name: {mode: [] for mode in MODES} for name in (START, RESTART, KILL)}
    for turn in range(number):
        for mode in MODES if turn % 2 == 0 else reversed(MODES):
            topic = f"alone.{mode}.{turn}"
            clients.create_topic(source, topic, partitions)
            clients.create_topic(target, f"{topic}.copy", partitions)
            settings = {"topics": [topic], "lanes": lanes, "limits": DEFAULT, "commit": DEFAULT}
            file = FlowFile(directory, topic.replace(".", "-"), source, target, **settings)
            worker: Replicator | None = None
            for name in (START, RESTART, KILL):
                if worker is not None:
                    worker.kill() if name == KILL else worker.stop()
                _write(source, topic, partitions)
                began_s = time.monotonic()
                worker = Replicator(file, options=(f"--{mode}",))
                worker.wait_event("committed")
                found[name][mode].append(time.monotonic() - began_s)
            assert worker is not None
            worker.stop()
    medians = {name: {mode: round(median(times_s), 3) for mode, times_s in of.items()} for name, of in found.items()}
    console.print(medians, highlight=False)
    return medians


def _write(source: str, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": source})
    for number in range(RECORDS):
        producer.produce(topic, b"x" * 100, b"k", number % partitions)
    producer.flush(30)

"""What is measured, one function a figure. Each starts what it needs and leaves nothing running."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks import load
from benchmarks.clusters import Kafka
from benchmarks.systems import Eos, System, cpu_s, rss_peak_mib

Figures = dict[str, float]
START_S_MAX, COPY_S_MAX, QUIET_S = 120.0, 600.0, 1.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Bench:
    """Where it runs: both clusters, a scratch directory."""

    source: Kafka
    target: Kafka
    directory: Path


class Ends:
    """Last stable offsets of a copy: what a read_committed reader could have read, without reading it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"group.id": "bench", "isolation.level": "read_committed", "log_level": 0}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
        self._topic = topic

    def total(self) -> int:
        """Sum over all partitions; 0 while the topic isn't there."""
        total = 0
        for number in range(load.PARTITIONS):
            try:
                at = TopicPartition(self._topic, number)
                total += self._consumer.get_watermark_offsets(at, timeout=10, cached=False)[1]
            except KafkaException:
                return 0
        return total

    def wait(self, above: int, timeout_s: float) -> tuple[float, int]:
        """Time and total once it is above `above`."""
        deadline = time.monotonic() + timeout_s
        while (total := self.total()) <= above:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._topic}: {total} committed after {timeout_s:.0f} s, waiting for {above}")
            time.sleep(POLL_S)
        return time.monotonic(), total


def throughput(bench: Bench, system: System, records: int) -> Figures:
    """Copy a backlog: rate from first to last committed record, CPU of the copying process meanwhile, peak memory."""
    ends = Ends(bench.target.bootstrap, system.copy)
    system.start()
    try:
        began, first = ends.wait(0, START_S_MAX)
        cpu_began = cpu_s(system.pid())
        last_change, last_total, cpu_ended = began, first, cpu_began
        while last_total < records or time.monotonic() - last_change < QUIET_S:
            if time.monotonic() - began > COPY_S_MAX:
                raise RuntimeError(f"{system.name}: {last_total} of {records} after {COPY_S_MAX:.0f} s")
            total = ends.total()
            if total != last_total:
                last_change, last_total, cpu_ended = time.monotonic(), total, cpu_s(system.pid())
            time.sleep(POLL_S)
        memory = rss_peak_mib(system.pid())
    finally:
        system.stop()
    copied = records - first
    return {
        "records_per_s": copied / (last_change - began),
        "cpu_s_per_million": (cpu_ended - cpu_began) / copied * 1e6,
        "rss_peak_mib": memory,
    }


def latency(bench: Bench, system: System, topic: str, seconds: float, rate: int, warm_up_s: float) -> Figures:
    """End to end, from before the producer's send to a read_committed reader, at a steady rate."""
    steady = load.Steady(bench.source.bootstrap, bench.target.bootstrap, topic, system.copy, rate)
    load.prime(bench.source.bootstrap, topic)
    system.start()
    try:
        Ends(bench.target.bootstrap, system.copy).wait(load.PARTITIONS, START_S_MAX)
        began = time.time()
        steady.run(seconds + warm_up_s)
    finally:
        system.stop()
    values = sorted(latency for written, latency in steady.latencies if written > began + warm_up_s)
    return {f"p{share}_ms": values[int(len(values) * share / 100)] * 1000 for share in (50, 99)}


def stalled(bench: Bench, topic: str, stall_s: float) -> Figures:
    """Peak memory of a worker with a backlog behind it and a target that has stopped answering."""
    system = Eos(bench.source, bench.target, topic, bench.directory)
    ends = Ends(bench.target.bootstrap, system.copy)
    system.start()
    try:
        ends.wait(0, START_S_MAX)
        bench.target.pause()
        try:
            time.sleep(stall_s)  # the stall itself
        finally:
            bench.target.resume()
        memory = rss_peak_mib(system.pid())
        ends.wait(ends.total(), START_S_MAX)
    finally:
        system.stop()
    return {"rss_peak_mib": memory}


def recovery(bench: Bench, topic: str) -> Figures:
    """From SIGKILL in the middle of a backlog to the first new commit of its successor, started at once."""
    system = Eos(bench.source, bench.target, topic, bench.directory)
    ends = Ends(bench.target.bootstrap, system.copy)
    system.start()
    try:
        ends.wait(0, START_S_MAX)
        killed = time.monotonic()
        system.kill()
        before = ends.total()
        system.start()
        committed, _ = ends.wait(before + load.PARTITIONS, START_S_MAX)
    finally:
        system.stop()
    return {"kill_to_commit_s": committed - killed}


def topic_name(kind: str) -> str:
    """A fresh topic name."""
    return f"{kind}-{uuid.uuid4().hex[:6]}"

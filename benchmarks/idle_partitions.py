"""A thousand partitions with 20 bytes a second each: what copying them takes, and what waits when the target stands
still. Used by `benchmarks.engines`.
"""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Producer

from benchmarks import cases, load
from benchmarks.__main__ import STALL_S
from benchmarks.cases import START_S_MAX, Figures
from benchmarks.clusters import Kafka
from benchmarks.many_partitions import create
from benchmarks.observe import Copy
from benchmarks.systems import Eos, cpu_s, rss_peak_mib

PARTITIONS, RECORD_BYTES, RATE = 1_000, 200, 100
"""Records/s over all partitions: 20 bytes/s each."""
AFTER_START_S = 10.0
STALLED_RECORDS, STALLED_BYTES = 400_000, 1_000
"""Written while the target stands still: more than may wait in a process."""


class IdlePartitions:
    """Measures with clusters of its own each time: a thousand partitions more are left behind by each."""

    def __init__(self, directory: Path, seconds: float) -> None:
        """`seconds`: for how long records are written."""
        self._directory, self._seconds = directory, seconds

    def measure(self, engine: str) -> Figures:
        """CPU in percent of a core while it copies, from the writer to a reader, and peak memory, also when stalled."""
        with Kafka.running("source") as source, Kafka.running("target") as target:
            topic = cases.topic_name("quiet")
            create(source.bootstrap, [topic], PARTITIONS)
            load.prime(source.bootstrap, topic, PARTITIONS)
            eos = Eos(source, target, topic, self._directory, engine=engine)
            copy = Copy(target.bootstrap, eos.copy, PARTITIONS)
            eos.start()
            try:
                copy.wait(PARTITIONS, START_S_MAX)
                time.sleep(AFTER_START_S)
                figures = self._copying(eos, source, target, topic)
                target.pause()
                fill(source.bootstrap, topic)
                time.sleep(STALL_S)  # the stall itself
                return figures | {"rss_stalled_peak_mib": rss_peak_mib(eos.pid())}
            finally:
                target.resume()
                eos.stop()
                copy.close()

    def _copying(self, eos: Eos, source: Kafka, target: Kafka, topic: str) -> Figures:
        steady = load.Steady(source.bootstrap, target.bootstrap, topic, eos.copy, RATE, PARTITIONS, RECORD_BYTES)
        began, cpu_began = time.monotonic(), cpu_s(eos.pid())
        steady.run(self._seconds)
        cpu_percent = 100 * (cpu_s(eos.pid()) - cpu_began) / (time.monotonic() - began)
        latencies = sorted(latency for written, latency in steady.latencies if written)
        p99_ms = latencies[int(len(latencies) * 0.99)] * 1000
        return {"cpu_percent": cpu_percent, "p99_ms": p99_ms, "rss_peak_mib": rss_peak_mib(eos.pid())}


def fill(bootstrap: str, topic: str) -> None:
    """Write more than may wait in a process."""
    producer, value = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50}), b"x" * STALLED_BYTES
    for number in range(STALLED_RECORDS):
        while True:
            try:
                producer.produce(topic, value, b"k", number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError("the records were not written")

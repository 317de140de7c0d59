"""`python -m benchmarks.broker_pairs --before TREE`: this checkout's broker beside another one's, in alternating pairs.

As `benchmarks.pairs` does for the worker: a pair of old and new is followed by a pair of old and old, and so on; the
first pair of each series is dropped. Both brokers are run by the same Python and driven by librdkafka, with the
broker's defaults: everything acknowledged is on disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles

import click
from confluent_kafka import Consumer, Producer
from rich.console import Console

from benchmarks import cases, load
from benchmarks.broker import DIRECTORY, settle
from benchmarks.cases import Figures
from benchmarks.commits import Committer
from benchmarks.pairs import described, keep, series
from benchmarks.pairs_report import verdicts
from benchmarks.serving import Embedded
from benchmarks.systems import cpu_s

FIGURES = (
    "start_s",
    "produce_per_s",
    "consume_per_s",
    "commits_per_s",
    "p50_ms",
    "p99_ms",
    "cpu_s_million",
    "rss_peak_mib",
    "start_with_data_s",
)
TIMEOUT_S = 120.0


class BrokerBench:
    """Measures one checkout's broker at a time, with new data each time."""

    def __init__(self, directory: Path, records: int, seconds: float) -> None:
        self._directory, self._records, self._seconds = directory, records, seconds

    def figures(self, tree: Path) -> Figures:
        """All of `FIGURES`."""
        settle()
        directory = self._directory / cases.topic_name("broker")
        broker = Embedded(directory, tree)
        try:
            found = {"start_s": broker.start_again()}
            found |= self._throughput(broker)
            topic = cases.topic_name("transactions")
            load.create(broker.bootstrap, topic)
            found["commits_per_s"] = Committer(broker.bootstrap, topic).rate(self._seconds)
            found |= self._latency(broker)
            found["rss_peak_mib"] = broker.peak_mib()
            broker.kill()
            found["start_with_data_s"] = broker.start_again()
        finally:
            broker.shut_down()
            shutil.rmtree(directory)
        return found

    def _throughput(self, broker: Embedded) -> Figures:
        topic = cases.topic_name("perf")
        began, used = time.monotonic(), cpu_s(broker.pid())
        load.backlog(broker.bootstrap, topic, self._records)
        produced, paid = time.monotonic() - began, cpu_s(broker.pid()) - used
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
        )
        consumer.subscribe([topic])
        read = len(consumer.consume(1, TIMEOUT_S))
        began = time.monotonic()
        while read < self._records:
            messages = consumer.consume(min(10_000, self._records - read), TIMEOUT_S)
            if not messages:
                raise RuntimeError(f"{read} of {self._records} records read")
            read += len(messages)
        consumed = time.monotonic() - began
        consumer.close()
        return {
            "produce_per_s": self._records / produced,
            "consume_per_s": self._records / consumed,
            "cpu_s_million": paid / self._records * 1e6,
        }

    def _latency(self, broker: Embedded) -> Figures:
        """One record after the other, each acknowledged."""
        topic = cases.topic_name("single")
        load.create(broker.bootstrap, topic)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0})
        taken, warm, end = list[float](), time.monotonic() + 1.0, time.monotonic() + 1.0 + self._seconds
        while (began := time.monotonic()) < end:
            producer.produce(topic, b"x" * load.RECORD_BYTES, partition=0)
            if producer.flush(TIMEOUT_S):
                raise RuntimeError("a record wasn't acknowledged")
            if began >= warm:
                taken.append((time.monotonic() - began) * 1000)
        return {"p50_ms": median(taken), "p99_ms": quantiles(taken, n=100)[98]}


@click.command()
@click.option("--before", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True,
              help="A checkout of the commit that is compared with.")  # fmt: skip
@click.option("--pairs", default=7, show_default=True, help="Pairs of each series, after one that is dropped.")
@click.option("--records", default=1_000_000, show_default=True, help="Records produced and consumed, 256 bytes each.")
@click.option("--seconds", default=4.0, show_default=True, help="Length of a run of commits, and of one of latency.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(before: Path, pairs: int, records: int, seconds: float, out: Path | None) -> None:
    """Compare this checkout's broker with that of the one at --before."""
    console, started, load_began = Console(width=250), datetime.now(UTC), os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as directory:
        found = series(BrokerBench(Path(directory), records, seconds), before.resolve(), pairs, console)
    settings = described(before, started, load_began, pairs=pairs, records=records, seconds=seconds)
    path = out or DIRECTORY.with_name("broker_pairs") / f"{started:%Y-%m-%d-%H%M}.json"
    keep(path, settings, verdicts(found, FIGURES), found, console)


if __name__ == "__main__":
    main()

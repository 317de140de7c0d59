"""`python -m benchmarks.broker`: the embedded broker beside Kafka, driven by Kafka's own tools and by librdkafka.

Both run on this machine, in turn, and each is idle while the other is measured. The embedded broker waits for the disk
before it acknowledges anything; Kafka does not, except in the case that says so.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import cases, load, perf_tools
from benchmarks.__main__ import RESULTS, machine, summary
from benchmarks.commits import Committer, fsyncs_each
from benchmarks.serving import Embedded, Real, Served

DIRECTORY = RESULTS / "broker"
CASES = ("throughput", "transactions", "start")
FLUSHING = "Kafka, flush.messages=1"
GIB_RECORDS = 2**30 // load.RECORD_BYTES
FSYNC_COMMITS = 200
WARM_UP_ROUNDS = 3
"""Kafka takes 6 s of CPU for the first 4,000,000 records, 5 for the second and the third, 2 from the fourth on."""
MEMORY_BYTES = 2 * 2**30
Runs = dict[str, dict[str, list[dict[str, float]]]]


class Figures:
    """All figures so far, by case and broker; told as they come."""

    def __init__(self, console: Console, runs: Runs) -> None:
        """`runs`: of other cases, measured before."""
        self.runs = runs
        self._console = console

    def add(self, case: str, name: str, **figures: float) -> None:
        """Keep one measurement."""
        self.runs.setdefault(case, {}).setdefault(name, []).append(figures)
        self._console.print(case, name, {key: round(value, 2) for key, value in figures.items()}, highlight=False)


@contextmanager
def embedded(directory: Path) -> Iterator[Embedded]:
    """An embedded broker that has just started; its data goes with it."""
    broker = Embedded(directory)
    broker.start_again()
    try:
        yield broker
    finally:
        broker.shut_down()
        shutil.rmtree(directory)


@contextmanager
def kafka(role: str, name: str = Real.name, **settings: str) -> Iterator[Real]:
    """A Kafka broker in a container of its own."""
    broker = Real(role, name, **settings)
    try:
        yield broker
    finally:
        broker.stop()


def settle() -> None:
    """Let what comes next pay for itself only.

    The disk gets what is still to be written: what one broker left in memory isn't the other's to wait for. And memory
    for the records is used once: a virtual machine gets it from its host at its first use, which costs as much CPU as
    a broker takes.
    """
    with mmap.mmap(-1, MEMORY_BYTES) as memory:
        for page in range(0, MEMORY_BYTES, mmap.PAGESIZE):
            memory[page] = 1
    os.sync()


def throughput(broker: Served, records: int) -> dict[str, float]:
    """Produce, then consume the same; memory while it is produced.

    Topics stay: freed blocks are discarded on the disk later, in somebody's measurement.
    """
    settle()
    topic = cases.topic_name("perf")
    load.create(broker.bootstrap, topic)
    broker.forget_peak()
    produced = perf_tools.produce(broker.bootstrap, topic, records, records // 8)
    peak = broker.peak_mib()
    consumed = perf_tools.consume(broker.bootstrap, topic, records)
    return {"produce_per_s": produced, "consume_per_s": consumed, "produce_peak_mib": peak}


def transactions(figures: Figures, brokers: list[Served], seconds: float) -> None:
    """Each in turn."""
    for broker in brokers:
        topic = cases.topic_name("transactions")
        load.create(broker.bootstrap, topic)
        figures.add("transactions", broker.name, commits_per_s=Committer(broker.bootstrap, topic).rate(seconds))


def start(figures: Figures, broker: Served) -> None:
    """Start with nothing, take 1 GiB, and start with it after a kill that came when the load had just ended."""
    broker.shut_down()
    empty = broker.start_again()
    idle = broker.resident_mib()
    topic = cases.topic_name("gib")
    load.create(broker.bootstrap, topic)
    settle()
    produced = perf_tools.produce(broker.bootstrap, topic, GIB_RECORDS, GIB_RECORDS // 8)
    broker.kill()
    again = broker.start_again()
    figures.add("start", broker.name, empty_s=empty, idle_mib=idle, first_produce_per_s=produced, gib_s=again)
    load.delete(broker.bootstrap, topic)


def measure(figures: Figures, directory: Path, only: tuple[str, ...], runs: int, records: int, seconds: float) -> None:
    """All cases; within a round the brokers take turns, and the first one changes from round to round.

    The first rounds of throughput aren't counted: a JVM that has just started is slower than one at work.
    """
    with ExitStack() as stack:
        ours = stack.enter_context(embedded(directory / "ours"))
        theirs = stack.enter_context(kafka("broker"))
        if "throughput" in only:
            for number in range(-WARM_UP_ROUNDS, runs):
                pair: list[Served] = [ours, theirs]
                both = pair[:: 1 if number % 2 else -1]
                for broker in both:
                    found = throughput(broker, records)
                    if number >= 0:
                        figures.add("throughput", broker.name, **found)
        if "transactions" in only:
            flushing = stack.enter_context(kafka("flushing", FLUSHING, KAFKA_LOG_FLUSH_INTERVAL_MESSAGES="1"))
            for _ in range(runs):
                transactions(figures, [ours, theirs, flushing], seconds)
            topic = cases.topic_name("fsyncs")
            load.create(ours.bootstrap, topic)
            committer = Committer(ours.bootstrap, topic)
            each = fsyncs_each(committer, ours.pid(), FSYNC_COMMITS, directory)
            figures.add("transactions", ours.name, fsyncs_each=each)
    if "start" in only:
        for number in range(runs):
            with embedded(directory / f"start-{number}") as ours, kafka("start") as theirs:
                for broker in (ours, theirs):
                    start(figures, broker)


@click.command()
@click.option("--runs", default=5, show_default=True, help="Rounds; the median counts.")
@click.option("--records", default=4_000_000, show_default=True, help="Records produced and consumed, 256 bytes each.")
@click.option("--seconds", default=10.0, show_default=True, help="Length of a run of transactions.")
@click.option("--only", multiple=True, type=click.Choice(CASES), help="Only these cases; may be given again.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="JSON file; one that exists keeps the cases that aren't measured. Default: by date.",
)
def main(runs: int, records: int, seconds: float, only: tuple[str, ...], out: Path | None) -> None:
    """Measure the embedded broker beside Kafka."""
    console, started = Console(), datetime.now(UTC)
    known = json.loads(out.read_text())["runs"] if out is not None and out.exists() else {}
    figures = Figures(console, {case: runs for case, runs in known.items() if case not in (only or CASES)})
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as directory:
        measure(figures, Path(directory), only or CASES, runs, records, seconds)
    settings = {"runs": runs, "records": records, "seconds": seconds, "started": started.isoformat(timespec="seconds")}
    DIRECTORY.mkdir(exist_ok=True, parents=True)
    path = out or DIRECTORY / f"{started:%Y-%m-%d-%H%M}.json"
    body = {"machine": machine(), "settings": settings, "median": summary(figures.runs), "runs": figures.runs}
    path.write_text(json.dumps(body, indent=1) + "\n")
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

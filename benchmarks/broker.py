"""`python -m benchmarks.broker`: the built-in broker beside Kafka, driven by Kafka's own tools and by librdkafka.

Both run on this machine, in turn, and each is idle while the other is measured. The built-in broker waits for the disk
before it acknowledges anything; Kafka does not, except in the case that says so.
"""

from __future__ import annotations

import json
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
    """A built-in broker that has just started; its data goes with it."""
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


def throughput(broker: Served, records: int) -> dict[str, float]:
    """Produce, then consume the same; memory while it is produced.

    Before, the disk gets what is still to be written: what one broker left in memory isn't the other's to wait for.
    """
    os.sync()
    topic = cases.topic_name("perf")
    load.create(broker.bootstrap, topic)
    broker.forget_peak()
    produced = perf_tools.produce(broker.bootstrap, topic, records, records // 8)
    peak = broker.peak_mib()
    consumed = perf_tools.consume(broker.bootstrap, topic, records)
    load.delete(broker.bootstrap, topic)
    return {"produce_per_s": produced, "consume_per_s": consumed, "produce_peak_mib": peak}


def transactions(figures: Figures, brokers: list[Served], seconds: float) -> None:
    """Each in turn."""
    for broker in brokers:
        topic = cases.topic_name("transactions")
        load.create(broker.bootstrap, topic)
        figures.add("transactions", broker.name, commits_per_s=Committer(broker.bootstrap, topic).rate(seconds))


def start(figures: Figures, broker: Served) -> None:
    """Start with nothing, and with 1 GiB after a kill under load that had just ended."""
    broker.shut_down()
    empty = broker.start_again()
    idle = broker.resident_mib()
    topic = cases.topic_name("gib")
    load.create(broker.bootstrap, topic)
    perf_tools.produce(broker.bootstrap, topic, GIB_RECORDS, 1000)
    broker.kill()
    figures.add("start", broker.name, empty_s=empty, gib_s=broker.start_again(), idle_mib=idle)
    load.delete(broker.bootstrap, topic)


def measure(figures: Figures, directory: Path, only: tuple[str, ...], runs: int, records: int, seconds: float) -> None:
    """All cases; within a round the brokers take turns, and the first one changes from round to round.

    A round of throughput before the first isn't counted: a JVM that has just started is slower than one at work.
    """
    with ExitStack() as stack:
        ours = stack.enter_context(embedded(directory / "ours"))
        theirs = stack.enter_context(kafka("broker"))
        if "throughput" in only:
            for number in range(runs + 1):
                both: list[Served] = [ours, theirs][:: 1 if number % 2 else -1]
                for broker in both:
                    found = throughput(broker, records)
                    if number > 0:
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
    """Measure the built-in broker beside Kafka."""
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

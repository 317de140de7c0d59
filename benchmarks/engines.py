"""`python -m benchmarks.engines`: both engines of `run` beside MirrorMaker 2, in turn, on large and on small batches.

CPU seconds for each million records count: rates say little on a machine that does other things.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
from confluent_kafka import Producer
from rich.console import Console

from benchmarks import cases, load
from benchmarks.__main__ import Session, machine, summary, table
from benchmarks.cases import Bench
from benchmarks.clusters import Kafka
from benchmarks.report import RESULTS
from benchmarks.systems import Eos, MirrorMaker, System

SHAPES = ("128 KiB batches", "4 a batch")
SMALL_BATCH = 4


def small_batches(bootstrap: str, topic: str, records: int) -> None:
    """As `load.backlog`, with four records a batch."""
    load.create(bootstrap, topic)
    settings = {"batch.num.messages": SMALL_BATCH, "linger.ms": 5, "queue.buffering.max.messages": 500_000, "acks": "1"}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(records):
        while True:
            try:
                partition = number // load.RUN_RECORDS % load.PARTITIONS
                producer.produce(topic, b"x" * (load.RECORD_BYTES - 16), b"%016d" % number, partition)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError("the backlog was not written")


def systems(bench: Bench, topic: str) -> dict[str, Callable[[], System]]:
    """What is compared, by name."""
    eos = partial(Eos, bench.source, bench.target, topic, bench.directory)
    return {
        "records": eos,
        "batches": partial(eos, engine="batches"),
        MirrorMaker.name: partial(MirrorMaker, bench.source, bench.target, topic, bench.directory),
    }


@click.command()
@click.option("--runs", default=3, show_default=True, help="Rounds; the median counts.")
@click.option("--records", default=2_000_000, show_default=True, help="Records of each backlog, 256 bytes each.")
@click.option("--shape", "shapes", multiple=True, type=click.Choice(SHAPES), default=SHAPES, help="Only these.")
@click.option("--only", multiple=True, help="Only these systems; may be given again.")
def main(runs: int, records: int, shapes: tuple[str, ...], only: tuple[str, ...]) -> None:
    """Measure both engines beside MirrorMaker 2 (exactly-once, tuned) on two real Kafka brokers."""
    console, started = Console(), datetime.now(UTC)
    with (
        tempfile.TemporaryDirectory(prefix="eos-bench-") as directory,
        Kafka.running("source") as source,
        Kafka.running("target") as target,
    ):
        session = Session(Bench(source, target, Path(directory)), console)
        for shape in shapes:
            topic = cases.topic_name("backlog")
            (load.backlog if shape == SHAPES[0] else small_batches)(source.bootstrap, topic, records)
            for number in range(runs):
                makers = list(systems(session.bench, topic).items())
                for name, make in makers if number % 2 == 0 else makers[::-1]:
                    if not only or name in only:
                        session.measure(shape, name, partial(cases.throughput, session.bench, make(), records))
    console.print(table(summary(session.runs), runs))
    path = RESULTS / "engines" / f"{started:%Y-%m-%d-%H%M}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {"runs": runs, "records": records, "started": started.isoformat(timespec="seconds")}
    body = {"machine": machine(), "settings": settings, "median": summary(session.runs), "runs": session.runs}
    path.write_text(json.dumps(body, indent=1) + "\n")
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

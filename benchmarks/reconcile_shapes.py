"""`python -m benchmarks.reconcile_shapes`: reconciliation of one large partition, and of a topic with many differences.

One partition: several tasks beside one, for the quick pass over both sides, in turn, in one session of Spark, after a
round of each that is not counted. Differences: the full pass over a small topic,
1 % of whose records are missing, doubled, altered or foreign on the target, each time in a session that has run nothing
before; its start is not counted, nor is the first one, in which the brokers answer for the first time.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median

import click
from rich.console import Console

from benchmarks.__main__ import RESULTS, machine, write_result
from benchmarks.clusters import Kafka
from benchmarks.reconcile import MASTER, PATIENCE_MS, copied, quick_pass
from integration_tests.spark.planted import Content, Planted, mixed
from replicator.config import Flow
from replicator.proof import snapshot
from replicator.proof.snapshot import Window
from replicator.spark.reconcile import passes
from replicator.spark.reconcile.reconcile import reconcile
from replicator.spark.session import SparkSettings, session

DIRECTORY = RESULTS / "reconcile_shapes"
ONLY = (0,)
PARTITIONS, EVERY = 4, 100
"""Of the damaged topic; one record in so many is damaged."""
Figures = dict[str, list[float]]


@contextmanager
def _one_task() -> Iterator[None]:
    """Meanwhile no partition is divided among tasks."""
    usual = passes.TASK_RECORDS
    passes.TASK_RECORDS = 1 << 62
    try:
        yield
    finally:
        passes.TASK_RECORDS = usual


def one_partition(flow: Flow, records: int, runs: int, console: Console) -> Figures:
    """Seconds of the quick pass with several tasks and with one: one for each side at the same time even if it divides
    nothing."""
    found: Figures = {}
    with session(SparkSettings(MASTER)) as spark:
        measures: dict[str, Callable[[], float]] = {"both_sides": partial(quick_pass, spark, flow, records)}
        for number in range(runs + 1):
            for name, measure in measures.items():
                several, one = f"{name}_several_tasks_s", f"{name}_one_task_s"
                for key in (several, one) if number % 2 == 0 else (one, several):
                    with _one_task() if key == one else nullcontext():
                        seconds = measure()
                    console.print(f"round {number}", key, round(seconds, 2), "" if number else "(not counted)")
                    if number:
                        found.setdefault(key, []).append(seconds)
    return found


def damaged(records: list[Content], chance: random.Random) -> tuple[list[Content], Counter[str]]:
    """A copy of which one record in EVERY is not as it should be, and how many of each kind. Content alone can't tell
    that another record was the same one before, unless they share a key: without one, it is missing, and one extra."""
    copy, expected = list[Content](), Counter[str]()
    for number, record in enumerate(records):
        if number % EVERY != EVERY // 2:
            copy.append(record)
            continue
        kind = chance.choice(("missing", "doubled", "altered", "extra"))
        expected.update(("missing", "extra") if kind == "altered" and record.key is None else (kind,))
        if kind in ("doubled", "extra"):
            copy.append(record)
        if kind != "missing":
            foreign = Content(b"foreign", b"%d" % number, record.timestamp_ms)
            copy.append({"doubled": record, "altered": record._replace(value=b"altered"), "extra": foreign}[kind])
    return copy, expected


def differences(source: Kafka, target: Kafka, records: int, runs: int, directory: Path) -> list[float]:
    """Seconds of the full pass, each in a session of its own, after one that is not counted; every difference must be
    found, and no other."""
    chance, kinds = random.Random(1), Counter[str]()
    sides = [mixed(records // PARTITIONS, f"p{number}.") for number in range(PARTITIONS)]
    copies = []
    for side in sides:
        copy, expected = damaged(side, chance)
        copies.append(copy)
        kinds += expected
    flow = Planted(source, target, directory, sides, copies).flow
    return [_full_pass(flow, kinds) for _ in range(runs + 1)][1:]


def _full_pass(flow: Flow, expected: Counter[str]) -> float:
    with session(SparkSettings(MASTER)) as spark:
        began = time.monotonic()
        taken = snapshot.take(flow, (), Window(), connect_timeout_ms=PATIENCE_MS)
        outcome = reconcile(spark, flow, taken, "full", lambda *_: None).outcome
        elapsed = time.monotonic() - began
    found = Counter({name: count for name, count in outcome.totals().items() if name != "same"})
    if found != expected:
        raise RuntimeError(f"planted {expected}, found {found}")
    return elapsed


@click.command()
@click.option("--runs", default=3, show_default=True, help="Rounds over the large partition; the median counts.")
@click.option(
    "--records", default=10_000_000, show_default=True, help="Records of the large partition, 256 bytes each."
)
@click.option("--small", default=100_000, show_default=True, help="Records of the topic with differences.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(runs: int, records: int, small: int, out: Path | None) -> None:
    """Measure reconciliation of one large partition, and of many differences."""
    console, started = Console(), datetime.now(UTC)
    with (
        tempfile.TemporaryDirectory(prefix="eos-bench-") as name,
        Kafka.running("source") as source,
        Kafka.running("target") as target,
    ):
        directory = Path(name)
        differing = differences(source, target, small, runs, directory)
        console.print(f"{small:,} records with differences: {', '.join(f'{seconds:.1f} s' for seconds in differing)}")
        with copied(source, target, records, directory, ONLY) as found:
            console.print(f"{records:,} records copied")
            taken = one_partition(found.flow, records, runs, console) | {"differences_s": differing}
    settings = {
        "runs": runs,
        "records": records,
        "small": small,
        "differences": small // EVERY,
        "master": MASTER,
        "pyspark": version("pyspark"),
        "started": started.isoformat(timespec="seconds"),
    }
    medians = {key: median(values) for key, values in taken.items()}
    body = {"machine": machine(), "settings": settings, "median": medians, "runs": taken}
    path = write_result(out or DIRECTORY / f"{started:%Y-%m-%d-%H%M}.json", body)
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

"""`python -m benchmarks.reconcile`: what proving a copy costs, beside Spark merely reading both sides.

Time: both sides on real Kafka, copied by a flow; the quick pass and the read of every column of both sides take turns
in one session of Spark, whose start is not counted. Memory: the command in a process of its own, once on few records
and once on many; the peak of the resident memory of all its processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import click
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks import cases, load
from benchmarks.__main__ import RESULTS, machine
from benchmarks.clusters import Kafka
from benchmarks.observe import POLL_S, Copy
from benchmarks.systems import HERE, Eos, resident_mib
from replicator import config
from replicator.config import Flow
from replicator.proof import snapshot
from replicator.proof.snapshot import Window
from replicator.spark.reconcile import kafka
from replicator.spark.reconcile.reconcile import reconcile
from replicator.spark.session import SparkSettings, session

DIRECTORY = RESULTS / "reconcile"
COPY_S_MAX, SAMPLE_S = 900.0, 0.05
PATIENCE_MS = 20_000
MASTER = "local[*,4]"
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Copied:
    """A flow whose source and target hold the same records."""

    file: Path
    flow: Flow


@contextmanager
def copied(
    source: Kafka, target: Kafka, records: int, directory: Path, turns: Sequence[int] = load.EVEN
) -> Iterator[Copied]:
    """Writes a backlog, has a flow copy it, and deletes both at the end. `turns`: the partitions of the batches."""
    topic = cases.topic_name("backlog")
    load.backlog(source.bootstrap, topic, records, turns)
    eos = Eos(source, target, topic, directory)
    copy = Copy(target.bootstrap, eos.copy, load.partitions(turns))
    eos.start()
    deadline = time.monotonic() + COPY_S_MAX
    while copy.total() < records or not copy.complete(load.last_keys(records, turns)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{copy.total()} of {records} records copied after {COPY_S_MAX:.0f} s")
        time.sleep(POLL_S)
    eos.stop()
    copy.close()
    try:
        (flow,) = config.load(eos.file).flows.values()
        yield Copied(eos.file, flow)
    finally:
        load.delete(source.bootstrap, topic)
        load.delete(target.bootstrap, eos.copy)


def read_both(spark: SparkSession, flow: Flow) -> float:
    """Seconds for reading every column of both sides, and nothing else."""
    began = time.monotonic()
    taken = snapshot.take(flow, (), Window(), connect_timeout_ms=PATIENCE_MS)
    source = kafka.read(spark, flow, flow.source, {pair.source: pair.source_range for pair in taken.pairs})
    target = kafka.read(spark, flow, flow.target, {pair.target: pair.target_range for pair in taken.pairs})
    assert source is not None
    assert target is not None
    source.unionByName(target).write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def quick_pass(spark: SparkSession, flow: Flow, records: int) -> float:
    """Seconds for the quick pass; both sides must agree."""
    began = time.monotonic()
    taken = snapshot.take(flow, (), Window(), connect_timeout_ms=PATIENCE_MS)
    outcome = reconcile(spark, flow, taken, "quick", lambda *_: None).outcome
    elapsed = time.monotonic() - began
    if not outcome.agrees or outcome.totals() != {"same": records}:
        raise RuntimeError(f"the sides differ: {outcome.totals()}")
    return elapsed


def times(flow: Flow, records: int, runs: int, console: Console) -> dict[str, list[float]]:
    """Both in turn, after a round that is not counted; the first one changes from round to round."""
    found: dict[str, list[float]] = {"read_s": [], "quick_s": []}
    with session(SparkSettings(MASTER)) as spark:
        for number in range(runs + 1):
            measures = {"read_s": lambda: read_both(spark, flow), "quick_s": lambda: quick_pass(spark, flow, records)}
            for name in measures if number % 2 == 0 else reversed(measures):
                seconds = measures[name]()
                console.print(f"round {number}", name, round(seconds, 2), "" if number else "(not counted)")
                if number:
                    found[name].append(seconds)
    return found


def memory(found: Copied, mode: str) -> float:
    """Peak MiB of `eos-replicate reconcile`: driver, executor (one JVM here) and Python."""
    command = [sys.executable, "-m", "cli.main", "reconcile", "-c", str(found.file), "--master", MASTER, "--json"]
    process = subprocess.Popen([*command, *([f"--{mode}"] if mode else [])], stdout=subprocess.DEVNULL, cwd=HERE.parent)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, resident_mib(process.pid))
        time.sleep(SAMPLE_S)
    if process.returncode != 0:
        raise RuntimeError(f"reconcile ended with exit code {process.returncode}")
    return peak


def measured(records: int, runs: int, sizes: tuple[int, ...], console: Console) -> dict[str, object]:
    """All figures; medians by name, and every run."""
    with (
        tempfile.TemporaryDirectory(prefix="eos-bench-") as name,
        Kafka.running("source") as source,
        Kafka.running("target") as target,
    ):
        directory = Path(name)
        with copied(source, target, records, directory) as found:
            console.print(f"{records:,} records copied")
            taken = times(found.flow, records, runs, console)
        peaks: dict[str, float] = {}
        for size in sizes:
            with copied(source, target, size, directory) as found:
                peaks[str(size)] = memory(found, "quick")
                console.print(f"{size:,} records: peak {peaks[str(size)]:,.0f} MiB")
    medians = {key: median(values) for key, values in taken.items()}
    return {"median": medians, "runs": taken, "peak_mib": peaks}


@click.command()
@click.option("--runs", default=3, show_default=True, help="Rounds; the median counts.")
@click.option("--records", default=4_000_000, show_default=True, help="Records on either side, 256 bytes each.")
@click.option("--sizes", default="1000000,10000000", show_default=True, help="Records of the runs that measure memory.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(runs: int, records: int, sizes: str, out: Path | None) -> None:
    """Measure reconciliation beside Spark merely reading both sides."""
    console = Console()
    started = datetime.now(UTC)
    figures = measured(records, runs, tuple(int(size) for size in sizes.split(",") if size), console)
    settings = {
        "runs": runs,
        "records": records,
        "master": MASTER,
        "pyspark": version("pyspark"),
        "started": started.isoformat(timespec="seconds"),
    }
    path = out or DIRECTORY / f"{started:%Y-%m-%d-%H%M}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "settings": settings, **figures}, indent=1) + "\n")
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

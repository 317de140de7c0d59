"""`python -m benchmarks.proof_spark`: what `reconcile` by the offset map costs on Spark.

Clean: both sides and the map as `benchmarks.proof` writes them; the full pass, and Spark reading every column of both
sides and nothing else, take turns in one session, after a round of each that isn't counted. Differing: the full pass in
a session of its own, whose start isn't counted, beside `reconcile --local`, of which it is. Figures go to
benchmarks/results/proof_spark.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import click
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks import report
from benchmarks.__main__ import machine, write_result
from benchmarks.clusters import Kafka
from benchmarks.proof import VALUE, written
from benchmarks.reconcile import MASTER, PATIENCE_MS, read_both
from cli.commands.reconcile_progress import LocalProgress
from replicator import config
from replicator.config import Flow
from replicator.proof import snapshot, verdicts
from replicator.proof.local import reconcile_local
from replicator.proof.outcome import Outcome
from replicator.proof.snapshot import Window
from replicator.spark.reconcile.reconcile import reconcile
from replicator.spark.session import SparkSettings, session

RESULTS = report.RESULTS / "proof_spark"


def full_pass(spark: SparkSession, flow: Flow, expected: dict[str, int]) -> float:
    """Seconds of the full pass by the map, which must find just that."""
    began = time.monotonic()
    taken = snapshot.take(flow, (), Window(), connect_timeout_ms=PATIENCE_MS)
    found = reconcile(spark, flow, taken, "full", lambda *_: None)
    elapsed = time.monotonic() - began
    if found.by_map.by_content:
        raise RuntimeError(f"not by the map: {found.by_map.by_content}")
    _check(found.outcome, expected)
    return elapsed


def local(flow: Flow, expected: dict[str, int]) -> float:
    """Seconds of the comparison in this process."""
    began = time.monotonic()
    with LocalProgress(Console(stderr=True), flow.name) as progress:
        taken = snapshot.take(flow, (), Window(), connect_timeout_ms=PATIENCE_MS, time_ms_max=None)
        outcome = reconcile_local(flow, taken, progress).outcome
    elapsed = time.monotonic() - began
    _check(outcome, expected)
    return elapsed


def _check(outcome: Outcome, expected: dict[str, int]) -> None:
    if outcome.totals() != expected:
        raise RuntimeError(f"{outcome.totals()}, expected {expected}")


def clean(flow: Flow, records: int, runs: int, console: Console) -> dict[str, list[float]]:
    """Both in turn; the first one changes from round to round."""
    found: dict[str, list[float]] = {"read_s": [], "reconcile_s": []}
    with session(SparkSettings(MASTER)) as spark:
        measures: dict[str, Callable[[], float]] = {
            "read_s": lambda: read_both(spark, flow),
            "reconcile_s": lambda: full_pass(spark, flow, {verdicts.SAME: records}),
        }
        for number in range(runs + 1):
            for name in measures if number % 2 == 0 else reversed(measures):
                seconds = measures[name]()
                console.print(f"round {number}", name, round(seconds, 2), "" if number else "(not counted)")
                if number:
                    found[name].append(seconds)
    return found


@click.command()
@click.option("--records", default=4_000_000, show_default=True, help="Of either side, where nothing differs.")
@click.option("--each", default=1_000, show_default=True, help="Records of which a block of the map tells.")
@click.option("--small", default=100_000, show_default=True, help="Of either side, where one in a hundred differs.")
@click.option("--runs", default=3, show_default=True, help="The median counts.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(records: int, each: int, small: int, runs: int, out: Path | None) -> None:
    """Measure reconcile by the offset map on Spark."""
    console, started = Console(), datetime.now(UTC)
    differing = small // 100
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as name, Kafka.running("both") as kafka:
        file = written(kafka, Path(name), "damaged", small, each, differing=differing)
        flow = config.load(file.path).flows[file.flow]
        expected = {verdicts.SAME: small - differing, verdicts.ALTERED: differing}
        found: dict[str, list[float]] = {"differences_s": [], "differences_local_s": []}
        for _ in range(runs):
            with session(SparkSettings(MASTER)) as spark:
                found["differences_s"].append(full_pass(spark, flow, expected))
            found["differences_local_s"].append(local(flow, expected))
            console.print(f"{differing:,} differences", {key: round(values[-1], 2) for key, values in found.items()})
        file = written(kafka, Path(name), "clean", records, each)
        found |= clean(config.load(file.path).flows[file.flow], records, runs, console)
    medians = {key: median(values) for key, values in found.items()}
    medians["clean_ratio"] = medians["reconcile_s"] / medians["read_s"]
    console.print(medians)
    settings = {"records": records, "each": each, "small": small, "runs": runs, "value_bytes": len(VALUE)}
    settings_said = {**settings, "master": MASTER, "started": started.isoformat(timespec="seconds")}
    body = {
        "machine": machine(),
        "load": os.getloadavg()[0],
        "settings": settings_said,
        "median": medians,
        "runs": found,
    }
    path = write_result(out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json", body)
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

"""`python -m benchmarks.reconcile_memory`: what memory a proof takes, by how much it reads, of how many partitions.

The command is run with its default settings in a process of its own, first over sides that are equal, then over the
same ones with a record of somebody else at the end of each target partition: then each partition is read again, cut
into chunks, and opened where the sides differ. What counts is the peak of the resident memory of driver, JVM (which is
the executor, too) and Python workers, and of all of them together.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from os import getloadavg
from pathlib import Path

import click
from confluent_kafka import Producer
from rich.console import Console

from benchmarks.__main__ import machine
from benchmarks.clusters import Kafka
from benchmarks.reconcile import Copied, copied
from benchmarks.reconcile_report import MEMORY
from benchmarks.systems import HERE, resident_by_process
from replicator.config import routing

CASES = ((1_000_000, 4), (10_000_000, 4), (1_000_000, 500))
"""Records of either side, and partitions."""
SIDES = ("equal", "differing")
SAMPLE_S = 0.2  # reading /proc of all processes more often takes a good part of a core
Peaks = dict[str, float]


def measured(found: Copied, extra: int) -> Peaks:
    """Peaks in MiB, and seconds with the start of Spark, of one run.

    Args:
        extra: so many records must be found that only the target has.
    """
    command = [sys.executable, "-m", "cli.main", "reconcile", "-c", str(found.file), "--json"]
    peaks, began = Counter[str](), time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, cwd=HERE.parent)
        while process.poll() is None:
            now = Counter[str]()
            for (pid, name), mib in resident_by_process(process.pid).items():
                part = "driver" if pid == process.pid else "jvm" if name == "java" else "workers"
                now[part] += mib  # type: ignore[assignment]
            now["all"] = now.total()
            peaks |= now
            time.sleep(SAMPLE_S)
        elapsed = time.monotonic() - began
        out.seek(0)
        said = out.read()
    if process.returncode != (1 if extra else 0):
        raise RuntimeError(f"reconcile ended with exit code {process.returncode}: {said[-2_000:]}")
    verdicts = Counter[str]()
    for partition in json.loads(said)["partitions"]:
        verdicts.update(partition["verdicts"])
    if +verdicts - Counter(same=verdicts["same"]) != +Counter(extra=extra):
        raise RuntimeError(f"{extra} foreign records, found {verdicts}")
    return {**peaks, "seconds": elapsed}


def foreign(found: Copied, bootstrap: str, partitions: int) -> None:
    """One record of somebody else at the end of each target partition."""
    (topic,) = found.flow.topics
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(partitions):
        producer.produce(routing.target_topic(found.flow, topic), b"foreign", b"foreign", number)
    if producer.flush(60):
        raise RuntimeError("the foreign records were not written")


@click.command()
@click.option("--case", "cases", type=(int, int), multiple=True, default=CASES, show_default=True)
@click.option("--sides", "kinds", type=click.Choice(SIDES), multiple=True, default=SIDES, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file, added to. Default: by date.")
def main(cases: tuple[tuple[int, int], ...], kinds: tuple[str, ...], out: Path | None) -> None:
    """Measure the memory of reconciliation against records and partitions."""
    console, started = Console(), datetime.now(UTC)
    settings = {"pyspark": version("pyspark"), "started": started.isoformat(timespec="seconds")}
    path = out or MEMORY / f"{started:%Y-%m-%d-%H%M}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    runs: list[dict[str, object]] = json.loads(path.read_text())["runs"] if path.exists() else []
    with (
        tempfile.TemporaryDirectory(prefix="eos-bench-") as name,
        Kafka.running("source") as source,
        Kafka.running("target") as target,
    ):
        for records, partitions in cases:
            with copied(source, target, records, Path(name), range(partitions)) as found:
                for sides in kinds:
                    if sides == "differing":
                        foreign(found, target.bootstrap, partitions)
                    peaks = measured(found, partitions if sides == "differing" else 0)
                    runs.append(
                        {"records": records, "partitions": partitions, "sides": sides, **peaks, "load": getloadavg()[0]}
                    )
                    console.print(runs[-1])
                    body = {"machine": machine(), "settings": settings, "runs": runs}
                    path.write_text(json.dumps(body, indent=1) + "\n")  # after each: together they take long
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

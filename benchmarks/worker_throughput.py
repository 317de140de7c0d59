"""`python -m benchmarks.worker_throughput`: how fast one, two and four workers that share a flow copy a backlog.

On two real brokers on the same machine. The time is that from a tenth of the records to nine tenths, as a
read_committed reader of the target could see them, so that neither start nor end counts; the CPU time is that of the
workers meanwhile.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import load
from benchmarks.__main__ import machine, write_result
from benchmarks.clusters import Kafka
from integration_tests.harness import clients
from integration_tests.harness.replicator import DEFAULT, FlowFile, Replicator

RESULTS = Path(__file__).parent / "results" / "worker_throughput"
TOPIC, PARTITIONS, LANES = "backlog", 4, 4
WORKERS = (1, 2, 4)
LOOK_S, LOOKS_S_MAX = 0.1, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What so many workers did."""

    workers: int
    records_per_s: int
    cpu_s_per_million: float
    """Of all workers together, for a million records."""


def measure(source: str, target: str, workers: int, records: int, directory: Path, number: int) -> Measured:
    """Copy the backlog with so many workers, as a flow of its own."""
    name = f"bench-{workers}-{number}"
    copy = f"{TOPIC}.{name}"
    settings = {"topics": [TOPIC], "rename": copy, "lanes": LANES, "limits": DEFAULT, "commit": DEFAULT}
    clients.create_topic(target, copy, PARTITIONS)
    file = FlowFile(directory, name, source, target, **settings)
    alive = [Replicator(file, options=("--shared",)) for _ in range(workers)]
    try:
        marks: dict[int, tuple[float, float, int]] = {}
        give_up_s = time.monotonic() + LOOKS_S_MAX
        while 9 not in marks:
            done = sum(clients.stable_end(target, copy, each) for each in range(PARTITIONS))
            for tenth in (1, 9):
                if tenth not in marks and done >= records * tenth // 10:
                    marks[tenth] = time.monotonic(), sum(worker.cpu_s() for worker in alive), done
            if time.monotonic() > give_up_s:
                raise click.ClickException(f"{done} of {records} records after {LOOKS_S_MAX} s\n{alive[0].tail()}")
            time.sleep(LOOK_S)
    finally:
        for worker in alive:
            worker.stop()
    (began_s, cpu_began_s, before), (ended_s, cpu_ended_s, after) = marks[1], marks[9]
    copied = after - before
    return Measured(
        workers=workers,
        records_per_s=round(copied / (ended_s - began_s)),
        cpu_s_per_million=round((cpu_ended_s - cpu_began_s) / copied * 1e6, 2),
    )


@click.command()
@click.option("--records", default=3_000_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(records: int, rounds: int, out: Path | None) -> None:
    """Measure the throughput of several workers."""
    console, started, load_average = Console(width=200), datetime.now(UTC), os.getloadavg()[0]
    source, target = (Kafka.start(role) for role in ("source", "target"))
    found: list[Measured] = []
    try:
        load.backlog(source.bootstrap, TOPIC, records)
        with tempfile.TemporaryDirectory(prefix="eos-bench-") as directory:
            for number in range(rounds):
                for workers in WORKERS[::-1] if number % 2 else WORKERS:
                    found.append(measure(source.bootstrap, target.bootstrap, workers, records, Path(directory), number))
                    console.print(found[-1], highlight=False)
    finally:
        source.stop()
        target.stop()
    body = {
        "machine": machine(),
        "settings": {
            "started": started.isoformat(timespec="seconds"),
            "records": records,
            "rounds": rounds,
            "partitions": PARTITIONS,
            "lanes": LANES,
            "load_average_before": round(load_average, 2),
        },
        "measured": [asdict(each) for each in found],
    }
    path = write_result(out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json", body)
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

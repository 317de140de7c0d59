"""`python -m benchmarks.worker_costs`: what workers cost that have nothing to copy, and how soon one that joins copies.

Idle: three workers share eight lanes with a thousand partitions, and nothing is written; counted is each one's CPU
time.
Join: a second worker takes one of two lanes, 125 partitions, while records are written to all of them; both clusters
are behind a pipe that delays each direction. Counted is the time from its start to its first commit with records. Both
on real Kafka.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import click
from rich.console import Console

from benchmarks.__main__ import machine, write_result
from benchmarks.clusters import Kafka
from benchmarks.many_partitions import Side, create, put
from integration_tests.harness.background import repeated
from integration_tests.harness.crew import lanes_given
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import DEFAULT, FlowFile, Replicator

RESULTS = Path(__file__).parent / "results" / "worker_costs"
SETTLED_S, IDLE_S, WRITE_EVERY_S = 10.0, 60.0, 0.2
SHARED_S_MAX = 120.0


def topics_of(prefix: str, number: int) -> list[str]:
    """Names of so many topics."""
    return [f"{prefix}-{each}" for each in range(number)]


def file_of(directory: Path, name: str, source: str, target: str, lanes: int) -> FlowFile:
    """A flow as users have it, of all topics that begin with its name."""
    settings = {"topics": [f"^{name}-.*"], "lanes": lanes, "limits": DEFAULT, "commit": DEFAULT}
    return FlowFile(directory, name, source, target, **settings)


def wait_shared(workers: list[Replicator], lanes: int) -> None:
    """Return once each lane is one worker's, and runs there."""

    def shared() -> bool:
        given = [lanes or set() for lanes in lanes_given(workers)]
        run = all(
            worker.seen("lane_started", lane=lane) for worker, own in zip(workers, given, strict=True) for lane in own
        )
        return run and all(given) and sorted(lane for own in given for lane in own) == list(range(lanes))

    wait_until(shared, "the lanes are shared", workers[0].tail)


def idle(sides: Sequence[Kafka], directory: Path, topics: int, lanes: int, number: int) -> list[dict[str, float]]:
    """What each of the workers takes: the share of a core in percent, and its memory in MiB."""
    source, target = sides
    name = f"idle{lanes}"
    create(source.bootstrap, topics_of(name, topics), 100)
    file = file_of(directory, name, source.bootstrap, target.bootstrap, lanes)
    workers = [Replicator(file, options=("--shared",)) for _ in range(number)]
    try:
        wait_shared(workers, lanes)
        time.sleep(SETTLED_S)
        before, began_s = [worker.cpu_s() for worker in workers], time.monotonic()
        time.sleep(IDLE_S)
        took_s = time.monotonic() - began_s
        return [
            {
                "cpu_percent": round(100 * (worker.cpu_s() - was) / took_s, 2),
                "rss_mib": round(worker.memory_bytes() / 2**20, 1),
            }
            for worker, was in zip(workers, before, strict=True)
        ]
    finally:
        for worker in workers:
            worker.stop()


def joins(open_: ExitStack, directory: Path, delay_ms: float, partitions: int, runs: int) -> list[float]:
    """Seconds from the start of a worker to its first commit with records."""
    source, target = (Side(role, delay_ms / 1000, open_) for role in ("source", "target"))
    names, found = topics_of("join", 1), list[float]()
    create(source.near.bootstrap, names, 2 * partitions)
    file = file_of(directory, "join", source.far.bootstrap, target.far.bootstrap, 2)
    first = Replicator(file, options=("--shared",))
    try:
        with repeated(partial(put, source.near.bootstrap, names, 2 * partitions), WRITE_EVERY_S):
            first.wait_event("committed", timeout_s=SHARED_S_MAX)
            for _ in range(runs):
                began_s = time.monotonic()
                second = Replicator(file, options=("--shared",))
                second.wait_any(
                    lambda event: event.get("event") == "committed" and event.get("records", 0) > 0,
                    "commit with records",
                    timeout_s=SHARED_S_MAX,
                )
                found.append(round(time.monotonic() - began_s, 2))
                second.stop()
                time.sleep(SETTLED_S)
    finally:
        first.stop()
    return found


@click.command()
@click.option("--delay-ms", default=15.0, show_default=True, help="Delay of each direction, at both clusters.")
@click.option("--topics", default=10, show_default=True, help="Of a hundred partitions each, for idle workers.")
@click.option("--lanes", default=8, show_default=True)
@click.option("--workers", default=3, show_default=True)
@click.option("--partitions", default=125, show_default=True, help="That a worker which joins takes.")
@click.option("--runs", default=5, show_default=True, help="How often one joins.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(delay_ms: float, topics: int, lanes: int, workers: int, partitions: int, runs: int, out: Path | None) -> None:
    """Measure idle workers, and workers that join over a long line."""
    console, started, load_average = Console(width=200), datetime.now(UTC), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as directory, ExitStack() as open_:
        sides = [Side(role, 0.0, open_).near for role in ("source", "target")]
        alone = idle(sides, Path(directory), topics, 1, 1)
        shared = idle(sides, Path(directory), topics, lanes, workers)
    console.print(f"idle: one lane {alone}, {lanes} lanes {shared}", highlight=False)
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as directory, ExitStack() as open_:
        took_s = joins(open_, Path(directory), delay_ms, partitions, runs)
    console.print(f"first commit after {took_s} s", highlight=False)
    body = {
        "machine": machine(),
        "settings": {
            "started": started.isoformat(timespec="seconds"),
            "delay_ms": delay_ms,
            "idle": {"partitions": topics * 100, "lanes": lanes, "workers": workers, "seconds": IDLE_S},
            "join": {"partitions": partitions, "runs": runs},
            "load_average_before": round(load_average, 2),
        },
        "idle": {"one_lane": alone, "shared": shared},
        "first_commit_s": {"median": median(took_s), "max": max(took_s), "runs": took_s},
    }
    console.print(f"written to {write_result(out or RESULTS / f'{started:%Y-%m-%d-%H%M}.json', body)}")


if __name__ == "__main__":
    main()

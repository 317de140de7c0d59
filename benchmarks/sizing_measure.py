"""`python -m benchmarks.sizing_measure`: the coefficients of `benchmarks.sizing`, and three loads that check them.

Each load is written at a rate while one worker copies it between two embedded brokers, or real ones with --kafka. CPU
time, records and transactions of the worker are counted from its start to copy on, until all is copied. The
coefficients are fitted to the loads of `FITTED` by least squares of what each is off in proportion; those of `CHECKED`
are measured between them.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
import numpy as np
from confluent_kafka import Producer
from rich.console import Console

from benchmarks.__main__ import machine, write_result
from benchmarks.clusters import Kafka
from benchmarks.sizing import PAGE, RESULTS, Coefficients, Demand, estimate, newest, written
from integration_tests.harness import clients
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.replicator import DEFAULT, FlowFile, Replicator

PARTITIONS = 8
FITTED = (
    Demand(0, 0, PARTITIONS, 1),
    Demand(0, 0, PARTITIONS, 4),
    Demand(500, 100, PARTITIONS, 1),
    Demand(4_000, 100, PARTITIONS, 1, 50),
    Demand(1_000, 4_000, PARTITIONS, 1, 50),
    Demand(1_000, 100, PARTITIONS, 4, 20),
    Demand(4_000, 1_000, PARTITIONS, 4, 50),
    Demand(3_000, 300, PARTITIONS, 2, 20),
    Demand(8_000, 500, PARTITIONS, 2, 100),
)
CHECKED = (
    Demand(2_000, 300, PARTITIONS, 1, 20),
    Demand(6_000, 200, PARTITIONS, 4, 100),
    Demand(2_000, 2_000, PARTITIONS, 2, 50),
)
SETTLED_S = 1.0
TICK_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a worker did in so many seconds."""

    seconds: float
    core_s: float
    records: int
    batches: int
    bytes_: int
    transactions: int
    memory_mib: float


class Feed:
    """Writes records of one size at a rate, in turn into all partitions."""

    def __init__(self, bootstrap: str, topic: str, demand: Demand) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic, self._demand = topic, demand
        self.batches = 0
        """Written: what a partition gets between two ticks is one batch."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._producer.flush(60)

    def _write(self) -> None:
        began_s, written_ = time.monotonic(), 0
        value = os.urandom(int(self._demand.bytes_per_record))
        while not self._end.wait(TICK_S):
            due = int((time.monotonic() - began_s) * self._demand.records_per_s)
            for number in range(written_, due):
                self._producer.produce(self._topic, value, partition=number % self._demand.partitions)
            self.batches += min(self._demand.partitions, max(0, due - written_))
            written_ = max(written_, due)
            self._producer.poll(0)


def in_turn() -> list[Demand]:
    """Loads that are fitted and those that check them in turn: what else the machine does changes with time."""
    found = list(FITTED)
    for at, demand in enumerate(CHECKED):
        found.insert(2 + 3 * at, demand)
    return found


def measure(source: str, target: str, directory: Path, demand: Demand, number: int, seconds: float) -> Run:
    """Copy a load for so long, as a flow of its own."""
    name = f"sizing-{number}"
    clients.create_topic(source, name, demand.partitions)
    commit = {"interval_ms": DEFAULT, "linger_ms": round(demand.linger_ms)}
    settings = {"topics": [name], "lanes": demand.lanes, "limits": DEFAULT, "commit": commit}
    worker = Replicator(FlowFile(directory, name, source, target, **settings), options=("--log-level", "info"))
    try:
        for lane in range(demand.lanes or 1):
            worker.wait_event("lane_started", lane=lane)
        time.sleep(SETTLED_S)
        began_s, core_began_s = time.monotonic(), worker.cpu_s()
        with Feed(source, name, demand) as feed:
            time.sleep(seconds)
        fed_s = time.monotonic() - began_s
        time.sleep(SETTLED_S)  # what is under way is copied: that belongs to the load
        core_s = worker.cpu_s() - core_began_s
        memory_mib = worker.memory_bytes() / 2**20
    finally:
        worker.stop()
    told = worker.seen("summary")  # each says what has come since the one before
    return Run(
        seconds=fed_s,
        core_s=core_s,
        records=sum(event["records"] for event in told),
        batches=feed.batches,
        bytes_=sum(event["bytes"] for event in told),
        transactions=sum(event["commits"] for event in told),
        memory_mib=memory_mib,
    )


def fit(runs: Sequence[tuple[Demand, Run]]) -> Coefficients:
    """The coefficients with which the loads are met best, each in proportion."""
    rows = [
        [
            run.seconds,
            run.seconds * (demand.lanes or 1),
            run.records / 1e6,
            run.batches / 1e6,
            run.bytes_ / 2**30,
            run.transactions / 1e3,
        ]
        for demand, run in runs
    ]
    scale = np.array([1 / run.core_s for _, run in runs])
    found = np.linalg.lstsq(np.array(rows) * scale[:, None], np.ones(len(runs)), rcond=None)[0]
    busy = [(demand, run) for demand, run in runs if run.transactions]
    commits = [1e3 * run.seconds * (demand.lanes or 1) / run.transactions - demand.linger_ms for demand, run in busy]
    lanes = np.array([[1.0, demand.lanes or 1] for demand, _ in runs])
    memory = np.linalg.lstsq(lanes, np.array([run.memory_mib for _, run in runs]), rcond=None)[0]
    idle, per_lane, per_records, per_batches, per_gib, per_transactions = (max(0.0, float(each)) for each in found)
    return Coefficients(
        cores_idle=idle,
        cores_idle_per_lane=per_lane,
        core_s_per_million_records=per_records,
        core_s_per_million_batches=per_batches,
        core_s_per_gib=per_gib,
        core_s_per_thousand_transactions=per_transactions,
        commit_ms=max(0.0, float(np.median(commits))),
        memory_mib=float(memory[0]),
        memory_mib_per_lane=max(0.0, float(memory[1])),
    )


@contextmanager
def clusters(directory: Path, kafka: bool) -> Iterator[tuple[str, str]]:
    """Addresses of a source and a target."""
    with ExitStack() as open_:
        if kafka:
            both = [open_.enter_context(Kafka.running(role)).bootstrap for role in ("source", "target")]
        else:
            brokers = [EmbeddedBroker(directory / role, "--fsync", "never") for role in ("source", "target")]
            for each in brokers:
                each.start()
                open_.callback(each.stop)
            both = [each.bootstrap for each in brokers]
        yield both[0], both[1]


def _named(demand: Demand) -> str:
    lanes = f"{demand.lanes} lane" + ("s" if demand.lanes != 1 else "")
    load = f"{demand.records_per_s:,.0f} records/s of {demand.bytes_per_record:.0f} bytes"
    return f"{load}, {lanes}, linger {demand.linger_ms:.0f} ms"


@click.command()
@click.option("--seconds", default=15.0, show_default=True, help="Of each load.")
@click.option("--kafka", is_flag=True, help="On two real brokers.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(seconds: float, kafka: bool, out: Path | None) -> None:
    """Measure the coefficients, and check them with three other loads."""
    console, started, load_average = Console(width=200), datetime.now(UTC), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as name, clusters(Path(name), kafka) as (source, target):
        runs = {}
        for number, demand in enumerate(in_turn()):
            runs[demand] = measure(source, target, Path(name), demand, number, seconds)
            console.print(_named(demand), runs[demand], highlight=False)
    fitted = [(demand, runs[demand]) for demand in FITTED]
    known = fit(fitted)
    checked = []
    for demand in CHECKED:
        run = runs[demand]
        rate, batch_records = run.records / run.seconds, run.records / run.batches
        real = replace(demand, records_per_s=rate, batch_records=batch_records)
        seen = {
            "cores": run.core_s / run.seconds,
            "transactions_per_s": run.transactions / run.seconds,
            "memory_mib": run.memory_mib,
        }
        checked.append({"name": _named(demand), "said": asdict(estimate(real, known)), "measured": seen})
    body = {
        "machine": machine(),
        "settings": {
            "started": started.isoformat(timespec="seconds"),
            "seconds": seconds,
            "brokers": "Kafka" if kafka else "embedded brokers without fsync",
            "load_average": f"{load_average:.0f} to {os.getloadavg()[0]:.0f}",
        },
        "coefficients": asdict(known),
        "checked": checked,
        "fitted": [{"demand": asdict(demand), "run": asdict(run)} for demand, run in fitted],
    }
    path = write_result(out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json", body)
    console.print(f"written to {path}")
    if out is None:
        PAGE.write_text(written(PAGE.read_text(), newest()))


if __name__ == "__main__":
    main()

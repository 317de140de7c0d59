"""`python -m benchmarks.many_partitions`: how long a flow with many partitions takes to its first commit, far away.

Both clusters are real Kafka behind a pipe that delays each direction. Every source partition has a record that waits
to be copied. A start counts from the process to its first `committed` event with records: of a new flow that creates
its target topics, of a new flow whose target topics exist, and of one that was stopped before, whose positions and
claims exist. How long Kafka takes until it leads as many new partitions is measured beside it.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from benchmarks.__main__ import machine
from benchmarks.clusters import Kafka
from benchmarks.delay import delayed
from benchmarks.many_partitions_report import RESULTS
from benchmarks.systems import HERE, Eos, cpu_s
from integration_tests.harness.broker import free_port
from integration_tests.harness.clients import settle, warm_up

START_S_MAX, LOOK_S = 120.0, 0.005
TOPICS, RECORD = "many-", b"x" * 256
NEW, PREPARED, RESTARTED, CREATED = "new", "prepared", "restarted", "created"
"""Starts: the flow creates its target topics, they exist, it was stopped before. `created`: by Kafka alone."""
COMMITS_LOGGED = ("--log-level", "debug")
Started = dict[str, float]


class Side:
    """A cluster, and the way to it that a worker takes."""

    def __init__(self, role: str, delay_s: float, open_: ExitStack) -> None:
        inner, outer = free_port(), free_port()
        open_.enter_context(delayed(inner, delay_s, outer))
        self.near = open_.enter_context(Kafka.running(role, far=(inner, outer)))
        self.far = Kafka(self.near.name, f"127.0.0.1:{outer}")


def create(bootstrap: str, names: list[str], partitions: int) -> float:
    """Create topics; seconds until each of their partitions is led."""
    began, admin = time.monotonic(), AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = [NewTopic(name, partitions, 1) for name in names]
    for future in admin.create_topics(wanted, operation_timeout=60).values():
        future.result(90)
    for name in names:
        settle(bootstrap, name, partitions)
    return time.monotonic() - began


def put(bootstrap: str, topics: list[str], partitions: int) -> None:
    """A record into each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for name in topics:
        for number in range(partitions):
            producer.produce(name, RECORD, b"k", number)
    if producer.flush(60):
        raise RuntimeError("the records were not written")


def first_commit(eos: Eos) -> Started:
    """Start the worker; seconds until its lanes have started and until its first commit with records, and its CPU."""
    seen = eos.log.stat().st_size if eos.log.exists() else 0
    began, lanes_s = time.monotonic(), 0.0
    eos.start()
    with eos.log.open("rb") as log:
        log.seek(seen)
        line = b""
        while (now := time.monotonic() - began) < START_S_MAX:
            line += log.readline()
            if not line.endswith(b"\n"):
                time.sleep(LOOK_S)
                continue
            event: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
            line = b""
            if event.get("event") == "lane_started":
                lanes_s = now
            if event.get("event") == "committed" and event["records"]:
                return {"lanes_started_s": lanes_s, "first_commit_s": now, "cpu_s": cpu_s(eos.pid())}
    raise RuntimeError(f"nothing was committed within {START_S_MAX:.0f} s; see {eos.log.read_text()[-2000:]}")


def measure(delay_ms: float, topics: int, partitions: int, runs: int, console: Console) -> dict[str, list[Started]]:
    """New and restarted flows, `runs` of each; a flow is made anew for each run."""
    found: dict[str, list[Started]] = {kind: [] for kind in (NEW, PREPARED, RESTARTED, CREATED)}
    with ExitStack() as open_:
        directory = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="eos-bench-")))
        source, target = (Side(role, delay_ms / 1000, open_) for role in ("source", "target"))
        names = [f"{TOPICS}{number}" for number in range(topics)]
        create(source.near.bootstrap, names, partitions)
        for side in (source, target):  # the first transaction of a cluster makes its __transaction_state
            warm_up(side.near.bootstrap)
        for number in range(runs):
            for kinds, exist in (((NEW,), False), ((PREPARED, RESTARTED), True)):
                eos = Eos(source.far, target.far, f'"^{TOPICS}.*"', directory, options=COMMITS_LOGGED)
                if exist:
                    copies = [eos.copy_of(name) for name in names]
                    found[CREATED].append({"led_s": create(target.near.bootstrap, copies, partitions)})
                for kind in kinds:
                    put(source.near.bootstrap, names, partitions)
                    try:
                        found[kind].append(first_commit(eos))
                    finally:
                        eos.stop()
                    console.print(f"{delay_ms:g} ms", number, kind, found[kind][-1], highlight=False)
    return found


@click.command()
@click.option("--delay-ms", "delays_ms", multiple=True, type=float, default=(15.0, 30.0), show_default=True,
              help="Delay of each direction, at both clusters; may be given again.")  # fmt: skip
@click.option("--topics", default=10, show_default=True)
@click.option("--partitions", default=100, show_default=True, help="Of each topic.")
@click.option("--runs", default=3, show_default=True, help="New flows, each of which is restarted once.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(delays_ms: tuple[float, ...], topics: int, partitions: int, runs: int, out: Path | None) -> None:
    """Measure starts of a flow with so many partitions."""
    console, started, load_average = Console(width=200), datetime.now(UTC), os.getloadavg()[0]
    found = {f"{delay:g}": measure(delay, topics, partitions, runs, console) for delay in delays_ms}
    settings = {
        "started": started.isoformat(timespec="seconds"),
        "topics": topics,
        "partitions": partitions,
        "runs": runs,
        "load_average_before": round(load_average, 2),
    }
    medians = {
        delay: {
            kind: median(one["led_s" if kind == CREATED else "first_commit_s"] for one in starts)
            for kind, starts in kinds.items()
        }
        for delay, kinds in found.items()
    }
    path = out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {"machine": machine(), "settings": settings, "median": medians, "runs": found}
    path.write_text(json.dumps(body, indent=1) + "\n")
    console.print(medians, highlight=False)
    console.print(f"written to {path.relative_to(HERE.parent) if path.is_relative_to(HERE.parent) else path}")


if __name__ == "__main__":
    main()

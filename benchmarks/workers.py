"""`python -m benchmarks.workers`: how long copying of a partition pauses when workers that share a flow come and go.

On two real brokers with Kafka's default group.initial.rebalance.delay.ms. A writer writes to all partitions at a steady
rate, and a read_committed reader of the copies notes when each record arrives; a pause is the longest time between two
arrivals in one partition around an event, less what passes between two of them otherwise. Then how soon a lone worker
has its first commit, beside a process that can't be joined (`lone_worker`).
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console

from benchmarks.__main__ import machine, write_result
from benchmarks.clusters import Kafka
from benchmarks.lone_worker import first_commits
from integration_tests.harness import clients
from integration_tests.harness.replicator import DEFAULT, FlowFile, Replicator

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "workers"
TOPIC, COPY = "events", "events.copy"
PARTITIONS, LANES = 8, 4
EVERY_S = 0.01
WATCHED_S = 8.0
SESSION_S = 10.0
ALONE_TURNS = 2
DELAY = {"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "3000"}
JOIN, LEAVE, ROLL = "join", "leave", "rolling restart"
KILL, RESTART = "kill one of three", "kill and restart a lone worker"


class Arrivals:
    """When records arrived in each partition of the copy, while the writer writes."""

    def __init__(self, source: str, target: str) -> None:
        self._source, self._target, self._over = source, target, threading.Event()
        self.seen: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self._threads = [threading.Thread(target=work) for work in (self._write, self._read)]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write and read for as long as the block runs."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._source, "linger.ms": 0})
        while not self._over.wait(EVERY_S):
            for number in range(PARTITIONS):
                producer.produce(TOPIC, b"x" * 100, b"k", number)
            producer.poll(0)
        producer.flush(30)

    def _read(self) -> None:
        settings = {"group.id": "bench", "isolation.level": "read_committed", "fetch.wait.max.ms": 5}
        reader = Consumer({"bootstrap.servers": self._target, "auto.offset.reset": "earliest", **settings})
        reader.assign([TopicPartition(COPY, number, 0) for number in range(PARTITIONS)])
        while not self._over.is_set():
            for message in reader.consume(500, 0.02):
                if message.error() is None:
                    self.seen[message.partition() or 0].append(time.monotonic())
        reader.close()

    def pauses_s(self, began_s: float) -> list[float]:
        """The longest time between two arrivals in each partition since a moment."""
        now_s = time.monotonic()
        found = []
        for seen in self.seen:
            times = [at for at in seen if at >= began_s - 0.5]
            found.append(max(b - a for a, b in zip([began_s - 0.5, *times], [*times, now_s], strict=True)))
        return found


class Crew:
    """The workers of the flow."""

    def __init__(self, file: FlowFile) -> None:
        self._file = file
        self.alive: list[Replicator] = []

    def join(self) -> None:
        """Start one, and wait until it is a member."""
        self.alive.append(Replicator(self._file, options=("--shared",)))
        self.alive[-1].wait_event("lanes_assigned")

    def leave(self) -> None:
        """Stop the oldest."""
        self.alive.pop(0).stop()

    def kill(self) -> None:
        """Kill the oldest."""
        self.alive.pop(0).kill()

    def close(self) -> None:
        """Stop all of them."""
        while self.alive:
            self.leave()


def rounds(arrivals: Arrivals, crew: Crew, number: int, console: Console) -> dict[str, list[float]]:
    """All events, so many times; pauses of all partitions in seconds, by event."""
    found: dict[str, list[float]] = {name: [] for name in (JOIN, LEAVE, KILL, ROLL, RESTART)}

    def measured(name: str, event: Callable[[], None], watched_s: float = WATCHED_S) -> None:
        began_s = time.monotonic()
        event()
        time.sleep(watched_s)  # the writer goes on for so long
        pauses = arrivals.pauses_s(began_s)
        found[name] += pauses
        console.print(f"{name}: longest {max(pauses):.2f} s, median {median(pauses):.2f} s", highlight=False)

    def roll() -> None:
        crew.join()
        crew.leave()

    crew.join()
    time.sleep(WATCHED_S)
    for _ in range(number):
        measured(JOIN, crew.join)
        measured(JOIN, crew.join)
        for _ in range(3):
            measured(ROLL, roll)
        measured(KILL, crew.kill, SESSION_S + WATCHED_S)
        measured(LEAVE, crew.leave)

        def restart() -> None:
            crew.kill()
            crew.join()

        measured(RESTART, restart, SESSION_S + WATCHED_S)
    return found


def share(values: list[float], percent: int) -> float:
    """A percentile."""
    return round(sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))], 3)


@click.command()
@click.option("--rounds", "number", default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(number: int, out: Path | None) -> None:
    """Measure pauses of copying while workers come and go."""
    console, started, load_average = Console(width=200), datetime.now(UTC), os.getloadavg()[0]
    source, target = (Kafka.start(role, settings=DELAY) for role in ("source", "target"))
    try:
        with tempfile.TemporaryDirectory(prefix="eos-bench-") as directory:
            clients.create_topic(source.bootstrap, TOPIC, PARTITIONS)
            clients.create_topic(target.bootstrap, COPY, PARTITIONS)
            settings = {"topics": [TOPIC], "lanes": LANES, "limits": DEFAULT, "commit": DEFAULT}
            crew = Crew(FlowFile(Path(directory), "bench", source.bootstrap, target.bootstrap, **settings))
            arrivals = Arrivals(source.bootstrap, target.bootstrap)
            try:
                with arrivals.running():
                    found = rounds(arrivals, crew, number, console)
            finally:
                crew.close()
            at = Path(directory), source.bootstrap, target.bootstrap
            alone = first_commits(*at, ALONE_TURNS * number, PARTITIONS, LANES, console)
    finally:
        source.stop()
        target.stop()
    figures = {
        name: {"p50_s": share(values, 50), "p95_s": share(values, 95), "max_s": round(max(values), 3), "n": len(values)}
        for name, values in found.items()
    }
    body = {
        "machine": machine(),
        "settings": {
            "started": started.isoformat(timespec="seconds"),
            "rounds": number,
            "partitions": PARTITIONS,
            "lanes": LANES,
            "session_s": SESSION_S,
            "load_average_before": round(load_average, 2),
        },
        "pauses": figures,
        "first_commit_s": alone,
    }
    path = write_result(out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json", body)
    console.print(figures, highlight=False)
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

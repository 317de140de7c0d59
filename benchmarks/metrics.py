"""`python -m benchmarks.metrics`: what metrics cost a flow with many partitions.

Both clusters are real Kafka. While nothing is written, the worker's CPU is counted, with a scrape every 15 s as
Prometheus makes them by default. Then records are written at a rate, and seconds with a scrape in each alternate with
seconds without: how long a scrape takes, and how long records take from the writer to a reader of the target meanwhile.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

import click
from rich.console import Console

from benchmarks import load
from benchmarks.__main__ import machine
from benchmarks.clusters import Kafka
from benchmarks.many_partitions import create
from benchmarks.metrics_report import RESULTS
from benchmarks.systems import HERE, Eos, cpu_s
from integration_tests.harness.broker import free_port

READY_S_MAX, SCRAPE_S_MAX = 180.0, 30.0
IDLE_SCRAPE_S = 15.0
TURN_S = 5.0
"""For so long records are copied with scrapes, and then as long without."""
WARM_UP_TURNS = 4
"""As many of each kind. Brokers that have just started copy the first seconds far more slowly."""
LOADED = "many-load"


class Scraped:
    """Asks the worker for its metrics."""

    def __init__(self, address: str) -> None:
        self._base = f"http://{address}"
        self.took_ms: list[float] = []
        self.bytes = 0

    def scrape(self) -> None:
        """One scrape, as long as it takes."""
        began = time.perf_counter()
        with urllib.request.urlopen(f"{self._base}/metrics", timeout=SCRAPE_S_MAX) as answer:
            self.bytes = len(answer.read())
        self.took_ms.append((time.perf_counter() - began) * 1000)

    def ready(self) -> bool:
        """Whether every partition is copied."""
        try:
            with urllib.request.urlopen(f"{self._base}/readyz", timeout=SCRAPE_S_MAX) as answer:
                return bool(json.load(answer)["ready"])
        except (urllib.error.URLError, ConnectionError):
            return False


def wait_ready(asked: Scraped) -> None:
    """Until every partition is copied. Raises RuntimeError."""
    deadline = time.monotonic() + READY_S_MAX
    while not asked.ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not ready after {READY_S_MAX:.0f} s")
        time.sleep(0.5)


def idle(eos: Eos, asked: Scraped, seconds: float) -> float:
    """CPU that a worker uses which has nothing to copy, in percent of a core."""
    began, before = time.monotonic(), cpu_s(eos.pid())
    while time.monotonic() < began + seconds:
        asked.scrape()
        time.sleep(IDLE_SCRAPE_S)
    return 100 * (cpu_s(eos.pid()) - before) / (time.monotonic() - began)


def copying(side: tuple[str, str], copy: str, asked: Scraped, rate: int, seconds: float) -> dict[str, list[float]]:
    """Latencies in milliseconds of records written in turns with scrapes and in turns without."""
    began, over = time.time(), threading.Event()

    def scraped(at: float) -> bool:
        return int((at - began) / TURN_S) % 2 == 1

    def scrape() -> None:
        while not over.wait(1.0):
            if scraped(time.time()):
                asked.scrape()

    thread = threading.Thread(target=scrape)
    thread.start()
    steady = load.Steady(*side, LOADED, copy, rate)
    try:
        steady.run(seconds)
    finally:
        over.set()
        thread.join()
    found: dict[str, list[float]] = {"with": [], "without": []}
    for written, took_s in steady.latencies:
        if written > began + WARM_UP_TURNS * TURN_S:
            found["with" if scraped(written) else "without"].append(took_s * 1000)
    return found


def measure(topics: int, partitions: int, rate: int, idle_s: float, load_s: float, console: Console) -> dict[str, Any]:
    """All figures of one flow."""
    with ExitStack() as open_:
        directory = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="eos-bench-")))
        source, target = (open_.enter_context(Kafka.running(role)) for role in ("source", "target"))
        create(source.bootstrap, [f"many-{number}" for number in range(topics)], partitions)
        load.create(source.bootstrap, LOADED)
        load.prime(source.bootstrap, LOADED)
        address = f"127.0.0.1:{free_port()}"
        eos, asked = Eos(source, target, '"^many-.*"', directory), Scraped(address)
        eos.file.write_text(eos.file.read_text() + f"metrics: {{listen: {address}}}\n")
        eos.start()
        open_.callback(eos.stop)
        wait_ready(asked)
        console.print("ready")
        cpu_percent = idle(eos, asked, idle_s)
        at_rest_ms, asked.took_ms = asked.took_ms, []
        console.print("idle", cpu_percent, at_rest_ms)
        sides = (source.bootstrap, target.bootstrap)
        latencies = copying(sides, eos.copy_of(LOADED), asked, rate, load_s)
        return {
            "idle_cpu_percent": round(cpu_percent, 2),
            "scrape_bytes": asked.bytes,
            "scrape_at_rest_ms": summed_up(at_rest_ms),
            "scrape_ms": summed_up(asked.took_ms),
            "latency_ms": {kind: summed_up(values) for kind, values in latencies.items()},
        }


def summed_up(values: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile, maximum and number."""
    cuts = quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 1), "p99": round(cuts[98], 1), "max": round(max(values), 1), "count": len(values)}


@click.command()
@click.option("--topics", default=10, show_default=True)
@click.option("--partitions", default=100, show_default=True, help="Of each topic.")
@click.option("--rate", default=1_000, show_default=True, help="Records a second, into four more partitions.")
@click.option("--idle-s", default=60.0, show_default=True, help="How long nothing is written.")
@click.option("--load-s", default=80.0, show_default=True, help="How long records are written.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(topics: int, partitions: int, rate: int, idle_s: float, load_s: float, out: Path | None) -> None:
    """Measure what metrics cost."""
    console, started, load_average = Console(width=200), datetime.now(UTC), os.getloadavg()[0]
    figures = measure(topics, partitions, rate, idle_s, load_s, console)
    settings = {
        "started": started.isoformat(timespec="seconds"),
        "topics": topics,
        "partitions": partitions,
        "rate": rate,
        "load_average_before": round(load_average, 2),
    }
    path = out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "settings": settings, "figures": figures}, indent=1) + "\n")
    console.print(figures, highlight=False)
    console.print(f"written to {path.relative_to(HERE.parent) if path.is_relative_to(HERE.parent) else path}")


if __name__ == "__main__":
    main()

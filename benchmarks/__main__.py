"""`python -m benchmarks`: all figures, interleaved, as a table and as JSON under benchmarks/results."""

from __future__ import annotations

import json
import platform
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import click
import confluent_kafka
from rich.console import Console
from rich.table import Table

from benchmarks import cases, load
from benchmarks.cases import Bench, Figures, Stuck
from benchmarks.clusters import IMAGE, Kafka
from benchmarks.systems import Eos, MirrorMaker

RESULTS = Path(__file__).parent / "results"
CASES = ("throughput", "latency", "stalled", "recovery", "modes")
MODES = ("exactly_once", "at_least_once", "at_most_once")
STALL_S, RATE = 6.0, 1000
Makers = tuple[type[Eos] | type[MirrorMaker], ...]
Runs = dict[str, dict[str, list[Figures]]]


def write_result(path: Path, body: Mapping[str, Any]) -> Path:
    """Write what a benchmark has measured as JSON, and make the directory for it; the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=1) + "\n")
    return path


def machine() -> dict[str, str]:
    """What the figures were taken on."""
    cpu = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.processor())  # fmt: skip
    memory = Path("/proc/meminfo").read_text().split()[1]
    cores = subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "cpu": cpu,
        "cores": cores,
        "memory_gib": str(round(int(memory) / 2**20)),
        "python": platform.python_version(),
        "eos-replicate": version("eos-replicate"),
        "librdkafka": confluent_kafka.libversion()[0],
        "kafka": IMAGE,
    }


class Measurements:
    """Collects figures by case and system; says what it does as it goes."""

    def __init__(self, bench: Bench, console: Console) -> None:
        self.bench, self._console, self.runs = bench, console, Runs()
        self.stuck: list[str] = []

    def warm_up(self, case: str, system: str, call: Callable[[], Figures]) -> None:
        """Run one measurement whose figures aren't kept; they are told."""
        try:
            figures = call()
        except Stuck as stuck:
            self._console.print(case, "stuck in the warm-up:", str(stuck), highlight=False)
            return
        shown = {key: round(value, 1) for key, value in figures.items()}
        self._console.print(case, system, "warm-up", shown, highlight=False)

    def measure(self, case: str, system: str, call: Callable[[], Figures]) -> None:
        """Run one measurement and keep its figures; one that got stuck is told, counted, and has none."""
        try:
            figures = call()
        except Stuck as stuck:
            self.stuck.append(str(stuck))
            self._console.print(case, "stuck:", str(stuck), highlight=False)
            return
        self.runs.setdefault(case, {}).setdefault(system, []).append(figures)
        self._console.print(case, system, {key: round(value, 1) for key, value in figures.items()}, highlight=False)


def run_all(session: Measurements, only: tuple[str, ...], runs: int, records: int, seconds: float) -> None:
    """All cases, the systems in turn within each round, and the first one changes from round to round."""
    topic = cases.topic_name("backlog")
    load.backlog(session.bench.source.bootstrap, topic, records)
    for number in range(runs):
        both = (Eos, MirrorMaker) if number % 2 == 0 else (MirrorMaker, Eos)
        for case in only:
            run_case(session, case, both, topic, records, seconds)


def run_case(session: Measurements, case: str, both: Makers, topic: str, records: int, seconds: float) -> None:
    """One case of one round."""
    bench = session.bench
    if case == "stalled":
        session.measure(case, Eos.name, lambda: cases.stalled(bench, topic, STALL_S))
    elif case == "modes":
        for mode in MODES:
            eos = Eos(bench.source, bench.target, topic, bench.directory, mode)
            session.measure(case, mode, partial(cases.throughput, bench, eos, records))
    else:
        for make in both:
            read = topic if case != "latency" else cases.topic_name("steady")
            system = make(bench.source, bench.target, read, bench.directory)
            if case == "throughput":
                session.measure(case, system.name, partial(cases.throughput, bench, system, records))
            elif case == "recovery":
                session.measure(case, system.name, partial(cases.recovery, bench, system))
            else:
                load.create(bench.source.bootstrap, read)
                warm_up_s = seconds if make is MirrorMaker else seconds / 2
                session.measure(
                    case, system.name, partial(cases.latency, bench, system, read, seconds, RATE, warm_up_s)
                )


def summary(runs: Runs) -> dict[str, dict[str, Figures]]:
    """Medians, each over the runs that have the figure."""
    return {
        case: {
            system: {
                key: median(figures[key] for figures in found if key in figures)
                for key in dict.fromkeys(key for figures in found for key in figures)
            }
            for system, found in systems.items()
        }
        for case, systems in runs.items()
    }


def table(medians: dict[str, dict[str, Figures]], runs: int) -> Table:
    """The medians as a table."""
    shown = Table(title=f"median of {runs} interleaved runs", title_justify="left")
    for column in ("case", "system", "figure", "median"):
        shown.add_column(column, justify="right" if column == "median" else "left")
    for case, systems in medians.items():
        for system, figures in systems.items():
            for key, value in figures.items():
                shown.add_row(case, system, key, f"{value:,.1f}")
    return shown


@click.command()
@click.option("--runs", default=5, show_default=True, help="Rounds; the median counts.")
@click.option("--records", default=2_000_000, show_default=True, help="Records of the backlog, 256 bytes each.")
@click.option("--seconds", default=20.0, show_default=True, help="Length of a latency run after its warm-up.")
@click.option("--quick", is_flag=True, help="One short round, to see that everything works; the figures are rough.")
@click.option("--only", multiple=True, type=click.Choice(CASES), help="Only these cases; may be given again.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(runs: int, records: int, seconds: float, quick: bool, only: tuple[str, ...], out: Path | None) -> None:
    """Measure eos-replicate beside MirrorMaker 2 (exactly-once, tuned) on two real Kafka brokers."""
    if quick:
        runs, records, seconds = 1, 600_000, 6.0
    console = Console()
    started = datetime.now(UTC)
    with (
        tempfile.TemporaryDirectory(prefix="eos-bench-") as directory,
        Kafka.running("source") as source,
        Kafka.running("target") as target,
    ):
        session = Measurements(Bench(source, target, Path(directory)), console)
        run_all(session, only or CASES, runs, records, seconds)
    medians = summary(session.runs)
    console.print(table(medians, runs))
    settings = {"runs": runs, "records": records, "seconds": seconds, "started": started.isoformat(timespec="seconds")}
    path = out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json"
    body = {"machine": machine(), "settings": settings, "median": medians, "runs": session.runs, "stuck": session.stuck}
    console.print(f"written to {write_result(path, body)}")


if __name__ == "__main__":
    main()

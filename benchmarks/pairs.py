"""`python -m benchmarks.pairs --before TREE`: this checkout's worker beside another one's, in alternating pairs.

Both are run by the same Python on the same two real Kafka brokers. A pair of old and new is followed by a pair of
old and old, and so on, in the same run: how far the latter are apart is what the machine adds by itself.
The first pair of each series is dropped. Figures and verdicts go to
benchmarks/results/pairs; `benchmarks.pairs_report` judges them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import click
from rich.console import Console

from benchmarks import cases, load
from benchmarks.__main__ import machine
from benchmarks.cases import Bench, Figures
from benchmarks.clusters import Kafka
from benchmarks.pairs_report import RESULTS, verdicts
from benchmarks.systems import HERE, Eos, cpu_s, rss_peak_mib

RATE, WARM_UP_S = 1000, 2.0
WARM_UP_SHARE = 0.2
"""Of the backlog: so much is copied before rate and CPU count, see `cases.throughput`."""
Pair = dict[str, Figures]  # by side, see `SIDES`
SIDES = {"new": ("before", "after"), "old": ("before", "again")}
"""The two sides of a pair, by series: the commit before beside this tree, and beside itself."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long a measurement is."""

    records: int
    seconds: float


def commit(tree: Path) -> str:
    """The commit that a checkout stands at, with a mark where it has changes."""
    return subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=7"], cwd=tree, check=True, capture_output=True, text=True
    ).stdout.strip()


def compile_bytecode(tree: Path) -> None:
    """Compile a checkout's modules, as an installed package's are.

    Where Python is told to keep no bytecode, a tree that was never compiled pays for it in each process that it starts.
    """
    packages = sorted(str(path.parent) for path in tree.glob("*/__init__.py"))
    subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True)


class PairBench:
    """Measures one checkout's worker at a time."""

    def __init__(self, bench: Bench, sizes: Sizes, module: str = "cli.main") -> None:
        """`module`: what is started of this checkout."""
        self._bench, self._sizes, self._module = bench, sizes, module
        self._backlog = cases.topic_name("backlog")
        load.backlog(bench.source.bootstrap, self._backlog, sizes.records)

    def figures(self, tree: Path) -> Figures:
        """Both cases, for one worker each."""
        return self._throughput(tree) | self._latency(tree)

    def _throughput(self, tree: Path) -> Figures:
        eos = self._worker(self._backlog, tree)
        records = self._sizes.records
        found = cases.throughput(self._bench, eos, records, int(records * WARM_UP_SHARE))
        return {
            "records_per_s": found["records_per_s"],
            "cpu_s_copying": found["cpu_s_per_million"],
            "rss_mib_copying": found["rss_peak_mib"],
        }

    def _latency(self, tree: Path) -> Figures:
        """CPU and memory are those of the steady load: from its begin to the last record's arrival."""
        topic = cases.topic_name("steady")
        load.create(self._bench.source.bootstrap, topic)
        eos, used = self._worker(topic, tree), dict[str, float]()

        @contextmanager
        def metered() -> Iterator[None]:
            began = cpu_s(eos.pid())
            yield
            used["cpu_s_steady"] = cpu_s(eos.pid()) - began
            used["rss_mib_steady"] = rss_peak_mib(eos.pid())

        found = cases.latency(self._bench, eos, topic, self._sizes.seconds, RATE, WARM_UP_S, metered)
        load.delete(self._bench.source.bootstrap, topic)
        return found | used

    def _worker(self, topic: str, tree: Path) -> Eos:
        module = self._module if tree == HERE.parent else "cli.main"
        return Eos(self._bench.source, self._bench.target, topic, self._bench.directory, tree=tree, module=module)


class Measures(Protocol):
    """Measures one checkout at a time."""

    def figures(self, tree: Path) -> Figures:
        """Its figures, by name."""


def series(bench: Measures, before: Path, pairs: int, console: Console) -> dict[str, list[Pair]]:
    """Both series, a pair of each in turn; within a pair the sides change places from pair to pair."""
    trees = {"before": before, "again": before, "after": HERE.parent}
    found: dict[str, list[Pair]] = {name: [] for name in SIDES}
    for tree in (before, HERE.parent):
        compile_bytecode(tree)
    for number in range(pairs + 1):
        for name, sides in SIDES.items():
            pair = {side: bench.figures(trees[side]) for side in (sides if number % 2 else sides[::-1])}
            shown = {side: {key: round(value, 2) for key, value in it.items()} for side, it in sorted(pair.items())}
            console.print(f"{datetime.now():%H:%M:%S}", name, number, shown, highlight=False)
            if number:
                found[name].append(pair)
    return found


def described(
    before: Path, started: datetime, load_began: tuple[float, float, float], **sizes: float
) -> dict[str, object]:
    """What was compared with what, when, and how much of it."""
    return {
        "started": started.isoformat(timespec="seconds"),
        "before": commit(before),
        "after": commit(HERE.parent),
        **sizes,
        "load_average_before": round(load_began[0], 2),
    }


def keep(
    path: Path,
    settings: Mapping[str, object],
    by_figure: Mapping[str, object],
    found: Mapping[str, list[Pair]],
    console: Console,
) -> None:
    """Write both series with their verdicts to `path`, and show the verdicts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {"machine": machine(), "settings": settings, "verdicts": by_figure, "series": found}
    path.write_text(json.dumps(body, indent=1) + "\n")
    for key, verdict in by_figure.items():
        console.print(key, verdict, highlight=False)
    console.print(f"written to {path}")


@click.command()
@click.option("--before", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True,
              help="A checkout of the commit that is compared with.")  # fmt: skip
@click.option("--pairs", default=5, show_default=True, help="Pairs of each series, after one that is dropped.")
@click.option("--records", default=1_500_000, show_default=True, help="Records of the backlog, 256 bytes each.")
@click.option("--seconds", default=8.0, show_default=True, help="Length of a latency run after its warm-up.")
@click.option("--without-map", is_flag=True, help="Leave this checkout's offset map out, for a commit that had none.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(before: Path, pairs: int, records: int, seconds: float, without_map: bool, out: Path | None) -> None:
    """Compare this checkout with the one at --before."""
    console, started, load_began = Console(width=250), datetime.now(UTC), os.getloadavg()
    module = "benchmarks.without_map" if without_map else "cli.main"
    with (
        tempfile.TemporaryDirectory(prefix="eos-bench-") as directory,
        Kafka.running("source") as source,
        Kafka.running("target") as target,
    ):
        bench = PairBench(Bench(source, target, Path(directory)), Sizes(records, seconds), module)
        found = series(bench, before.resolve(), pairs, console)
    settings = described(before, started, load_began, pairs=pairs, records=records, seconds=seconds)
    settings["map"] = not without_map
    keep(out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json", settings, verdicts(found), found, console)


if __name__ == "__main__":
    main()

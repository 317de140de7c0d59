"""`python -m benchmarks.backfill`: history copied by Spark, beside the live worker and MirrorMaker 2.

All copy the same backlog between two real Kafka brokers in turn; the rate is from the first record written to the last
one committed, so that no start is counted, neither Spark's nor a worker's. A round that isn't counted comes first: the
brokers' JVMs get faster with every million.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from benchmarks import cases, load
from benchmarks.__main__ import RESULTS, Measurements, machine, summary, table
from benchmarks.cases import Bench
from benchmarks.clusters import Kafka
from benchmarks.systems import HERE, Eos, MirrorMaker, resident_mib

DIRECTORY = RESULTS / "backfill"
SAMPLE_S = 0.05


class Backfill(Eos):
    """`eos-replicate backfill` on a flow of one topic: it ends by itself."""

    name = "backfill"

    def __init__(
        self,
        source: Kafka,
        target: Kafka,
        topic: str,
        directory: Path,
        master: str = "local[*,4]",
        engine: str = "records",
    ) -> None:
        """`master` says how many slots there are."""
        super().__init__(source, target, topic, directory, engine=engine)
        self._master = master

    def start(self) -> None:
        """See System."""
        log = self.log.open("ab")
        command = [sys.executable, "-m", "cli.main", "backfill", "-c", str(self.file), "--json"]
        command += ["--master", self._master]
        self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=HERE.parent)
        log.close()

    def running(self) -> bool:
        """Whether it is still at work. Raises when it has failed."""
        assert self._process is not None
        code = self._process.poll()
        if code:
            raise RuntimeError(f"backfill ended with {code}: see {self.log}")
        return code is None


def peak_mib(bench: Bench, topic: str) -> float:
    """Peak memory of a whole backfill: driver, executor (one JVM here) and its Python tasks."""
    system = Backfill(bench.source, bench.target, topic, bench.directory)
    peak = 0.0
    system.start()
    try:
        while system.running():
            peak = max(peak, resident_mib(system.pid()))
            time.sleep(SAMPLE_S)
    finally:
        system.stop()
        load.delete(bench.target.bootstrap, system.copy)
    return peak


def _warm_up(session: Measurements, topic: str, records: int) -> None:
    """The brokers' JVMs compile their hot paths under the first load; no system should pay for that alone."""
    bench = session.bench
    for make in (Eos, Backfill):
        cases.whole(bench, make(bench.source, bench.target, topic, bench.directory), records)


@click.command()
@click.option("--runs", default=3, show_default=True, help="Rounds; the median counts.")
@click.option("--records", default=4_000_000, show_default=True, help="Records of the backlog, 256 bytes each.")
@click.option("--sizes", default="1000000,10000000", show_default=True, help="Records of the runs that measure memory.")
@click.option("--only", multiple=True, type=click.Choice(["backfill", "eos-replicate", "MirrorMaker 2"]))
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(runs: int, records: int, sizes: str, only: tuple[str, ...], out: Path | None) -> None:
    """Measure the backfill beside the live worker and MirrorMaker 2."""
    console, started = Console(), datetime.now(UTC)
    with (
        tempfile.TemporaryDirectory(prefix="eos-bench-") as directory,
        Kafka.running("source") as source,
        Kafka.running("target") as target,
    ):
        session = Measurements(Bench(source, target, Path(directory)), console)
        topic = cases.topic_name("backlog")
        load.backlog(source.bootstrap, topic, records)
        makers = [make for make in (Backfill, Eos, MirrorMaker) if not only or make.name in only]
        _warm_up(session, topic, records)
        for number in range(runs):
            for make in makers[number % len(makers) :] + makers[: number % len(makers)]:
                system = make(source, target, topic, session.bench.directory)
                session.measure("backlog", system.name, partial(cases.whole, session.bench, system, records))
        load.delete(source.bootstrap, topic)
        peaks: dict[str, float] = {}
        for size in filter(None, sizes.split(",")):
            topic = cases.topic_name("backlog")
            load.backlog(source.bootstrap, topic, int(size))
            peaks[size] = peak_mib(session.bench, topic)
            load.delete(source.bootstrap, topic)
            console.print(f"{int(size):,} records: peak {peaks[size]:,.0f} MiB")
    medians = summary(session.runs)
    console.print(table(medians, runs))
    settings = {"runs": runs, "records": records, "started": started.isoformat(timespec="seconds")}
    path = out or DIRECTORY / f"{started:%Y-%m-%d-%H%M}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {
        "machine": machine(),
        "settings": settings,
        "median": medians,
        "runs": session.runs,
        "stuck": session.stuck,
        "peak_mib": peaks,
    }
    path.write_text(json.dumps(body, indent=1) + "\n")
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

"""`python -m benchmarks.engines`: both engines of `run` beside MirrorMaker 2 and a raw pipe, on several shapes.

Systems take turns, after a round that isn't counted: brokers and MirrorMaker 2 compile what they do often, and the
first of them would be measured beside that. Rate and CPU of a backlog count from a fifth of it on, see
`cases.throughput`. The raw pipe (`benchmarks.pipe`) says what Fetch and Produce alone take on this machine: two brokers
and what copies share its cores.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from benchmarks import cases, load
from benchmarks.__main__ import RATE, STALL_S, Measurements, machine, summary, table, write_result
from benchmarks.backfill import Backfill
from benchmarks.cases import Bench, Figures
from benchmarks.clusters import Kafka
from benchmarks.engines_report import RESULTS
from benchmarks.idle_partitions import IdlePartitions
from benchmarks.many_partitions import Side
from benchmarks.shapes import SHAPES
from benchmarks.systems import Eos, MirrorMaker, Pipe, System

UNCOUNTED_SHARE = 0.2
FAR_S = 0.05
STALLED_FROM = 300_000  # committed records, when transactions have their full size
ROWS = (*SHAPES, "latency", "memory", "partitions", "backfill")
Maker = Callable[[str], System]


class Engines:
    """The rows of the table. Each takes its systems in turn, the other way round in every second round."""

    def __init__(self, session: Measurements, runs: int, share: float, only: Sequence[str]) -> None:
        """`share` of the records are written, see `--share`; `only`: systems, all if empty."""
        self._session, self._runs, self._share, self._only = session, runs, share, only
        bench = session.bench
        self._makers: dict[str, Maker] = {
            Pipe.name: lambda topic: Pipe(bench.source, bench.target, topic),
            "records": lambda topic: Eos(bench.source, bench.target, topic, bench.directory),
            "batches": lambda topic: Eos(bench.source, bench.target, topic, bench.directory, engine="batches"),
            MirrorMaker.name: lambda topic: MirrorMaker(bench.source, bench.target, topic, bench.directory),
        }

    def row(self, name: str) -> None:
        """Measure one row."""
        if name == "far":
            self._far()
        elif name in SHAPES:
            self._backlog(name, self._session.bench, self._makers)
        else:
            getattr(self, f"_{name}")()

    def _turns(self, row: str, calls: dict[str, Callable[[], Figures]], *, warmed: bool = False) -> None:
        """`warmed`: there is a round before the first one that isn't counted."""
        chosen = [(name, call) for name, call in calls.items() if not self._only or name in self._only]
        for name, call in chosen if warmed else ():
            self._session.warm_up(row, name, call)
        for number in range(self._runs):
            for name, call in chosen if number % 2 == 0 else chosen[::-1]:
                self._session.measure(row, name, call)

    def _backlog(self, row: str, bench: Bench, makers: dict[str, Maker]) -> None:
        shape, topic = SHAPES[row], cases.topic_name(row)
        records = int(shape.records * self._share)
        shape.write(bench.source.bootstrap, topic, records)

        def one(make: Maker) -> Figures:
            uncounted = int(records * UNCOUNTED_SHARE)
            found = cases.throughput(bench, make(topic), records, uncounted, shape.last_keys(records))
            return found | {"mb_per_s": found["records_per_s"] * shape.record_bytes / 1e6}

        self._turns(row, {name: partial(one, make) for name, make in makers.items()}, warmed=True)
        load.delete(bench.source.bootstrap, topic)

    def _far(self) -> None:
        """With clusters of its own: brokers advertise the delayed way to clients that come by it."""
        directory = self._session.bench.directory
        with ExitStack() as open_:
            source, target = (Side(role, FAR_S, open_) for role in ("source", "target"))
            makers: dict[str, Maker] = {
                name: partial(self._eos, source.far, target.far, name) for name in ("records", "batches")
            }
            self._backlog("far", Bench(source.near, target.near, directory), makers)

    def _eos(self, source: Kafka, target: Kafka, engine: str, topic: str) -> System:
        return Eos(source, target, topic, self._session.bench.directory, engine=engine)

    def _latency(self) -> None:
        bench = self._session.bench

        def one(make: Maker, warm_up_s: float) -> Figures:
            topic = cases.topic_name("steady")
            load.create(bench.source.bootstrap, topic)
            return cases.latency(bench, make(topic), topic, 20.0 * self._share, RATE, warm_up_s * self._share)

        warm_ups = {name: 20.0 if name == MirrorMaker.name else 10.0 for name in self._makers if name != Pipe.name}
        self._turns("latency", {name: partial(one, self._makers[name], warm) for name, warm in warm_ups.items()})

    def _memory(self) -> None:
        """With a target that stands still, and a backlog that is larger than what may wait."""
        bench, shape, topic = self._session.bench, SHAPES["plain"], cases.topic_name("memory")
        shape.write(bench.source.bootstrap, topic, max(1_000_000, int(shape.records * self._share)))
        engines = ("records", "batches")
        self._turns(
            "memory", {name: partial(cases.stalled, bench, topic, STALL_S, name, STALLED_FROM) for name in engines}
        )
        load.delete(bench.source.bootstrap, topic)

    def _partitions(self) -> None:
        many = IdlePartitions(self._session.bench.directory, 60.0 * self._share)
        self._turns("partitions", {name: partial(many.measure, name) for name in ("records", "batches")})

    def _backfill(self) -> None:
        bench, topic = self._session.bench, cases.topic_name("history")
        records = int(SHAPES["plain"].records * self._share)
        load.backlog(bench.source.bootstrap, topic, records)

        def one(engine: str) -> Figures:
            system = Backfill(bench.source, bench.target, topic, bench.directory, engine=engine)
            return cases.whole(bench, system, records)

        calls = {f"backfill, {engine}": partial(one, engine) for engine in ("records", "batches")}
        mirror = partial(MirrorMaker, bench.source, bench.target, topic, bench.directory)
        self._turns("backfill", calls | {MirrorMaker.name: lambda: cases.whole(bench, mirror(), records)})
        load.delete(bench.source.bootstrap, topic)


@click.command()
@click.option("--runs", default=5, show_default=True, help="Rounds; the median counts.")
@click.option("--share", default=1.0, show_default=True, help="Of the records and seconds of each row: 0.1 for a try.")
@click.option("--row", "rows", multiple=True, type=click.Choice(ROWS), default=ROWS, help="Only these.")
@click.option("--only", multiple=True, help="Only these systems; may be given again.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="JSON file. Default: by date in results/. Other rows of one that is there stay.",
)
def main(runs: int, share: float, rows: tuple[str, ...], only: tuple[str, ...], out: Path | None) -> None:
    """Measure both engines beside MirrorMaker 2 (exactly-once, tuned) and a raw pipe on two real Kafka brokers."""
    console, started, load_average = Console(width=200), datetime.now(UTC), os.getloadavg()[0]
    path = out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json"
    with (
        tempfile.TemporaryDirectory(prefix="eos-bench-") as directory,
        Kafka.running("source") as source,
        Kafka.running("target") as target,
    ):
        session = Measurements(Bench(source, target, Path(directory)), console)
        if path.exists():
            before = json.loads(path.read_text())["runs"]
            session.runs |= {row: figures for row, figures in before.items() if row not in rows}
        engines = Engines(session, runs, share, only)
        for row in rows:
            engines.row(row)
            settings = {
                "runs": runs,
                "share": share,
                "records": {name: int(shape.records * share) for name, shape in SHAPES.items()},
                "started": started.isoformat(timespec="seconds"),
                "load_average_before": round(load_average, 2),
            }
            body = {"machine": machine(), "settings": settings, "median": summary(session.runs), "runs": session.runs}
            write_result(path, body | {"stuck": session.stuck})
    console.print(table(summary(session.runs), runs))
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

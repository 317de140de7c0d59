"""`python -m benchmarks.slots`: a backfill in two slots beside `run` with one lane and with two, on two kinds of data.

All copy the same backlog between two real Kafka brokers in turn: one with as many records in each of four partitions,
one with 60 % of them in one. The rate is from the first record written to the last one committed, so that no start is
counted. A round that isn't counted comes first. Figures and verdicts go to benchmarks/results/slots.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from benchmarks import cases, load
from benchmarks.__main__ import RESULTS, Measurements, machine, summary, table
from benchmarks.backfill import Backfill
from benchmarks.cases import Bench, Figures
from benchmarks.clusters import Kafka
from benchmarks.systems import Eos

DIRECTORY = RESULTS / "slots"
DATA = {"even": load.EVEN, "skewed": load.SKEWED}
ONE, TWO = "run, one lane", "run, two lanes"
SLOTS = 2
BARS = {("even", ONE): 1.3, ("even", TWO): 0.95, ("skewed", ONE): 1.0, ("skewed", TWO): 0.95}
"""The backfill's rate as a multiple of another system's, at least: by data and system."""


def makers(bench: Bench, topic: str) -> dict[str, Callable[[], Eos]]:
    """The three systems, on one topic."""
    where = bench.source, bench.target, topic, bench.directory
    return {
        Backfill.name: lambda: Backfill(*where, master=f"local[{SLOTS},4]"),
        ONE: lambda: Eos(*where),
        TWO: lambda: Eos(*where, lanes=SLOTS),
    }


def verdicts(medians: dict[str, dict[str, Figures]]) -> list[dict[str, object]]:
    """How the medians stand to the bars."""
    reached: list[dict[str, object]] = []
    for (data, other), bar in BARS.items():
        rates = medians.get(data, {})
        if Backfill.name in rates and other in rates:
            ratio = rates[Backfill.name]["records_per_s"] / rates[other]["records_per_s"]
            reached.append({"data": data, "beside": other, "ratio": round(ratio, 3), "bar": bar, "met": ratio >= bar})
    return reached


@click.command()
@click.option("--runs", default=5, show_default=True, help="Rounds; the median counts.")
@click.option("--records", default=4_000_000, show_default=True, help="Records of each backlog, 256 bytes each.")
@click.option("--data", "kinds", multiple=True, type=click.Choice(list(DATA)), help="Only this; may be given again.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(runs: int, records: int, kinds: tuple[str, ...], out: Path | None) -> None:
    """Measure the backfill beside the live worker, on even and on skewed data."""
    console, started, load_began = Console(width=200), datetime.now(UTC), os.getloadavg()
    with (
        tempfile.TemporaryDirectory(prefix="eos-bench-") as directory,
        Kafka.running("source") as source,
        Kafka.running("target") as target,
    ):
        session = Measurements(Bench(source, target, Path(directory)), console)
        for data in kinds or DATA:
            topic, turns = cases.topic_name(data), DATA[data]
            load.backlog(source.bootstrap, topic, records, turns)
            made = makers(session.bench, topic)
            for make in made.values():
                cases.whole(session.bench, make(), records, turns)
            names = list(made)
            for number in range(runs):
                turn = number % len(names)
                for name in names[turn:] + names[:turn]:
                    session.measure(data, name, partial(cases.whole, session.bench, made[name](), records, turns))
            load.delete(source.bootstrap, topic)
    medians = summary(session.runs)
    console.print(table(medians, runs))
    settings = {
        "runs": runs,
        "records": records,
        "slots": SLOTS,
        "started": started.isoformat(timespec="seconds"),
        "load_average_before": round(load_began[0], 2),
    }
    reached = verdicts(medians)
    path = out or DIRECTORY / f"{started:%Y-%m-%d-%H%M}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {
        "machine": machine(),
        "settings": settings,
        "verdicts": reached,
        "median": medians,
        "runs": session.runs,
        "stuck": session.stuck,
    }
    path.write_text(json.dumps(body, indent=1) + "\n")
    for verdict in reached:
        console.print(verdict, highlight=False)
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

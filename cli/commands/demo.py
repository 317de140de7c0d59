"""`eos-replicate demo`: exactly-once, seen by a person, with everything killed on the way."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from cli.demo.director import Outcome, Settings

MODES = ("at_most_once", "at_least_once", "exactly_once")
EPILOG = """\b
Examples:
  eos-replicate demo
  eos-replicate demo --kills 10 --broker-kills 3 --seconds 40 --records 60000
  eos-replicate demo --json | tail -1
  eos-replicate demo --compare

\b
Exit code 0 only if nothing was lost, doubled, reordered or altered (with --compare: under exactly_once).
"""


@click.command(epilog=EPILOG)
@click.option("--records", type=click.IntRange(1), default=12_000, show_default=True, help="Records to write, at most.")
@click.option("--seconds", type=click.FloatRange(2), default=13.0, show_default=True, help="How long data flows.")
@click.option("--kills", type=click.IntRange(0), default=5, show_default=True, help="SIGKILLs of the replicator.")
@click.option("--broker-kills", type=click.IntRange(0), default=1, show_default=True, help="SIGKILLs of the target.")
@click.option("--seed", type=int, default=None, help="Seed of data and kills. Default: a new one, shown.")
@click.option("--keep", is_flag=True, help="Keep the brokers' data and all logs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; the last one is the result.")
@click.option("--compare", is_flag=True, help="The same kills under all three delivery modes.")
def demo(
    records: int,
    seconds: float,
    kills: int,
    broker_kills: int,
    seed: int | None,
    keep: bool,
    as_json: bool,
    compare: bool,
) -> None:
    """Start two brokers and a replicator, kill them while data flows, and compare every record.

    Needs neither Java nor Docker. The comparison reads both brokers with clients of its own and shares no code
    with the replicator.
    """
    from rich.console import Console

    from cli.demo.director import Settings

    chosen = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    settings = Settings(records, seconds, kills, broker_kills, chosen)
    console = Console(stderr=as_json, quiet=as_json)
    directory = Path(tempfile.mkdtemp(prefix="eos-demo-"))
    try:
        exact = (
            _compare(settings, directory, console, as_json) if compare else _one(settings, directory, console, as_json)
        )
    finally:
        if keep:
            click.echo(f"data and logs are in {directory}", err=True)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    sys.exit(0 if exact else 1)


def _run(settings: Settings, directory: Path, console: Console, as_json: bool) -> Outcome:
    from cli.demo import show
    from cli.demo.director import Director, Progress

    directory.mkdir(exist_ok=True)
    if as_json:
        return Director(settings, directory, lambda progress: click.echo(json.dumps(asdict(progress)))).run()
    with show.live(console) as shown:

        def update(progress: Progress) -> None:
            shown.update(show.progress_table(progress, settings))

        return Director(settings, directory, update).run()


def _one(settings: Settings, directory: Path, console: Console, as_json: bool) -> bool:
    from cli.demo import show

    outcome = _run(settings, directory, console, as_json)
    if as_json:
        click.echo(json.dumps({**_summary(outcome), "seed": settings.seed}))
    else:
        console.print(show.verdict_table(outcome))
        total = outcome.total
        said = "Nothing lost, doubled, reordered or altered" if total.exact else "NOT exactly once"
        kills = f"{outcome.worker_kills} worker kills and {outcome.broker_kills} broker kills"
        console.print(f"{said} after {kills}, in {outcome.seconds:.0f} s (seed {settings.seed}).")
    return outcome.total.exact


def _compare(settings: Settings, directory: Path, console: Console, as_json: bool) -> bool:
    from cli.demo import show

    outcomes: dict[str, Outcome] = {}
    for mode in MODES:
        by_steps = replace(settings, delivery=mode, steps=True, broker_kills=0)
        outcomes[mode] = _run(by_steps, directory / mode, console, as_json)
    if as_json:
        click.echo(json.dumps({"seed": settings.seed, **{mode: _summary(done) for mode, done in outcomes.items()}}))
    else:
        console.print(show.comparison_table(outcomes))
    return outcomes["exactly_once"].total.exact


def _summary(outcome: Outcome) -> dict[str, float]:
    total = outcome.total
    return {
        "records_source": total.source,
        "records_target": total.target,
        "lost": total.lost,
        "doubled": total.doubled,
        "reordered": total.reordered,
        "altered": total.altered,
        "worker_kills": outcome.worker_kills,
        "broker_kills": outcome.broker_kills,
        "seconds": outcome.seconds,
    }

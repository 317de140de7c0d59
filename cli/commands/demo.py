"""`eos-replicate demo`: copies between two brokers while worker and target are killed, and compares every record."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from rich.console import Console

    from cli.demo.failing_over import FailedOver
    from cli.demo.model import DemoResult, Settings

MODES = ("at_most_once", "at_least_once", "exactly_once")
KILLS = click.IntRange(0, 1_000)
ONLY_OTHERS = ("kills", "broker_kills", "workers", "compare")
COMPARED_KILLS_MIN = 2  # one after the end of a transaction, one before it
EPILOG = """\b
Examples:
  eos-replicate demo
  eos-replicate demo --kills 10 --broker-kills 3 --seconds 40 --records 60000
  eos-replicate demo --workers 3
  eos-replicate demo --json | tail -1
  eos-replicate demo --compare
  eos-replicate demo --failover

\b
Exit codes:
  0    nothing was lost, doubled, reordered or altered; with --compare: that
       is so for exactly_once, at_most_once doubled nothing, and
       at_least_once lost nothing; with --failover: what the target has is
       what the source had up to some record, and none of it was skipped
  1    it was, or the demo failed: data and logs are kept, and it says where
  130  interrupted
"""


@click.command(epilog=EPILOG)
@click.option(
    "--records", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, help="Records, at least."
)
@click.option("--seconds", type=click.FloatRange(2, 3_600), default=8.0, show_default=True, help="How long data flows.")
@click.option(
    "--kills", type=click.IntRange(0, 1_000), default=5, show_default=True, help="SIGKILLs of the replicator."
)
@click.option(
    "--broker-kills", type=click.IntRange(0, 1_000), default=1, show_default=True, help="SIGKILLs of the target."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 8),
    default=1,
    show_default=True,
    help="Processes that share the flow: one is killed at a time, at the end all are restarted in turn.",
)
@click.option("--seed", type=int, default=None, help="Seed of data and kills. Default: a new one, shown.")
@click.option("--keep", is_flag=True, help="Keep the brokers' data and all logs, whatever happens.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; the last one is the result.")
@click.option("--compare", is_flag=True, help="The same kills under all three delivery modes.")
@click.option("--failover", is_flag=True, help="Kill the source, and have a consumer group go on at the target.")
@click.pass_context
def demo(
    context: click.Context,
    /,
    records: int,
    seconds: float,
    kills: int,
    broker_kills: int,
    workers: int,
    seed: int | None,
    keep: bool,
    as_json: bool,
    compare: bool,
    failover: bool,
) -> int:
    """Start two brokers and a replicator, kill them while data flows, and compare every record.

    Needs neither Java nor Docker. The load goes on for as long as the kills take. The comparison reads both brokers
    with clients of its own and shares no code with the replicator; reconcile --local then says the same by the offset
    map. With --failover it is the source that is killed, for good, and a consumer group goes on at the target: what
    counts is how often each record was processed. Data and logs are deleted at the end unless something was wrong.
    """
    from rich.console import Console

    from cli.demo.model import DemoFailed, Settings

    if compare and kills < COMPARED_KILLS_MIN:
        raise click.UsageError(f"--compare needs --kills {COMPARED_KILLS_MIN} or more, to hit both weaker modes")
    if compare and workers > 1:
        raise click.UsageError("--compare kills a worker at steps of its transaction, and goes with one worker")
    given = [name for name in ONLY_OTHERS if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if failover and given:
        raise click.UsageError(f"--failover kills the source once: it goes without --{given[0].replace('_', '-')}")
    chosen = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    settings = Settings(records, seconds, kills, broker_kills, chosen, workers=workers)
    console = Console(stderr=as_json, quiet=as_json)
    run = _failover if failover else _compare if compare else _one
    with scratch(keep) as (directory, kept):
        try:
            good = run(settings, directory, console, as_json)
        except DemoFailed as error:
            kept.append("the demo failed")
            raise click.ClickException(str(error)) from error
        if not good:
            kept.append("the promise was broken")
    return 0 if good else 1


@contextmanager
def scratch(keep: bool) -> Iterator[tuple[Path, list[str]]]:
    """Make a temporary directory, removed at the end or at a signal, unless the list names a reason to keep it.

    Raises ClickException where none can be made.
    """
    try:
        directory = Path(tempfile.mkdtemp(prefix="eos-demo-"))
    except OSError as error:  # as in a container with a read-only root
        raise click.ClickException(f"the demo needs a directory to write into: {error.strerror}; set TMPDIR") from error
    reasons = ["--keep"] if keep else []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        yield directory, reasons
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)  # a second ^C must not interrupt the removal
        if reasons:
            click.echo(f"data and logs are in {directory} ({reasons[-1]})", err=True)
        else:
            shutil.rmtree(directory)
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _run(settings: Settings, directory: Path, console: Console, as_json: bool) -> DemoResult:
    from cli.demo import show
    from cli.demo.orchestrator import Orchestrator

    directory.mkdir(exist_ok=True)
    if as_json:
        return Orchestrator(settings, directory, show.lines(settings)).run()
    with show.live(console, settings) as update:
        return Orchestrator(settings, directory, update).run()


def _one(settings: Settings, directory: Path, console: Console, as_json: bool) -> bool:
    from cli.demo import show

    found = _run(settings, directory, console, as_json)
    if as_json:
        click.echo(json.dumps({"event": "result", "seed": settings.seed, **show.as_json(found)}))
    else:
        console.print(show.verdict_table(found))
        for line in show.verdict_lines(found, settings):
            console.print(line, markup=False, highlight=False)
    return found.exact


def _compare(settings: Settings, directory: Path, console: Console, as_json: bool) -> bool:
    from cli.demo import show

    of_modes = {
        mode: _run(replace(settings, delivery=mode, at_steps=True), directory / mode, console, as_json)
        for mode in MODES
    }
    if as_json:
        modes = {mode: show.as_json(found) for mode, found in of_modes.items()}
        exact = modes["exactly_once"]
        click.echo(json.dumps({"event": "result", "seed": settings.seed, **exact, "modes": modes}))
    else:
        console.print(show.comparison_table(of_modes))
        for line in show.comparison_lines(of_modes, settings):
            console.print(line, markup=False, highlight=False)
    return _kept_promises(of_modes)


def _failover(settings: Settings, directory: Path, console: Console, as_json: bool) -> bool:
    from cli.demo import show_failover
    from cli.demo.failing_over import FailoverDemo

    def say(step: str) -> None:
        if as_json:
            click.echo(json.dumps({"event": "step", "step": step}))
        else:
            console.print(f"• {step}", markup=False, highlight=False)

    found: FailedOver = FailoverDemo(settings, directory, say).run()
    if as_json:
        click.echo(json.dumps({"event": "result", "seed": settings.seed, **show_failover.as_json(found)}))
    else:
        console.print(show_failover.table(found))
        for line in show_failover.lines(found):
            console.print(line, markup=False, highlight=False)
    return found.good


def _kept_promises(of_modes: dict[str, DemoResult]) -> bool:
    """Return whether no mode had a fault that it excludes."""
    never_doubles, never_loses = of_modes["at_most_once"].total, of_modes["at_least_once"].total
    return not never_doubles.doubled and not never_loses.lost and of_modes["exactly_once"].exact

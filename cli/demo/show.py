"""Output of the demo: a live table or lines of JSON, and the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from cli.demo.compare import Comparison
from cli.demo.model import DemoResult, Progress, Settings
from replicator.model.counting import counted

NAMED_MAX = 5  # faults that are named one by one
LINE_EVERY_S = 0.5
SEE_MORE = "What the same kills do to weaker delivery modes: eos-replicate demo --compare, or make demo-compare."
FAULTS = ("lost", "doubled", "reordered", "altered")


@contextmanager
def live(console: Console, settings: Settings) -> Iterator[Callable[[Progress], None]]:
    """Show each event in a line of its own, and below them the state: live on a terminal, elsewhere once at the end."""
    told, last = 0, Progress()

    def tell(progress: Progress) -> None:
        nonlocal told, last
        for event in progress.events[told:]:
            console.print(event, markup=False, highlight=False)
        told, last = len(progress.events), progress

    if not console.is_terminal:
        yield tell
        console.print(progress_table(last, settings))
        return
    with Live(console=console, refresh_per_second=8) as shown:

        def update(progress: Progress) -> None:
            tell(progress)
            shown.update(progress_table(progress, settings))

        yield update


def lines(settings: Settings) -> Callable[[Progress], None]:
    """Write one JSON object a line on stdout: at every change of phase, every kill, and twice a second."""
    last: tuple[str, int, float] = ("", 0, -1.0)

    def line(progress: Progress) -> None:
        nonlocal last
        phase, events, seconds = last
        if (progress.phase, len(progress.events)) == (phase, events) and progress.seconds < seconds + LINE_EVERY_S:
            return
        last = (progress.phase, len(progress.events), progress.seconds)
        happened = progress.events[-1] if len(progress.events) > events else ""
        fields = {name: value for name, value in asdict(progress).items() if name != "events"}
        click.echo(json.dumps({"event": "progress", "delivery": settings.delivery, **fields, "happened": happened}))

    return line


def progress_table(progress: Progress, settings: Settings) -> Table:
    """Make the live view."""
    title = f"{settings.delivery}, seed {settings.seed}, {progress.seconds:.0f} s: {progress.phase}"
    table = Table(title=title, title_justify="left")
    for column in ("records copied", "source offset", "committed", "lag", "worker kills", "broker kills"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{progress.copied:,}",
        f"{progress.written:,}",
        f"{progress.committed:,}",
        f"{progress.lag:,}",
        f"{progress.worker_kills}/{settings.kills}",
        f"{progress.broker_kills}/{settings.broker_kills}",
    )
    return table


def verdict_table(found: DemoResult) -> Table:
    """Make the final table: one row a partition, and the sum."""
    table = _table("every record compared: key, value, headers, timestamp, order", "partition")
    for (topic, number), verdict in sorted(found.verdicts.items()):
        table.add_row(f"{topic}-{number}", *_cells(verdict))
    table.add_section()
    table.add_row("all", *_cells(found.total))
    return table


def verdict_lines(found: DemoResult, settings: Settings) -> list[str]:
    """Say the result in words, and the first of each partition's faults by name."""
    kills = f"{counted(found.worker_kills, 'worker kill')} and {counted(found.broker_kills, 'broker kill')}"
    slowest = f"; slowest recovery {max(found.recoveries_s):.1f} s" if found.recoveries_s else ""
    result = "Nothing lost, doubled, reordered or altered" if found.exact else "NOT exactly once"
    said = [f"{result}: {kills} in {found.seconds:.0f} s (seed {settings.seed}){slowest}."]
    if found.proof is not None:
        said.append(f"Proven by the offset map (reconcile --local): {found.proof.headline}")
    said += found.timeline
    said += [SEE_MORE] if found.exact else []
    for (topic, number), verdict in sorted(found.verdicts.items()):
        for fault in FAULTS:
            names = [name.decode(errors="replace")[:40] for name in getattr(verdict, fault)]
            if names:
                more = ", …" if len(names) > NAMED_MAX else ""
                said.append(f"{topic}-{number}: {len(names)} {fault}: {', '.join(names[:NAMED_MAX])}{more}")
    return said


def comparison_table(of_modes: Mapping[str, DemoResult]) -> Table:
    """Make the table of the faults of each delivery mode under the same kills."""
    table = _table("the same seeded kills under three delivery modes", "delivery")
    for mode, found in of_modes.items():
        table.add_row(mode, *_cells(found.total))
    return table


def comparison_lines(of_modes: Mapping[str, DemoResult], settings: Settings) -> list[str]:
    """Say at which steps the kills came, and how many there were in each mode."""
    said = [
        f"Of each three worker kills one came right after a transaction's end, one right before it, one at a random "
        f"moment (seed {settings.seed})."
    ]
    for mode, found in of_modes.items():
        kills = f"{counted(found.worker_kills, 'worker kill')}, {counted(found.broker_kills, 'broker kill')}"
        said.append(f"{mode}: {kills} in {found.seconds:.0f} s")
    return said


def as_json(found: DemoResult) -> dict[str, float | str | list[str]]:
    """Return the result as one flat object; times in seconds."""
    total = found.total
    return {
        "records_source": total.source,
        "records_target": total.target,
        **{fault: len(getattr(total, fault)) for fault in FAULTS},
        "worker_kills": found.worker_kills,
        "broker_kills": found.broker_kills,
        "seconds": found.seconds,
        "recovery_s_max": round(max(found.recoveries_s, default=0.0), 2),
        **({"proof": found.proof.verdict} if found.proof is not None else {}),
        **({"timeline": list(found.timeline)} if found.timeline else {}),
    }


def _table(title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for column in ("source records", "target records", *FAULTS):
        table.add_column(column, justify="right")
    return table


def _cells(verdict: Comparison) -> list[str]:
    counts = [len(getattr(verdict, fault)) for fault in FAULTS]
    shown = [f"[bold red]{count:,}[/]" if count else "[green]0[/]" for count in counts]
    return [f"{verdict.source:,}", f"{verdict.target:,}", *shown]

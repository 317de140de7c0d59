"""What a person sees: a live line of progress and tables at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from cli.demo.compare import Verdict
from cli.demo.director import Outcome, Progress, Settings


def progress_table(progress: Progress, settings: Settings) -> Table:
    """The live view."""
    table = Table(title=f"{settings.delivery}, seed {settings.seed}: {progress.phase}", title_justify="left")
    for column in ("offsets written", "copied and committed", "lag", "worker kills", "broker kills", "seconds"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{progress.written:,}",
        f"{progress.copied:,}",
        f"{progress.lag:,}",
        f"{progress.worker_kills}/{settings.kills}",
        f"{progress.broker_kills}/{settings.broker_kills}",
        f"{progress.seconds:.1f}",
    )
    if progress.last:
        table.caption = f"last: {progress.last}"
    return table


@contextmanager
def live(console: Console) -> Iterator[Live]:
    """A live display that leaves the last state on the screen."""
    with Live(console=console, refresh_per_second=8, transient=False) as shown:
        yield shown


def verdict_table(outcome: Outcome) -> Table:
    """The final table: one row a partition, and the sum."""
    table = Table(title="every record compared: key, value, headers, timestamp, order", title_justify="left")
    table.add_column("partition")
    for column in ("source records", "target records", "lost", "doubled", "reordered", "altered"):
        table.add_column(column, justify="right")
    for (topic, number), verdict in sorted(outcome.verdicts.items()):
        table.add_row(f"{topic}[{number}]", *_cells(verdict))
    table.add_section()
    table.add_row("all", *_cells(outcome.total))
    return table


def comparison_table(outcomes: Mapping[str, Outcome]) -> Table:
    """What each delivery mode is worth under the same kills."""
    table = Table(title="the same seeded kills under three delivery modes", title_justify="left")
    table.add_column("delivery")
    for column in ("source records", "target records", "lost", "doubled", "reordered", "altered", "worker kills"):
        table.add_column(column, justify="right")
    for mode, outcome in outcomes.items():
        table.add_row(mode, *_cells(outcome.total), str(outcome.worker_kills))
    return table


def _cells(verdict: Verdict) -> list[str]:
    faults = (verdict.lost, verdict.doubled, verdict.reordered, verdict.altered)
    shown = [f"[bold red]{count:,}[/]" if count else "[green]0[/]" for count in faults]
    return [f"{verdict.source:,}", f"{verdict.target:,}", *shown]

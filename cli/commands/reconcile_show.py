"""What `reconcile` shows on the terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from replicator.spark.outcome import Outcome, PartitionOutcome, key_text
from replicator.spark.report import MEANINGS

EXAMPLES_SHOWN = 20


def show(console: Console, outcome: Outcome, out: Path | None) -> None:
    """A table of partitions, examples of differences, and one line that says it all."""
    at = datetime.fromtimestamp(outcome.snapshot_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    table = Table(
        box=SIMPLE_HEAD,
        title=f"{outcome.flow}: {outcome.source} → {outcome.target} at {at} ({outcome.mode})",
        title_justify="left",
    )
    table.add_column("source", overflow="fold")
    table.add_column("target", overflow="fold")
    for heading in ("source records", "target records", "position says", "same"):
        table.add_column(heading, justify="right")
    table.add_column("differences", overflow="fold")
    for partition in outcome.partitions:
        table.add_row(*_cells(partition))
    for waiting in outcome.waiting:
        table.add_row(escape(str(waiting)), "-", "-", "-", "-", "-", "nothing copied yet")
    console.print(table)
    _examples(console, outcome)
    _notes(console, outcome)
    if out is not None:
        console.print(f"report: {out / 'report.html'}", markup=False, soft_wrap=True)
    records = sum(partition.source_records for partition in outcome.partitions)
    if outcome.agrees:
        console.print(f"[green]both sides agree[/]: {records:,} records")
    else:
        totals = outcome.totals()
        words = ", ".join(f"{totals[name]:,} {name}" for name in MEANINGS if totals.get(name))
        console.print(f"[red]the sides differ[/]: {words or 'counts'}")


def _cells(partition: PartitionOutcome) -> list[str]:
    position = "-" if partition.position_records is None else f"{partition.position_records:,}"
    if not partition.counts_agree:
        position = f"[red]{position}[/]"
    found = [f"{partition.verdicts[name]:,} {name}" for name in MEANINGS if partition.verdicts.get(name)]
    if partition.chunks_unexplained:
        found.append(f"{partition.chunks_differing} chunks differ")
    colour = "green" if partition.agrees else "red"
    return [
        escape(str(partition.source)),
        escape(str(partition.target)),
        f"{partition.source_records:,}",
        f"{partition.target_records:,}",
        position,
        f"{partition.same:,}",
        f"[{colour}]{', '.join(found) or ('none' if partition.agrees else 'counts')}[/]",
    ]


def _examples(console: Console, outcome: Outcome) -> None:
    rows = [(partition, item) for partition in outcome.partitions for item in partition.examples]
    if not rows:
        return
    table = Table(box=SIMPLE_HEAD, title="examples", title_justify="left")
    for heading in ("source", "verdict", "fields"):
        table.add_column(heading, overflow="fold")
    for heading in ("source offset", "target offset"):
        table.add_column(heading, justify="right")
    table.add_column("key", overflow="fold")
    for partition, item in rows[:EXAMPLES_SHOWN]:
        offsets = ["-" if offset is None else str(offset) for offset in (item.source_offset, item.target_offset)]
        key = "null" if item.key is None else key_text(item.key) or ""
        table.add_row(escape(str(partition.source)), item.verdict, item.fields, *offsets, escape(key))
    console.print(table)
    if len(rows) > EXAMPLES_SHOWN:
        console.print(f"  and {len(rows) - EXAMPLES_SHOWN} more examples in the report (--out)")


def _notes(console: Console, outcome: Outcome) -> None:
    for note in outcome.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    for partition in outcome.partitions:
        for note in partition.notes:
            console.print(f"note: {partition.source}: {note}", markup=False, soft_wrap=True)

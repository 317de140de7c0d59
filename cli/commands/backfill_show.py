"""The result of `backfill` on stdout: a table, or JSON."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.commands.backfill_watch import Watch
from cli.durations import time_text
from replicator.config import Flow
from replicator.jobs.backfill import BackfilledPartition, BackfillSummary
from replicator.model.errors import Incident


def show(console: Console, flow: Flow, summary: BackfillSummary, watch: Watch, out: object) -> None:
    """Show the table of partitions, incidents, and the result in one line."""
    table = Table(box=SIMPLE_HEAD, title=f"{flow.name}: {flow.source.name} → {flow.target.name}", title_justify="left")
    table.add_column("source", overflow="fold")
    for heading in ("from", "to", "position", "records"):
        table.add_column(heading, justify="right")
    table.add_column("state", overflow="fold")
    for at, found in sorted(summary.partitions.items()):
        numbers = (f"{value:,}" for value in (found.start, found.end, found.position, found.records))
        table.add_row(escape(str(at)), *numbers, _state(found))
    console.print(table)
    for at, found in sorted(summary.partitions.items()):
        if found.incident is not None:
            console.print(f"incident of {at}: {found.incident}", markup=False, soft_wrap=True)
    if watch.ledger_rows:
        console.print(f"ranges: {out}", markup=False, soft_wrap=True)
    console.print(_said(summary), soft_wrap=True)


def _state(found: BackfilledPartition) -> str:
    if found.incident is not None:
        return f"[red]{escape(found.incident.name)}[/]"
    return "[green]done[/]" if found.done else "[yellow]not done[/]"


def _said(summary: BackfillSummary) -> str:
    records = sum(found.records for found in summary.partitions.values())
    if summary.generation is None:
        return "[green]nothing to copy[/]: every partition stands at its end; nothing was changed"
    rate = f", {records / summary.seconds:,.0f} a second" if records and summary.seconds >= 1 else ""
    copied = f"{records:,} records in {time_text(summary.seconds)}{rate} (generation {summary.generation})"
    if all(found.done for found in summary.partitions.values()):
        return f"[green]backfilled[/]: {copied}; the daemon goes on from here"
    if any(found.incident is not None for found in summary.partitions.values()):
        return f"[red]incidents stopped partitions[/]: {copied}"
    if not all(found.begun for found in summary.partitions.values()):
        return f"[yellow]stopped[/]: {copied}; run the same command again: the daemon would begin where `start` says"
    return f"[yellow]stopped[/]: {copied}; run the same command again to go on, or the daemon"


def as_json(flow: Flow, summary: BackfillSummary, watch: Watch, out: object) -> dict[str, Any]:
    """Return the same for machines."""
    rows = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "start": found.start,
            "end": found.end,
            "position": found.position,
            "records": found.records,
            "done": found.done,
            "incident": None if found.incident is None else _incident(found.incident),
        }
        for at, found in sorted(summary.partitions.items())
    ]
    return {
        "flow": flow.name,
        "source": flow.source.name,
        "target": flow.target.name,
        "generation": summary.generation,
        "done": all(found.done for found in summary.partitions.values()),
        "stopped": summary.stopped,
        "seconds": round(summary.seconds, 3),
        "records": sum(found.records for found in summary.partitions.values()),
        "ledger": str(out) if watch.ledger_rows else None,
        "partitions": rows,
    }


def _incident(incident: Incident) -> dict[str, Any]:
    return {"name": incident.name, "detail": incident.detail, "offset": incident.offset, "advice": incident.advice}

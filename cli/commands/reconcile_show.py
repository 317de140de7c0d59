"""What `reconcile` shows on the terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from replicator.spark.reconcile.outcome import DIFFERS, Example, Outcome, PartitionOutcome, key_text
from replicator.spark.reconcile.report import MEANINGS
from replicator.spark.reconcile.verdicts import LOSSES, REMOVED, UNPROVEN

EXAMPLES_SHOWN, EXAMPLES_OF_A_KIND = 20, 3
PARTITIONS_NAMED = 3


def show(console: Console, outcome: Outcome, out: str | None) -> None:
    """A table of partitions, examples of differences, and the result in one line."""
    at = datetime.fromtimestamp(outcome.snapshot_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    table = Table(
        box=SIMPLE_HEAD,
        title=f"{outcome.flow}: {outcome.source} → {outcome.target} at {at} ({outcome.mode})",
        title_justify="left",
    )
    table.add_column("topic and partition", overflow="fold")
    for heading in ("source records", "target records", "position says", "same"):
        table.add_column(heading, justify="right")
    table.add_column("differences", overflow="fold")
    topics: set[str] = set()
    for partition in outcome.partitions:
        if partition.source.topic not in topics:
            topics.add(partition.source.topic)
            table.add_row(escape(f"{partition.source.topic} → {partition.target.topic}"))
        table.add_row(*_cells(partition))
    for waiting in outcome.waiting:
        table.add_row(escape(str(waiting)), "-", "-", "-", "-", "nothing copied yet")
    for incident in outcome.not_compared:
        at = f"{incident.topic}[{incident.partition}]"
        table.add_row(escape(at), "-", "-", "-", "-", f"not compared: {incident.name}")
    console.print(table)
    _examples(console, outcome)
    for note, of in outcome.notes_said():
        named = ", ".join(map(str, of[:PARTITIONS_NAMED])) + (" and others" if len(of) > PARTITIONS_NAMED else "")
        console.print(f"note on {named}: {note}" if of else f"note: {note}", markup=False, soft_wrap=True)
    if out is not None:
        console.print(f"report: {out.rstrip('/')}/report.html", markup=False, soft_wrap=True)
    _result(console, outcome)


def _result(console: Console, outcome: Outcome) -> None:
    totals = outcome.totals()
    removed = _words(totals, REMOVED)
    if removed:
        console.print(f"no difference, removed by retention or compaction: {removed}", soft_wrap=True)
    records = sum(partition.source_records for partition in outcome.partitions)
    if outcome.agrees:
        console.print(f"[green]both sides agree[/]: {records:,} records")
    elif not outcome.differs:
        open_questions = [f"{totals[UNPROVEN]:,} records"] if totals.get(UNPROVEN) else []
        open_questions += [f"{len(outcome.not_compared)} partitions"] if outcome.not_compared else []
        console.print(
            f"[yellow]not proven[/]: no difference in {records:,} records, but nothing tells whether "
            f"{' and '.join(open_questions)} agree",
            soft_wrap=True,
        )
    else:
        console.print(f"[red]the sides differ[/]: {_words(totals, (*LOSSES, DIFFERS)) or 'counts'}", soft_wrap=True)


def _words(counts: Mapping[str, int], names: Collection[str]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in MEANINGS if name in names and counts.get(name))


def _cells(partition: PartitionOutcome) -> list[str]:
    found = [_words(partition.verdicts, MEANINGS)] if any(map(partition.verdicts.get, MEANINGS)) else []
    if partition.chunks_unexplained:
        found.append(f"{partition.chunks_differing} chunks differ")
    colour = "green" if partition.agrees else "red" if partition.differs else "yellow"
    return [
        f"  {partition.source.partition}",
        _count(partition.source_records, partition.source_counts_agree),
        _count(partition.target_records, partition.target_counts_agree),
        "-" if partition.position_records is None else f"{partition.position_records:,}",
        f"{partition.same:,}",
        f"[{colour}]{', '.join(found) or ('none' if partition.agrees else 'counts')}[/]",
    ]


def _count(records: int, agrees: bool) -> str:
    return f"{records:,}" if agrees else f"[red]{records:,}[/]"


def _examples(console: Console, outcome: Outcome) -> None:
    rows: list[tuple[PartitionOutcome, Example]] = []
    for partition in outcome.partitions:
        for verdict in LOSSES:
            of_a_kind = [item for item in partition.examples if item.verdict == verdict]
            rows += [(partition, item) for item in of_a_kind[:EXAMPLES_OF_A_KIND]]
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
    more = sum(partition.differences for partition in outcome.partitions) - min(len(rows), EXAMPLES_SHOWN)
    if more:
        console.print(f"  and {more:,} more; --out writes a report of all")

"""What `reconcile` shows on the terminal; it fits into 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby, islice

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.options import print_wrapped
from replicator.model.counting import counted
from replicator.model.printable import printable
from replicator.proof.excerpts import Excerpt
from replicator.proof.headline import MEANINGS, headline, label
from replicator.proof.next_steps import next_steps
from replicator.proof.outcome import OffsetRange, Outcome, OutcomeVerdict, PartitionOutcome
from replicator.proof.page import key, offsets, step_title, tone
from replicator.proof.verdicts import REMOVED

PARTITIONS_SHOWN, FINDINGS_SHOWN, OF_A_KIND, ALTERED_SHOWN, NOT_COMPARED_SHOWN = 50, 20, 3, 3, 20
PARTITIONS_NAMED, NAME_WIDTH = 3, 22
_SIGNS: dict[OutcomeVerdict, str] = {
    "differs": "[red]≠ differs[/]",
    "unproven": "[yellow]? unproven[/]",
    "no_difference": "[cyan]○ no difference[/]",
    "agrees": "[green]= agrees[/]",
}
_COLOURS = {"bad": "red", "open": "yellow", "removed": "cyan", "good": "green"}


def show(console: Console, outcome: Outcome, out: str | None) -> None:
    """Show tables of partitions and findings, what to do next, and the result in one line, which comes last."""
    _run(console, outcome)
    _partitions(console, outcome)
    _findings(console, outcome)
    _altered(console, outcome)
    _open_questions(console, outcome)
    for note, of in outcome.notes_said():
        named = ", ".join(map(str, of[:PARTITIONS_NAMED])) + (" and others" if len(of) > PARTITIONS_NAMED else "")
        _line(console, f"note on {named}: {note}" if of else f"note: {note}")
    for step in next_steps(outcome):
        if step.action != "ignore":
            console.print(f"[bold]{step.action}[/]: {escape(step_title(step))}. {escape(step.text)}.", soft_wrap=False)
    if out is not None:
        _line(console, f"report: {out.rstrip('/')}/report.html")
    colour = _COLOURS[tone(outcome.verdict)]
    print_wrapped(console, headline(outcome), style=colour)


def _line(console: Console, text: str) -> None:
    print_wrapped(console, printable(text))


def _run(console: Console, outcome: Outcome) -> None:
    at = datetime.fromtimestamp(outcome.snapshot_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    _line(console, f"{outcome.flow}: {outcome.source.name} → {outcome.target.name} at {at} ({outcome.mode})")
    for cluster in (outcome.source, outcome.target):
        _line(console, f"  {cluster.name}: {', '.join(cluster.addresses)}")
    read = f"{counted(outcome.records_read, 'record')} of both sides read in {outcome.duration_ms / 1000:,.1f} s"
    by = f"Spark {outcome.spark_version}" if outcome.spark_version else "without Spark"
    _line(console, f"  {read}; eos-replicate {outcome.tool_version}, {by}")


def _partitions(console: Console, outcome: Outcome) -> None:
    """Show partitions, those that differ first when there are more than can be shown."""
    gravity = list(_SIGNS)
    shown = sorted(outcome.partitions, key=lambda item: gravity.index(item.verdict))[:PARTITIONS_SHOWN]
    in_order = sorted(shown, key=lambda item: item.source)
    for topics, partitions in groupby(in_order, key=lambda item: (item.source.topic, item.target.topic)):
        console.print()
        _line(console, " → ".join(topics))
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("partition", justify="right")
        table.add_column("verdict", no_wrap=True)
        for heading in ("source\nrecords", "target\nrecords", "counted by\nposition", "position", "lag"):
            table.add_column(heading, justify="right", overflow="fold")
        for partition in partitions:
            table.add_row(*_cells(partition))
        console.print(table)
    if len(outcome.partitions) > PARTITIONS_SHOWN:
        left = counted(len(outcome.partitions) - PARTITIONS_SHOWN, "more partition")
        _line(console, f"  and {left}; --json and --out have all of them")


def _cells(partition: PartitionOutcome) -> list[str]:
    return [
        str(partition.source.partition),
        _SIGNS[partition.verdict],
        _count(partition.source_records, partition.source_counts_agree),
        _count(partition.target_records, partition.target_counts_agree),
        "-" if partition.position_records is None else f"{partition.position_records:,}",
        str(partition.position),
        f"{partition.lag:,}",
    ]


def _count(records: int, agrees: bool) -> str:
    return f"{records:,}" if agrees else f"[red]{records:,}![/]"


def _ranges(outcome: Outcome) -> Iterator[tuple[PartitionOutcome, OffsetRange]]:
    """Yield the first ones of each kind in each partition, but for what retention and compaction explain."""
    for partition in outcome.partitions:
        for kind in (name for name in MEANINGS if name not in REMOVED):
            of_kind = (item for item in partition.ranges if item.verdict == kind)
            yield from ((partition, item) for item in islice(of_kind, OF_A_KIND))


def _findings(console: Console, outcome: Outcome) -> None:
    rows = list(_ranges(outcome))
    if not rows:
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title="findings", title_justify="left")
    table.add_column("partition", overflow="fold", max_width=NAME_WIDTH)
    table.add_column("verdict", no_wrap=True)
    for heading in ("records", "source\noffsets", "target\noffsets"):
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("fields", overflow="fold")
    table.add_column("first key", overflow="fold")
    for partition, item in rows[:FINDINGS_SHOWN]:
        verdict = f"[{_COLOURS[tone(item.verdict)]}]{label(item.verdict)}[/]"
        spans = [offsets(span) for span in (item.source_offsets, item.target_offsets)]
        fields = item.fields.replace(",", ", ")
        cells = (f"{item.records:,}", *spans, fields, escape(key(item.key)))
        table.add_row(escape(str(partition.source)), verdict, *cells)
    console.print(table)
    shown = sum(item.records for _, item in rows[:FINDINGS_SHOWN])
    more = sum(partition.differences + partition.unproven for partition in outcome.partitions) - shown
    if more > 0:
        _line(console, f"  and {counted(more, 'more record')}; --out writes a report of all")


def _altered(console: Console, outcome: Outcome) -> None:
    found = ((partition, item) for partition in outcome.partitions for item in partition.ranges if item.fields_of_first)
    for partition, item in islice(found, ALTERED_SHOWN):
        here, there = item.source_offsets, item.target_offsets
        assert here is not None, "an altered record is on both sides"
        assert there is not None
        at = f"source offset {here[0]}, target offset {there[0]}"
        _line(console, f"{partition.source} altered, {at}:")
        table = Table.grid(padding=(0, 1))
        for _ in range(3):
            table.add_column(overflow="fold")
        for pair in item.fields_of_first:
            if not pair.same:
                table.add_row(f"  {pair.name}", "source", _excerpt(pair.source))
                table.add_row("", "target", _excerpt(pair.target))
        console.print(table)


def _excerpt(excerpt: Excerpt) -> str:
    if excerpt.bytes is None:
        return "[dim]null[/]"
    before = ("…" if excerpt.cut_before else "") + excerpt.before
    differing = excerpt.differing + ("…" if excerpt.cut_differing else "")
    after = excerpt.after + ("…" if excerpt.cut_after else "")
    size = f"[dim]({counted(excerpt.bytes, 'byte')}, SHA-256 {(excerpt.sha256 or '')[:12]}…)[/]"
    return f"{escape(before)}[reverse]{escape(differing)}[/]{escape(after)}\n{size}"


def _open_questions(console: Console, outcome: Outcome) -> None:
    for partition in outcome.partitions[:PARTITIONS_SHOWN]:
        for reason, records in partition.reasons.items():
            _line(console, f"unproven: {partition.source}, {counted(records, 'record')}: {reason}")
    for incident in outcome.not_compared[:NOT_COMPARED_SHOWN]:
        at = f"{incident.topic}[{incident.partition}]" if incident.partition >= 0 else incident.topic
        _line(
            console, f"not compared: {at}, {incident.name}: {incident.detail}. {incident.of_flow(outcome.flow).advice}"
        )
    if len(outcome.not_compared) > NOT_COMPARED_SHOWN:
        left = counted(len(outcome.not_compared) - NOT_COMPARED_SHOWN, "more partition")
        _line(console, f"not compared: {left}; --json and --out have all of them")
    for item in outcome.waiting[:NOT_COMPARED_SHOWN]:
        _line(console, f"nothing copied yet: {item.source}, {counted(item.offsets[1] - item.offsets[0], 'offset')}")

"""Output of `demo --failover`: how often each record was processed."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from cli.demo.failing_over import GROUP, FailedOver
from cli.demo.processed import Processed
from replicator.model.counting import counted

NAMED_MAX = 5  # skipped records that are named


def table(found: FailedOver) -> Table:
    """Return one row for each partition, and the sum."""
    made = Table(title=f"how often group {GROUP} processed each record", title_justify="left")
    made.add_column("partition")
    for column in ("on target", "once", "twice", "skipped", "not copied"):
        made.add_column(column, justify="right")
    for (topic, number), it in sorted(found.partitions.items()):
        made.add_row(f"{topic}-{number}", *_cells(it))
    made.add_section()
    made.add_row("all", *_cells(found.total))
    return made


def _cells(it: Processed) -> Iterable[str]:
    yield f"{it.copied.target:,}"
    yield f"{it.once:,}"
    yield f"{it.again:,}"
    yield f"[bold red]{len(it.skipped):,}[/]" if it.skipped else "[green]0[/]"
    yield f"{it.not_copied:,}"


def lines(found: FailedOver) -> list[str]:
    """Return the result in words."""
    total, verdict = found.total, found.verdict
    missed = "nothing" if verdict["complete"] else counted(verdict["not_copied_at_least"], "offset")
    return [
        _headline(found),
        f"{counted(total.again, 'record')} were processed twice: at the source, after the group's offsets were synced "
        "last, and at the target.",
        f"{counted(total.not_copied, 'record')} were written at the source and not copied yet, of which the group had "
        f"processed {total.seen_only_there:,}. By the source's ends as the flow had noted them last, failover named "
        f"{missed}.",
    ]


def _headline(found: FailedOver) -> str:
    total = found.total
    if not total.copied.exact:
        return "NOT as promised: the copy is not what the source had."
    if total.skipped:
        return f"NOT as promised: skipped were {', '.join(_names(total))}."
    return (
        f"No record of the target was skipped; the first one was processed {found.first_s:.1f} s after the failover "
        "was begun."
    )


def _names(total: Processed) -> list[str]:
    names = [name.decode(errors="replace")[:40] for name in total.skipped]
    return [*names[:NAMED_MAX], "…"] if len(names) > NAMED_MAX else names


def as_json(found: FailedOver) -> dict[str, object]:
    """Return the result as one flat object."""
    total, verdict = found.total, found.verdict
    return {
        "records_target": total.copied.target,
        "processed_once": total.once,
        "processed_twice": total.again,
        "skipped": len(total.skipped),
        "skipped_named": _names(total),
        "lost": len(total.copied.lost),
        "doubled": len(total.copied.doubled),
        "reordered": len(total.copied.reordered),
        "altered": len(total.copied.altered),
        "not_copied": total.not_copied,
        "not_copied_but_processed_at_source": total.seen_only_there,
        "failover_complete": verdict["complete"],
        "failover_not_copied_at_least": verdict["not_copied_at_least"],
        "first_record_s": found.first_s,
    }

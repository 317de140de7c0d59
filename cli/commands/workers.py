"""`eos-replicate workers`: who shares a flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.commands.status import iso, kept_said
from cli.options import (
    ask_each,
    asked_flows,
    console_for_people,
    flow_options,
    patience_ms,
    print_found,
    print_wrapped,
    show_failed,
)
from replicator.model.counting import counted

if TYPE_CHECKING:
    from rich.console import Console

    from replicator.flow.group_members import ShownWorker
    from replicator.inspect.workers import FoundWorkers

EPILOG = """\b
Examples:
  eos-replicate workers -c flows.yaml
  eos-replicate workers -c flows.yaml --flow orders --json

\b
Exit codes:
  0  shown
  2  the flow file is wrong
  3  the target cannot be reached, or a right is missing
  4  the flow's own topics are unreadable
"""


HEADINGS = ("worker", "address", "version", "lanes", "since")


@click.command(epilog=EPILOG)
@flow_options()
def workers(path: Path, names: tuple[str, ...], as_json: bool) -> int:
    """Show who shares each flow: processes, their lanes, and since when they run them.

    Asks the target for the members of each flow's group of workers. A process that runs a flow alone is no
    member; status shows it as the owner of positions. For a flow that was failed over the command shows which process
    keeps the positions.
    """
    from replicator.inspect.workers import read

    found, failed = ask_each(asked_flows(path, names), lambda flow: read(flow, connect_timeout_ms=patience_ms(flow)))
    if as_json:
        print_found([_as_json(it) for it in found.values()], failed)
    else:
        console = console_for_people()
        for it in found.values():
            show(console, it)
    show_failed(failed)
    return max((error.exit_code for error in failed.values()), default=0)


def _as_json(found: FoundWorkers) -> dict[str, Any]:
    kept = None if found.kept_by is None else {**asdict(found.kept_by), "at": iso(found.kept_by.at_ms)}
    frozen = {"failed_over": found.failed_over, "being_failed_over": found.being_failed_over}
    return {**asdict(found.workers), **frozen, "kept_by": kept}


def show(console: Console, found: FoundWorkers) -> None:
    """Show a line for the flow, a table of its workers, and the lanes that nobody has."""
    its = found.workers
    if found.failed_over:
        print_wrapped(console, f"{its.flow}: {found.failed_over}")
        print_wrapped(console, f"  {kept_said(found.kept_by)}")
        return
    if found.being_failed_over:
        print_wrapped(console, f"{its.flow}: {found.being_failed_over}", style="yellow")
    if its.generation is None:
        print_wrapped(console, f"{its.flow}: no generation is open")
        if found.being_failed_over and its.workers:  # the one that they may still run is a closed one by now
            _show_workers(console, [_row(worker) for worker in its.workers])
        return
    if not its.workers:
        print_wrapped(console, f"{its.flow}: nobody runs it, or a process that runs it alone (run --standalone)")
        return
    print_wrapped(console, f"{its.flow}: generation {its.generation}, {counted(its.lanes, 'lane')}")
    _show_workers(console, [_row(worker) for worker in its.workers])
    if its.unassigned:
        print_wrapped(console, f"not assigned: lanes {', '.join(map(str, its.unassigned))}", style="yellow")
    for worker in its.workers:
        if worker.pid is None:
            line = f"{worker.host} at {worker.address} is no worker: it must not be a member of this group"
            print_wrapped(console, line, style="red")


def _show_workers(console: Console, rows: Sequence[Sequence[str]]) -> None:
    """Show a table; where it doesn't fit, lines in which names are whole."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    if sum(widths) + len(HEADINGS) + 2 > console.width:
        for name, address, version, lanes, since in rows:
            print_wrapped(console, f"  {name} at {address}, version {version}, since {since}, lanes {lanes}")
        return
    table = Table(*HEADINGS, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def _row(worker: ShownWorker) -> tuple[str, str, str, str, str]:
    name = worker.host if worker.pid is None else f"{worker.host}:{worker.pid}"
    lanes = ", ".join(str(it.lane) for it in worker.lanes) or "none"
    began_ms = worker.since_ms
    since = ("starting" if worker.lanes else "") if began_ms is None else iso(began_ms)
    return name, worker.address, worker.version or "-", lanes, since or "-"

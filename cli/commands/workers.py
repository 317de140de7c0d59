"""`eos-replicate workers`: who shares a flow."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.commands.status import iso
from cli.options import ask_each, asked_flows, console_for_people, flow_options, patience_ms, print_found, show_failed

if TYPE_CHECKING:
    from rich.console import Console

    from replicator.flow.group_members import FlowWorkers, ShownWorker

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


@click.command(epilog=EPILOG)
@flow_options()
def workers(path: Path, names: tuple[str, ...], as_json: bool) -> int:
    """Who shares each flow: processes, their lanes, and since when they run them.

    Asks the target for the members of each flow's group of workers. A process that runs a flow alone is none; status
    shows it as the owner of positions.
    """
    from replicator.inspect.workers import read

    found, failed = ask_each(asked_flows(path, names), lambda flow: read(flow, connect_timeout_ms=patience_ms(flow)))
    if as_json:
        print_found([asdict(it) for it in found.values()], failed)
    else:
        console = console_for_people()
        for it in found.values():
            show(console, it)
    show_failed(failed)
    return max((error.exit_code for error in failed.values()), default=0)


def show(console: Console, found: FlowWorkers) -> None:
    """A line for the flow, a table of its workers, and the lanes that nobody has."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    if found.generation is None:
        console.print(f"{escape(found.flow)}: no generation is open")
        return
    if not found.workers:
        console.print(f"{escape(found.flow)}: nobody runs it, or a process that runs it alone (run --standalone)")
        return
    console.print(f"{escape(found.flow)}: generation {found.generation}, {found.lanes} lanes")
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("worker", "address", "version", "lanes", "since"):
        table.add_column(heading, overflow="fold")
    for worker in found.workers:
        table.add_row(*map(escape, _row(worker)))
    console.print(table)
    if found.unassigned:
        console.print(f"[yellow]not assigned: lanes {', '.join(map(str, found.unassigned))}[/]")
    for worker in found.workers:
        if worker.pid is None:
            line = f"{worker.host} at {worker.address} is no worker: it must not be a member of this group"
            console.print(f"[red]{escape(line)}[/]", soft_wrap=True)


def _row(worker: ShownWorker) -> tuple[str, str, str, str, str]:
    name = worker.host if worker.pid is None else f"{worker.host}:{worker.pid}"
    lanes = ", ".join(str(it.lane) for it in worker.lanes) or "none"
    began_ms = worker.since_ms
    since = ("starting" if worker.lanes else "") if began_ms is None else iso(began_ms)
    return name, worker.address, worker.version or "-", lanes, since or "-"

"""`eos-replicate workers`: who shares a flow."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.commands.status import iso, show_failed
from cli.options import (
    chosen,
    config_option,
    console_for_people,
    flow_option,
    json_option,
    log_to_stderr,
    patience_ms,
    print_json,
)

if TYPE_CHECKING:
    from rich.console import Console

    from replicator.flow.group_members import FlowWorkers, ShownWorker
    from replicator.model.errors import ReplicatorError

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
@config_option
@flow_option
@json_option
def workers(path: Path, names: tuple[str, ...], as_json: bool) -> int:
    """Who shares each flow: processes, their lanes, and since when they run them.

    Asks the target for the members of each flow's group of workers. A process that runs a flow alone is none; status
    shows it as the owner of positions.
    """
    from replicator import config
    from replicator.inspect.workers import read
    from replicator.model.errors import ReplicatorError

    log_to_stderr()
    found: list[FlowWorkers] = []
    failed: dict[str, ReplicatorError] = {}
    for flow in chosen(config.load(path, os.environ), path, names):
        try:
            found.append(read(flow, connect_timeout_ms=patience_ms(flow)))
        except ReplicatorError as error:
            failed[flow.name] = error
    if as_json:
        errors = {name: str(error) for name, error in failed.items()}
        print_json({"flows": [asdict(it) for it in found], "errors": errors})
    else:
        console = console_for_people()
        for it in found:
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

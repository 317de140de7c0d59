"""`eos-replicate groups`: where consumer groups stand on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import (
    ask_each,
    asked_flows,
    console_for_people,
    flow_options,
    patience_ms,
    print_found,
    print_wrapped,
    say,
    show_failed,
)

if TYPE_CHECKING:
    from rich.console import Console

    from replicator.groups.rows import GroupRow
    from replicator.groups.shown_groups import GroupShown

EPILOG = """\b
Examples:
  eos-replicate groups -c flows.yaml
  eos-replicate groups -c flows.yaml --flow orders --group billing
  eos-replicate groups -c flows.yaml --json

\b
Exit codes:
  0  the offsets of all groups are in sync
  1  the offsets of some groups aren't in sync, or not yet
  2  the flow file is wrong, or no flow has `groups`
  3  a cluster cannot be reached, or a right is missing
  4  the offset map is gone, or written by a newer version
"""
GROUPS_SHOWN, ROWS_SHOWN = 200, 200


@click.command(epilog=EPILOG)
@flow_options(
    click.option(
        "--group", "groups_", multiple=True, metavar="GROUP", help="This group of the source; may be repeated."
    )
)
def groups(path: Path, names: tuple[str, ...], groups_: tuple[str, ...], as_json: bool) -> int:
    """Show the offsets of the consumer groups that flows sync, at source and target.

    A group is in sync if a consumer that goes on at the target reads what it would have read at the source. Groups
    that aren't, and each partition of those that --group names, are shown with the reason.
    """
    from replicator.group_sync import view
    from replicator.model.errors import ConfigError

    synced = [flow for flow in asked_flows(path, names) if flow.groups.synced]
    if not synced:
        raise ConfigError(f"{path}: no flow that was asked about has groups.include")
    found, failed = ask_each(synced, lambda flow: view.look(flow, groups_, connect_timeout_ms=patience_ms(flow)))
    unknown = set(groups_) - {it.group for seen in found.values() for it in seen.groups}
    if unknown and not failed:
        raise ConfigError(f"no group that a flow syncs is named {min(unknown)!r}")
    if as_json:
        shown = [{"flow": name, "groups": [it.as_json() for it in seen.groups]} for name, seen in found.items()]
        unanswered = [str(error) for seen in found.values() for error in seen.unanswered]
        print_found(shown, failed, unanswered=unanswered)
    else:
        console = console_for_people()
        for name, seen in found.items():
            show(console, name, seen.groups, rows=bool(groups_))
            for why in seen.unanswered:
                say(f"warning: flow {name}: {why}", err=True)
    show_failed(failed)
    waiting = any(not it.settled for seen in found.values() for it in seen.groups)
    return max((error.exit_code for error in failed.values()), default=int(waiting))


def show(console: Console, flow: str, found: Sequence[GroupShown], *, rows: bool) -> None:
    """Show a line for the flow and a table of its groups; with `rows` one of each group's partitions."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from replicator.groups.shown_groups import in_sync
    from replicator.model.counting import counted

    console.print(f"{escape(flow)}: {counted(len(found), 'consumer group')}, {in_sync(found)} in sync")
    if not found:
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("group", overflow="fold")
    table.add_column("at the target", overflow="fold")
    for heading in ("partitions", "in sync", "again"):
        table.add_column(heading, justify="right")
    table.add_column("what else", overflow="fold")
    for it in found[:GROUPS_SHOWN]:
        numbers = f"{it.partitions:,}", f"{it.in_sync:,}", it.again_said
        table.add_row(escape(it.group), escape(it.target_group), *numbers, escape(it.said))
    console.print(table)
    if len(found) > GROUPS_SHOWN:
        console.print(f"and {len(found) - GROUPS_SHOWN:,} more; --json has all of them")
    for it in found if rows else ():
        _show_rows(console, it)


def _show_rows(console: Console, it: GroupShown) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("source partition", overflow="fold")
    for heading in ("source offset", "target offset", "again"):
        table.add_column(heading, justify="right")
    table.add_column("", overflow="fold")
    rows = it.rows
    for row in rows[:ROWS_SHOWN]:
        table.add_row(escape(str(row.at)), *_numbers(row), row.verdict.value.replace("_", " "))
    console.print(table)
    if len(rows) > ROWS_SHOWN:
        console.print(f"and {len(rows) - ROWS_SHOWN:,} more partitions; --json has all of them")
    for said in dict.fromkeys(row.said for row in rows if row.said):
        print_wrapped(console, f"  {said}")


def _numbers(row: GroupRow) -> tuple[str, str, str]:
    return tuple("-" if number is None else f"{number:,}" for number in (row.source, row.target, row.again))  # type: ignore[return-value]

"""`eos-replicate status`: positions and lag."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import (
    chosen,
    config_option,
    console_for_people,
    flow_option,
    json_option,
    patience_ms,
    print_json,
)

if TYPE_CHECKING:
    from rich.console import Console

    from replicator.status import FlowStatus, PartitionStatus

EPILOG = """\b
Examples:
  eos-replicate status -c configs/orders-dr.yaml
  eos-replicate status -c flows.yaml --flow orders --json

\b
States: in_sync, behind, stalled (something to copy, but no commit for long), source_waits (a transaction at the
source has been open for long), not_started, topic_missing, records_lost, source_truncated, source_recreated,
foreign_position.
Exit codes: 0 shown, 2 the flow file is wrong, 3 a cluster cannot be reached or a right is missing.
"""

_COLOURS = {"in_sync": "green", "behind": "yellow", "not_started": "cyan"}


@click.command(epilog=EPILOG)
@config_option
@flow_option
@json_option
def status(path: Path, names: tuple[str, ...], as_json: bool) -> int:
    """Per partition: position, source end, lag in records and seconds, last commit, state.

    Reads the positions from the target; it works whether the daemon runs or not.
    """
    from replicator import config
    from replicator import status as statuses
    from replicator.errors import ReplicatorError

    loaded = config.load(path, os.environ)
    shown: list[FlowStatus] = []
    failed: dict[str, ReplicatorError] = {}
    for flow in chosen(loaded, path, names):
        now_ms = time.time_ns() // 1_000_000
        try:
            shown.append(statuses.status(flow, now_ms=now_ms, connect_timeout_ms=patience_ms(flow)))
        except ReplicatorError as error:
            failed[flow.name] = error
    if as_json:
        errors = {name: str(failure) for name, failure in failed.items()}
        print_json({"flows": [_as_json(item) for item in shown], "errors": errors})
    else:
        _show_all(shown)
    for name, failure in failed.items():
        click.echo(f"error: flow {name}: {failure}", err=True)
    return max((failure.exit_code for failure in failed.values()), default=0)


def _as_json(item: FlowStatus) -> dict[str, Any]:
    flow = asdict(item)
    for row in flow["partitions"]:
        row["last_commit"] = _iso(row["last_commit_ms"])
        row["held_back_since"] = _iso(row["held_back_since_ms"])
    known = [row.lag_records for row in item.partitions if row.lag_records is not None]
    return {**flow, "lag_records": sum(known), "lag_seconds": _largest_lag_s(item)}


def _show_all(shown: list[FlowStatus]) -> None:
    console = console_for_people()
    for item in shown:
        _show(console, item)


def _show(console: Console, item: FlowStatus) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        box=SIMPLE_HEAD,
        title=f"{item.flow}: {item.source} → {item.target} ({item.delivery})",
        title_justify="left",
    )
    for heading in ("source", "target topic"):
        table.add_column(heading, overflow="fold")
    for heading in ("position", "source end", "lag records", "lag seconds"):
        table.add_column(heading, justify="right", min_width=8)
    table.add_column("last commit", overflow="fold")
    table.add_column("state", no_wrap=True)
    for row in item.partitions:
        table.add_row(*_cells(row))
    console.print(table)
    for row in item.partitions:
        if row.held_back_records:
            since = _iso(row.held_back_since_ms) or "an unknown time"
            console.print(
                f"  {row.source_topic}\\[{row.partition}]: {row.held_back_records} records wait behind a transaction "
                f"that has been open at the source since {since}"
            )
    if not item.partitions:
        console.print("  no topic is selected now")


def _cells(row: PartitionStatus) -> list[str]:
    source = row.source_topic if row.partition < 0 else f"{row.source_topic}\\[{row.partition}]"
    seconds = "-" if row.lag_seconds is None else f"{row.lag_seconds:.1f}"
    numbers = ["-" if value is None else f"{value}" for value in (row.position, row.source_end, row.lag_records)]
    colour = _COLOURS.get(row.state, "red")
    state = f"[{colour}]{row.state}[/]"
    return [source, row.target_topic, *numbers, seconds, _iso(row.last_commit_ms) or "-", state]


def _largest_lag_s(item: FlowStatus) -> float | None:
    known = [row.lag_seconds for row in item.partitions if row.lag_seconds is not None]
    return max(known, default=None)


def _iso(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

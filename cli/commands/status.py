"""`eos-replicate status`: positions and lag."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import (
    ask_each,
    chosen,
    console_for_people,
    flow_options,
    log_to_stderr,
    patience_ms,
    print_found,
    print_wrapped,
    say,
    show_failed,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from cli.commands.status_groups import FlowGroups
    from cli.commands.status_schemas import FlowSchemas
    from replicator.config import Config, Flow
    from replicator.inspect.flow_runs import Runner
    from replicator.inspect.flow_status import FlowStatus, PartitionStatus
    from replicator.model.errors import ReplicatorError
    from replicator.state.kept_positions import KeptPositions
    from replicator.state.run_settings import Paused, RateLimit
    from replicator.state.signed_gaps import Adoption, SignedGap

EPILOG = """\b
Examples:
  eos-replicate status -c flows.yaml
  eos-replicate status -c flows.yaml --flow orders --json
  eos-replicate status -c flows.yaml --watch 5
  eos-replicate status -c flows.yaml --check --lag-seconds-max 60

States: in_sync, behind, stalled (something to copy, but the position stands still), limited (the same, and a rate limit
explains it), source_waits (a transaction at the source has been open for long), not_started, waiting (for a cluster or
a right), paused, failed_over (its topic was, see failover --topics), kept (the source topic was deleted, see
deleted_topics), topic_missing, records_lost, source_truncated, source_recreated, other_source,
target_recreated, target_deleted, target_lost_data, position_expired, foreign_position, stopped (by any other incident).
A line below the table says what was found.

\b
Exit codes:
  0  shown; with --check: all is well
  1  with --check: something is not
  2  the flow file is wrong
  3  a cluster cannot be reached, or a right is missing without which nothing
     can be shown; without the source all is shown that the target knows
"""

GAPS_SHOWN = 5
TAKEN_OUT = "no longer in the flow file"
COLUMNS = {"partition": 9, "position": 10, "source end": 10, "lag": 8, "seconds": 8, "last commit": 11, "state": 16}
"""Columns of the table with their least widths."""
_COLOURS = {
    "in_sync": "green",
    "behind": "yellow",
    "limited": "yellow",
    "not_started": "cyan",
    "paused": "cyan",
    "failed_over": "cyan",
    "kept": "dim",
}


@click.command(epilog=EPILOG)
@flow_options()
@click.option("--watch", "every_s", type=click.FloatRange(min=0.5), metavar="SECONDS", help="Show it again and again.")
@click.option("--check", is_flag=True, help="Exit with 1 unless all is well. Lag counts only with a bound.")
@click.option("--lag-records-max", type=click.IntRange(min=0), help="With --check: the most records not copied.")
@click.option("--lag-seconds-max", type=click.FloatRange(min=0), help="With --check: the oldest of them, in seconds.")
def status(
    path: Path,
    names: tuple[str, ...],
    as_json: bool,
    every_s: float | None,
    check: bool,
    lag_records_max: int | None,
    lag_seconds_max: float | None,
) -> int:
    """Show per partition: position, source end, lag in records and seconds, last commit, state.

    Reads the positions from the target; it works whether a worker runs or not. --check is for scripts: it also names
    on stderr what is not well: what is stopped, stalled or refused. Without --lag-records-max and --lag-seconds-max a
    partition that is copied may be behind by any lag. Where schemas are kept at the target's registry, both registries
    are asked.
    """
    from cli.commands.status_check import LagBounds, problems
    from cli.commands.status_groups import ask_groups
    from cli.commands.status_schemas import ask_schemas
    from replicator import config
    from replicator.model.errors import ConfigError

    bounds = LagBounds(lag_records_max, lag_seconds_max)
    if not check and bounds != LagBounds():
        raise ConfigError("--lag-records-max and --lag-seconds-max go with --check")
    if every_s is not None and (check or as_json):
        raise ConfigError("--watch is for people, --check and --json are for scripts")
    log_to_stderr()
    loaded = config.load(path, os.environ)
    flows = chosen(loaded, path, names)
    if every_s is not None:
        return _watch(loaded, flows, every_s)
    shown, failed = ask(loaded, flows)
    whole = [item for item in shown if not item.source_error]
    known = {item.flow for item in whole}
    groups, schemas = ask_groups(flows, known), ask_schemas(flows, known)
    found = [problem for item in whole for problem in problems(item, bounds)] if check else []
    if check:
        found += [problem for name, it in schemas.items() for problem in it.problems(name)]
    if as_json:
        rows = [_as_json(item, groups.get(item.flow), schemas.get(item.flow)) for item in shown]
        print_found(rows, failed, **({"problems": found} if check else {}))
    else:
        _show_all(console_for_people(), shown, groups, schemas)
    show_failed(failed)
    for line in found:
        say(f"check: {line}", err=True)
    return max((failure.exit_code for failure in failed.values()), default=1 if found else 0)


def ask(loaded: Config, flows: Sequence[Flow]) -> tuple[list[FlowStatus], dict[str, ReplicatorError]]:
    """Find the status of each flow, and why it can't be known: all of it, or what only the source knows."""
    from replicator.inspect import status as statuses
    from replicator.model.errors import Unreachable

    def look(flow: Flow) -> FlowStatus:
        now_ms = time.time_ns() // 1_000_000
        return statuses.status(flow, loaded, now_ms=now_ms, connect_timeout_ms=patience_ms(flow))

    found, failed = ask_each(flows, look)
    failed |= {name: Unreachable(it.source_error) for name, it in found.items() if it.source_error}
    return list(found.values()), failed


def _watch(loaded: Config, flows: Sequence[Flow], every_s: float) -> int:
    """Show all again and again until ^C, which ends it well."""
    from cli.commands.status_groups import ask_groups
    from cli.commands.status_schemas import ask_schemas

    console = console_for_people()
    try:
        while True:
            shown, failed = ask(loaded, flows)
            known = {item.flow for item in shown if not item.source_error}
            groups, schemas = ask_groups(flows, known), ask_schemas(flows, known)
            console.clear()  # nothing unless it is a terminal
            console.print(f"{iso(time.time_ns() // 1_000_000)}, every {every_s:g} s; ^C ends it", style="dim")
            _show_all(console, shown, groups, schemas)
            show_failed(failed)
            time.sleep(every_s)
    except KeyboardInterrupt:
        return 0


def _as_json(item: FlowStatus, groups: FlowGroups | None, schemas: FlowSchemas | None) -> dict[str, Any]:
    flow = asdict(item) | {
        "consumer_groups": None if groups is None else groups.as_json(),
        "schemas": None if schemas is None else schemas.as_json(),
    }
    for row in flow["partitions"]:
        row["last_commit"] = iso(row["last_commit_ms"])
        row["held_back_since"] = iso(row["held_back_since_ms"])
    known = [row.lag_records for row in item.partitions if row.lag_records is not None]
    if flow["ended"]:
        flow["ended"]["at"] = iso(flow["ended"]["at_ms"])
    if flow["config_fault"]:
        flow["config_fault"] = {
            "detail": item.config_fault.detail if item.config_fault else "",
            "owner": flow["config_fault"]["owner"],
            "at_ms": flow["config_fault"]["at_ms"],
            "at": iso(flow["config_fault"]["at_ms"]),
        }
    if flow["kept_by"]:
        flow["kept_by"]["at"] = iso(flow["kept_by"]["at_ms"])
    for runner in flow["run_by"]:
        runner["since"] = iso(runner["since_ms"])
    return {**flow, "lag_records": None if item.source_error else sum(known), "lag_seconds": _largest_lag_s(item)}


def _show_all(
    console: Console,
    shown: Sequence[FlowStatus],
    groups: Mapping[str, FlowGroups],
    schemas: Mapping[str, FlowSchemas],
) -> None:
    from replicator.model.printable import printable

    now_ms = time.time_ns() // 1_000_000
    for item in shown:
        _show(console, item, now_ms)
        for line in groups[item.flow].lines() if item.flow in groups else ():
            print_wrapped(console, f"  {line}")
        for line in schemas[item.flow].lines() if item.flow in schemas else ():
            print_wrapped(console, f"  {printable(line)}")


def _show(console: Console, item: FlowStatus, now_ms: int) -> None:
    from rich.markup import escape

    console.print(f"{item.flow}: {item.source} → {item.target} ({item.delivery})", style="italic", soft_wrap=True)
    if item.partitions:
        console.print(_table(heading=True))
    for names, rows in groupby(item.partitions, lambda row: (row.source_topic, row.target_topic)):
        console.print(escape(" → ".join(names)), soft_wrap=True)
        table = _table()
        for row in rows:
            table.add_row(*_cells(row, now_ms))
        console.print(table)
    for row in item.partitions:
        if row.held_back_records:
            since = iso(row.held_back_since_ms) or "an unknown time"
            held = f"{row.source_topic}[{row.partition}]: {row.held_back_records} records"
            print_wrapped(console, f"  {held} wait behind a transaction that has been open at the source since {since}")
    # "paused" is said once for the flow or its topic; "kept" is no news
    told = [row for row in item.partitions if row.detail and row.state not in ("paused", "kept")]
    for (_, incident), rows in groupby(told, lambda row: (row.source_topic, row.incident)):
        _show_details(console, item.flow, incident, list(rows))
    if item.incident:
        from replicator.model.incident_kinds import advice_for

        print_wrapped(
            console,
            f"  the flow can't start: {item.incident}; {advice_for(item.incident, flow=item.flow)}",
            style="red",
        )
    gaps = _decided(item.signed_gaps)
    for line, _ in gaps[:GAPS_SHOWN]:
        print_wrapped(console, f"  {line}")
    if more := sum(partitions for _, partitions in gaps[GAPS_SHOWN:]):
        console.print(f"  and {more} more that were left out; --json has all of them")
    for line, _ in _decided(item.adoptions):
        print_wrapped(console, f"  {line}")
    for line in _runs(item):
        print_wrapped(console, f"  {line}")
    if item.heartbeat_ms is not None:
        age_s = max(0.0, (now_ms - item.heartbeat_ms) / 1000)
        console.print(f"  the newest heartbeat that was copied is {age_s:.1f} s old")
    for line in said_of(item.paused, item.rates, item.taken_out):
        print_wrapped(console, f"  {line}")
    for note in (*item.notes, item.other_settings):
        if note:
            print_wrapped(console, f"  {note}")


def _decided(decisions: Sequence[SignedGap | Adoption]) -> list[tuple[str, int]]:
    """Say what operators have decided, a line for those that differ by the partition only, with how many they are."""
    from replicator.model.counting import named

    partitions: dict[tuple[str, str], list[str]] = {}
    for it in decisions:
        partitions.setdefault((it.topic, it.said), []).append(f"[{it.partition}]")
    return [(f"{topic}{named(them)}: {said}", len(them)) for (topic, said), them in partitions.items()]


def said_of(paused: Mapping[str, Paused], rates: Mapping[str, RateLimit], taken_out: Collection[str] = ()) -> list[str]:
    """Say what is paused and limited, a line each. `taken_out`: topics of those that are no longer in the flow file."""

    def place(at: str) -> str:
        return f"{at} ({TAKEN_OUT})" if at in taken_out else at or "the flow"

    lines = [f"{place(at)} is {it.said}, since {iso(it.at_ms)}" for at, it in sorted(paused.items())]
    return lines + [f"{place(at)} is copied with {it.bound_said}" for at, it in sorted(rates.items())]


def _runs(item: FlowStatus) -> list[str]:
    """Say who runs the flow, and how it has ended."""
    lines = [f"run by {each.owner}" + (f" since {iso(each.since_ms)}" if each.since_ms else "") for each in item.run_by]
    if len(lines) > 1:
        lines = [f"{line}: {_shares(each)}" for line, each in zip(lines, item.run_by, strict=True)]
    if item.failed_over:
        lines.append(kept_said(item.kept_by))
    elif item.released_ms:
        lines.append(f"no process runs it: its positions were released at {iso(item.released_ms)}")
    if (end := item.ended) is not None:
        lines.append(
            f"it has ended at {iso(end.at_ms)} with {end.exit_code}, in the process {end.owner}, which goes on "
            f"with other flows and tries again: {end.detail}"
        )
    if (fault := item.config_fault) is not None:
        lines.append(
            f"the process {fault.owner} could not read the flow file again at {iso(fault.at_ms)}, and goes on with the "
            f"settings that it has: {fault.detail}"
        )
    return lines


def kept_said(kept: KeptPositions | None) -> str:
    """Say who keeps the positions of a flow that was failed over."""
    if kept is None:
        return "no process that runs it has committed its positions again yet: without one they expire"
    return f"its positions are kept by {kept.owner}, which has committed them last at {iso(kept.at_ms)}"


def _shares(runner: Runner) -> str:
    lanes = ", ".join(map(str, runner.lanes))
    within = "" if not lanes else f"{'lanes' if len(runner.lanes) > 1 else 'lane'} {lanes}, "
    return f"{within}{runner.partitions} partitions"


def _show_details(console: Console, flow: str, incident: str, rows: list[PartitionStatus]) -> None:
    """Show why partitions of a topic wait, or are stopped by the same kind of incident; then, once, what to do."""
    from replicator.inspect.flow_status import decided_said
    from replicator.model.commands import RECREATED
    from replicator.model.incident_kinds import advice_for, with_place_of_id

    for row in rows:
        where = row.source_topic if row.partition < 0 else f"{row.source_topic}[{row.partition}]"
        id_ = f" ({row.occurrence})" if row.occurrence else ""
        why = f"{incident}{id_}: {row.detail}" if incident else f"waits: {row.detail}"
        print_wrapped(console, f"  {where} {why}")
        if row.decided:
            print_wrapped(console, f"    decided: {decided_said(row.decided, row.decided_waits)}")
    if incident and not all(row.decided for row in rows):
        ids = [row.occurrence for row in rows if not row.decided] if len(rows) == 1 or incident in RECREATED else []
        only = next(filter(None, ids), "")
        print_wrapped(console, f"    {with_place_of_id(advice_for(incident, only), flow)}")


def _table(*, heading: bool = False) -> Table:
    """Make a table of the columns, as wide in each table as in the others: together they fit 80 columns."""
    from rich.table import Table

    table = Table(box=None, show_header=heading, header_style="bold", pad_edge=False, collapse_padding=True)
    for name, width in COLUMNS.items():
        table.add_column(name, justify="left" if name == "state" else "right", min_width=width, no_wrap=True)
    return table


def _cells(row: PartitionStatus, now_ms: int) -> list[str]:
    source = "-" if row.partition < 0 else str(row.partition)
    seconds = "-" if row.lag_seconds is None else f"{row.lag_seconds:.1f}"
    numbers = ["-" if value is None else f"{value}" for value in (row.position, row.source_end, row.lag_records)]
    colour = _COLOURS.get(row.state, "red")
    state = f"[{colour}]{row.state}[/]"
    return [source, *numbers, seconds, _age(now_ms, row.last_commit_ms), state]


def _age(now_ms: int, then_ms: int | None) -> str:
    """Say how long ago, in the largest unit of which there are two: what tells on a narrow screen."""
    if then_ms is None:
        return "-"
    age_s = max(0, now_ms - then_ms) // 1000
    unit, length_s = next((it for it in (("d", 86_400), ("h", 3_600), ("m", 60)) if age_s >= 2 * it[1]), ("s", 1))
    return f"{age_s // length_s} {unit} ago"


def _largest_lag_s(item: FlowStatus) -> float | None:
    known = [row.lag_seconds for row in item.partitions if row.lag_seconds is not None]
    return max(known, default=None)


def iso(milliseconds: int | None) -> str | None:
    """Write a time of ms since 1970 for people and machines, UTC; None for none."""
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

"""`eos-replicate position`: a flow's positions, shown and written to a file. They are set by `position_set`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.commands.position_set import set_
from cli.commands.status import TAKEN_OUT, iso
from cli.options import (
    ask_each,
    asked_flows,
    config_option,
    flow_options,
    log_to_stderr,
    one,
    patience_ms,
    print_found,
    print_json,
    say,
    show_failed,
)
from cli.partitions import partition_option
from cli.suggesting import SuggestingGroup

if TYPE_CHECKING:
    from replicator.inspect.positions import FlowPositions, HeldPosition
    from replicator.model.partition import Partition


@click.group(
    cls=SuggestingGroup,
    epilog="""\b
Examples:
  eos-replicate position show -c flows.yaml
  eos-replicate position export -c flows.yaml --output positions.json
  eos-replicate position set -c flows.yaml --partition orders:0 \\
      --offset 48210 --why "copied wrongly before"
""",
)
def position() -> None:
    """Show, export and set positions: the source offsets at which the copy of each partition goes on.

    They stand on the target, as committed offsets of the group eos-replicate.<flow>. Never move them with Kafka's own
    tools: a position without its evidence stops its partition.
    """


position.add_command(set_)


@position.command(
    epilog="""\b
Examples:
  eos-replicate position show -c flows.yaml
  eos-replicate position show -c flows.yaml --partition orders:0 --json

\b
Exit codes:
  0  shown
  2  the flow file or the command line is wrong, or the flow has no such
     partition
  3  the target cannot be reached, or a right is missing
  4  the flow's own topics are unreadable
""",
    short_help="Show where each partition stands, and who has it.",
)
@flow_options(partition_option("Only this source partition; may be given again."))
def show(path: Path, names: tuple[str, ...], partitions: tuple[Partition, ...], as_json: bool) -> int:
    """Show where each partition stands: position, owner and generation, when it was committed, and whose decision it
    rests on.

    Everything is read from the target; only the lag needs the source, and is left out where that can't be reached.
    """
    from replicator.inspect import positions

    found, failed = ask_each(
        asked_flows(path, names), lambda flow: positions.read(flow, partitions, connect_timeout_ms=patience_ms(flow))
    )
    if as_json:
        print_found([_as_json(it) for it in found.values()], failed)
    else:
        for it in found.values():
            _show(it)
    show_failed(failed)
    return max((error.exit_code for error in failed.values()), default=0)


@position.command(
    epilog="""\b
Examples:
  eos-replicate position export -c flows.yaml --output positions.json
  eos-replicate position export -c flows.yaml --flow orders \\
      --partition orders:0

\b
Exit codes:
  0  written
  2  the flow file or the command line is wrong, or the flow has no such
     partition
  3  the target cannot be reached, or a right is missing
  4  the flow's own topics are unreadable
""",
    short_help="Write the positions as JSON, for position set --file.",
)
@config_option
@click.option("--flow", "name", metavar="NAME", help="The flow; needed where the file has several.")
@partition_option("Only this source partition; may be given again.")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write there; default: stdout.")
def export(path: Path, name: str | None, partitions: tuple[Partition, ...], output: Path | None) -> None:
    """Write the positions as JSON, with the ids of the topics: `position set --file` takes no other topics for them.

    A partition without a position is left out. Positions move while the flow runs.
    """
    from replicator import config
    from replicator.inspect import positions

    log_to_stderr()
    flow = one(config.load(path, os.environ), path, name)
    found = positions.read(flow, partitions, connect_timeout_ms=patience_ms(flow))
    document = positions.exported(found, time.time_ns() // 1_000_000)
    if output is None:
        print_json(document)
        return
    try:
        output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(output), str(error.strerror)) from error
    for row in found.partitions:
        if row.position is None:
            say(f"left out: {row.topic}[{row.partition}]: {row.wrong}", err=True)


def _as_json(found: FlowPositions) -> dict[str, Any]:
    from dataclasses import asdict

    shown = asdict(found)
    for row in shown["partitions"]:
        row["committed"], row["moved"] = iso(row["committed_ms"]), iso(row["moved_ms"])
    return shown


def _show(found: FlowPositions) -> None:
    generation = "a generation that is being changed" if found.generation is None else f"generation {found.generation}"
    say(f"{found.flow}: {found.source} → {found.target}, {generation}" + (f" ({found.runs})" if found.runs else ""))
    for row in found.partitions:
        _show_row(row)
    for gap in found.signed_gaps:
        say(f"  {gap.topic}[{gap.partition}]: {gap.said}")
    for adopted in found.adoptions:
        say(f"  {adopted.topic}[{adopted.partition}]: {adopted.said}")
    if not found.partitions:
        say("  no partition was claimed yet")
    if found.source_error:
        say(f"  how far they are behind isn't known: {found.source_error}")


def _show_row(row: HeldPosition) -> None:
    taken_out = f" ({TAKEN_OUT})" if row.taken_out else ""
    say(f"  {row.topic}[{row.partition}] → {row.target_topic}{taken_out}")
    if row.position is None and row.lag_records is not None:
        say(f"    position    none, {row.lag_records} not copied", indent=16)
    if row.position is not None:
        lag = "" if row.lag_records is None else f" of {row.source_end}, {row.lag_records} not copied"
        say(f"    position    {row.position}{lag}", indent=16)
        say(f"    committed   {iso(row.committed_ms)}, generation {row.generation}, {_owner(row)}", indent=16)
        say(f"    topic ids   {row.source_topic_id} at the source, {row.target_topic_id} at the target", indent=16)
    if row.wrong:
        say(f"    {row.wrong}")


def _owner(row: HeldPosition) -> str:
    return "released" if row.owner is None else f"owned by {row.owner}"

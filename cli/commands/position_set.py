"""`eos-replicate position set`: an operator says where copying goes on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.commands.incident_resolve import decider
from cli.options import by_option, config_option, json_option, log_to_stderr, meant_option, one, print_json, say
from cli.partitions import partition_option

if TYPE_CHECKING:
    from replicator.jobs.position_plan import PlannedPosition
    from replicator.model.partition import Partition
    from replicator.state.exported_positions import WantedPosition

REFUSED = 1


@click.command(
    "set",
    epilog="""\b
Examples:
  eos-replicate position set -c flows.yaml --partition orders:0 \\
      --offset 48210 --why "copied wrongly before"
  eos-replicate position set -c flows.yaml --file positions.json \\
      --why "back to noon" --yes-i-mean orders

\b
Exit codes:
  0  set, or all positions are there already
  1  refused, or not confirmed, and nothing was written: a partition has no
     position, or has an incident that another position doesn't help
     against; the source has no such offset; a topic is another one, or a
     position or the target has changed since it was shown
  2  the flow file or the command line is wrong
  3  a cluster cannot be reached, or a right is missing
  4  the flow's own topics are lost or unreadable
  5  somebody runs the flow, or has taken it over meanwhile
""",
    short_help="Say where copying goes on, while the flow is stopped.",
)
@config_option
@click.option("--flow", "name", metavar="NAME", help="The flow; needed where the file has several.")
@partition_option("A source partition; may be given again, each with an --offset.")
@click.option(
    "--offset",
    "offsets",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="The source offset of the next record to copy, of the --partition in the same place.",
)
@click.option(
    "--file",
    "exported",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Positions as position export has written them.",
)
@click.option("--why", required=True, metavar="TEXT", help="The reason, for the record.")
@by_option
@click.option(
    "--take-over",
    is_flag=True,
    help="Also take the flow from a worker that holds it: the consequences are counted from its position by then.",
)
@meant_option
@json_option
def set_(
    path: Path,
    name: str | None,
    partitions: tuple[Partition, ...],
    offsets: tuple[int, ...],
    exported: Path | None,
    why: str,
    by: str | None,
    take_over: bool,
    meant: str | None,
    as_json: bool,
) -> int:
    """Say where copying goes on: at these source offsets, once the flow is started again.

    The flow must not run. It is shown what would be copied a second time, and what would be left out, before the name
    of the flow has to be typed. All positions are set in one transaction, or none, if all is still as it was shown.

    A position that goes back has records copied twice: readers of the target see them again, and nothing takes them
    away. One that goes forward leaves records out. Both are on record: `status` and `reconcile` say from then on which
    part of the target is the flow's copy.

    With --take-over the flow may run. Its workers copy on until they are fenced, so how much is copied again or left
    out is known only then, and said again. Refused is what anybody else has changed, before they are fenced if it is
    known by then.
    """
    import structlog

    from replicator import config, failpoints, logs
    from replicator.jobs.position_set import PositionSet, SetRequest
    from replicator.model.errors import UnknownOutcome
    from replicator.model.printable import printable

    if not why.strip():
        raise click.UsageError("say why (--why TEXT)")
    if as_json and meant is None:
        raise click.UsageError("--json asks nothing: name the flow with --yes-i-mean FLOW")
    log_to_stderr()
    flow = one(config.load(path, os.environ), path, name)
    if meant is not None and meant != flow.name:
        raise click.UsageError(f"--yes-i-mean {meant}: the flow is {flow.name}")
    wanted = _wanted(flow.name, partitions, offsets, exported)
    logs.configure("text", "warning")
    failpoint = failpoints.parse(os.environ.get(failpoints.VARIABLE, ""))
    request = SetRequest(wanted=wanted, by=decider(by), why=printable(why), take_over=take_over)
    job = PositionSet(flow, config.load(path, os.environ), request, structlog.get_logger(), failpoint)
    plan = job.plan()
    if not as_json:
        _show(flow.delivery.value, plan)
    if all(it.command is None and not it.moving for it in plan.values()):
        generation = None
    else:
        if meant is None and not confirmed(flow.name):
            say("not confirmed: nothing was changed", err=True)
            return REFUSED
        try:
            generation = job.apply(plan)
        except UnknownOutcome as error:
            raise UnknownOutcome(f"{error}. Whether it was done isn't known: position show says it") from error
    done = plan if generation is None else job.done
    if as_json:
        print_json({"flow": flow.name, "generation": generation, "partitions": [_as_json(it) for it in done.values()]})
    elif generation is not None:
        _show_done(plan, done)
        more = ", unless workers share it: they go on" if any(it.moving for it in plan.values()) else ""
        say(f"set, under generation {generation}; start the flow again{more}")
    return 0


def _wanted(
    flow: str, partitions: Sequence[Partition], offsets: Sequence[int], exported: Path | None
) -> Sequence[WantedPosition]:
    """Read the positions that the command line asks for. Raises UsageError, ConfigError."""
    from replicator.model.errors import ConfigError
    from replicator.state.exported_positions import WantedPosition, imported

    if exported is not None:
        if offsets:
            raise click.UsageError("--offset goes with --partition alone; with --file the file has it")
        try:
            document = json.loads(exported.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{exported} can't be read as JSON: {error}") from error
        found = [it for it in imported(document, flow, str(exported)) if not partitions or it.source in partitions]
        missing = sorted(set(partitions) - {it.source for it in found})
        if missing:
            raise ConfigError(f"{exported} has no position of {', '.join(map(str, missing))}")
    else:
        if not partitions or len(partitions) != len(offsets):
            raise click.UsageError(
                "say which positions: --partition TOPIC:NUMBER with an --offset each, or --file FILE"
            )
        found = [WantedPosition(source=at, offset=to) for at, to in zip(partitions, offsets, strict=True)]
    twice = sorted({str(it.source) for it in found if sum(it.source == other.source for other in found) > 1})
    if twice:
        raise click.UsageError(f"{', '.join(twice)} is named twice")
    return found


def confirmed(flow: str, what: str = "") -> bool:
    """Ask for the flow's name, after a line that says `what` will be done. The end of the input is no answer; an
    interrupt ends the command."""
    if what:
        say(what, err=True)
    click.echo(f"Type {flow} to go on: ", nl=False, err=True)
    typed = "" if sys.stdin is None else sys.stdin.readline()
    if not typed:
        click.echo(err=True)
    return typed.strip() == flow


def _show_rows(plan: Mapping[Partition, PlannedPosition]) -> None:
    for at, it in sorted(plan.items()):
        say(f"{at} → {it.target}: {it.before.offset} → {it.after}")
        for line in consequences(it):
            say(f"  {line}")


def _show_done(shown: Mapping[Partition, PlannedPosition], done: Mapping[Partition, PlannedPosition]) -> None:
    """Show what was done of partitions that have gone on since they were shown."""
    others = {at: it for at, it in done.items() if it.before.offset != shown[at].before.offset}
    if others:
        say("Behind the fence:")
        _show_rows(others)


def _show(delivery: str, plan: Mapping[Partition, PlannedPosition]) -> None:
    from replicator.model.commands import Command

    _show_rows(plan)
    if any(it.moving for it in plan.values()):
        say(
            "A worker has the flow, and copies on until it is fenced. The records that are copied again or left out "
            "are counted from its position by then; all that it has copied from the offset on that you set is copied "
            "again."
        )
    adopted = [it for it in plan.values() if it.command is Command.ADOPT]
    if adopted:
        say("The records that these target partitions have now are not compared any more: reconcile begins after them.")
    if delivery != "exactly_once" and any(it.command is not None for it in plan.values()):
        say(f"With delivery {delivery} records that a stopped worker has sent may still arrive on the target.")


def consequences(it: PlannedPosition) -> list[str]:
    """Say what becomes of one partition, in sentences."""
    from replicator.model.commands import Command

    if it.command is None:
        return ["stands there already"]
    lines = []
    if it.copied_again:
        last = it.before.offset - 1
        lines.append(
            f"source offsets {it.after} to {last} are copied again: up to {it.copied_again} records stand on the "
            "target twice"
        )
    if it.left_out and it.command is Command.SKIP:
        lines.append(
            f"source offsets {it.before.offset} to {it.after - 1} are left out: up to {it.left_out} records are never "
            "copied"
        )
    elif it.command is Command.ADOPT and not it.copied_again:
        lines.append(
            f"the target has committed records after those that the position covers: they count as the copy of "
            f"everything before source offset {it.after}"
        )
        lines.append(
            f"if they are copies of source records from offset {it.after} on, these are copied a second time: set the "
            "offset after the last of them"
        )
    return lines


def _as_json(it: PlannedPosition) -> dict[str, Any]:
    recorded = None if it.command is None else "signed_gap" if it.command.moves else "adoption"
    return {
        "topic": it.source.topic,
        "partition": it.source.partition,
        "target_topic": it.target.topic,
        "before": it.before.offset,
        "after": it.after,
        "copied_again": it.copied_again,
        "left_out": it.left_out,
        "recorded_as": recorded,
    }

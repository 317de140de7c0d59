"""`eos-replicate adopt-mm2`: a flow goes on where MirrorMaker 2 has ended."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.commands.incident_resolve import decider
from cli.commands.position_set import REFUSED, confirmed
from cli.commands.status import iso
from cli.options import by_option, config_option, json_option, log_to_stderr, meant_option, one, print_json, say

if TYPE_CHECKING:
    from replicator.jobs.mm2.adoption import AdoptionPlan, Mm2Adoption
    from replicator.jobs.mm2.sides import AdoptedPartition
    from replicator.planes.contract import WholeRecord

WHY = "copied by MirrorMaker 2 before"
KEY_CHARACTERS_MAX = 40


@click.command(
    "adopt-mm2",
    epilog="""\b
Examples:
  eos-replicate adopt-mm2 -c flows.yaml --flow orders \\
      --connect-offsets mm2-offsets.east.internal --dry-run
  eos-replicate adopt-mm2 -c flows.yaml --flow orders \\
      --connect-offsets mm2-offsets.east.internal --yes-i-mean orders
  eos-replicate adopt-mm2 -c flows.yaml --flow orders --alias east

\b
Exit codes:
  0  adopted; with --dry-run: it could be
  1  refused, or not confirmed, and nothing was written: the records don't
     tell where the copy of a partition ends, MirrorMaker 2 still runs, a
     transaction is open on the target, the flow has begun to copy all of
     it, or one side has changed since it was shown
  2  the flow file or the command line is wrong, the offsets are those of
     another connector, or the flow selects MirrorMaker 2's own topics
  3  a cluster cannot be reached, or a right is missing
  4  the flow's own topics are lost or unreadable
  5  somebody runs the flow, or has taken it over meanwhile
""",
    short_help="Go on where MirrorMaker 2 has ended.",
)
@config_option
@click.option("--flow", "name", metavar="NAME", help="The flow; needed where the file has several.")
@click.option(
    "--connect-offsets",
    "topic",
    metavar="TOPIC",
    help="Kafka Connect's offsets topic, on the target. Without it the records alone tell where the copies end.",
)
@click.option("--connector", metavar="NAME", default="MirrorSourceConnector", show_default=True, help="Whose offsets.")
@click.option(
    "--alias", metavar="NAME", help="MirrorMaker 2's alias of the source. Default: the only one that has offsets."
)
@click.option(
    "--connect-group",
    "group",
    metavar="GROUP",
    help="The group of MirrorMaker 2's workers, which must have no members. Default: ALIAS-mm2, of its dedicated mode.",
)
@click.option(
    "--compare",
    type=click.IntRange(min=1, max=100_000),
    default=1_000,
    show_default=True,
    metavar="RECORDS",
    help="How many of the last records of each target partition are looked for at the source.",
)
@click.option(
    "--trust-offsets",
    "trust",
    is_flag=True,
    help="Take Connect's offset where there is nothing to compare, or equal records stand at several offsets. Only for "
    "a MirrorMaker 2 that ran with exactly-once support.",
)
@click.option("--take-over", is_flag=True, help="Also take the flow from a worker that holds it.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@click.option("--why", default=WHY, show_default=True, metavar="TEXT", help="The reason, for the record.")
@by_option
@meant_option
@json_option
def adopt_mm2(
    path: Path,
    name: str | None,
    topic: str | None,
    connector: str,
    alias: str | None,
    group: str | None,
    compare: int,
    trust: bool,
    take_over: bool,
    dry_run: bool,
    why: str,
    by: str | None,
    meant: str | None,
    as_json: bool,
) -> int:
    """Have a flow go on where MirrorMaker 2 has ended, without copying anything again.

    MirrorMaker 2 must be stopped. The last records of each target partition are looked for at the source: the copy ends
    behind the furthest one, whatever MirrorMaker 2 had copied twice. Connect's offsets must not contradict that. Where
    it can't be told of one partition, nothing is written of any.

    Partitions that the flow has begun to copy go on where they are. All positions are written in one transaction, with
    who has decided it and why: `position show` and `status` name them as adopted. Start the flow afterwards.
    """
    import structlog

    from replicator import config, failpoints, logs
    from replicator.jobs.mm2.adoption import AdoptionRequest, Mm2Adoption
    from replicator.model.printable import printable

    if as_json and meant is None and not dry_run:
        raise click.UsageError("--json asks nothing: name the flow with --yes-i-mean FLOW")
    if trust and topic is None:
        raise click.UsageError("--trust-offsets: there are none without --connect-offsets")
    log_to_stderr()
    loaded = config.load(path, os.environ)
    flow = one(loaded, path, name)
    if meant is not None and meant != flow.name:
        raise click.UsageError(f"--yes-i-mean {meant}: the flow is {flow.name}")
    logs.configure("text", "warning")
    request = AdoptionRequest(
        by=decider(by),
        why=printable(why),
        connect_offsets=topic,
        connector=connector,
        alias=alias,
        group=group,
        compare=compare,
        trust=trust,
        take_over=take_over,
    )
    failpoint = failpoints.parse(os.environ.get(failpoints.VARIABLE, ""))
    adoption = Mm2Adoption(flow, loaded, request, structlog.get_logger(), failpoint)
    plan = adoption.plan()
    if not as_json:
        _show(plan, flow.start.kind)
    generation = None
    if not dry_run:
        if meant is None and not confirmed(flow.name):
            say("not confirmed: nothing was written", err=True)
            return REFUSED
        generation = _applied(adoption, plan)
    if as_json:
        print_json(_as_json(flow.name, plan, generation))
    elif generation is None:
        say("nothing was written (--dry-run)")
    else:
        say(f"adopted, under generation {generation}; start the flow")
    return 0


def _applied(adoption: Mm2Adoption, plan: AdoptionPlan) -> int:
    from replicator.model.errors import UnknownOutcome

    try:
        return adoption.apply(plan)
    except UnknownOutcome as error:
        raise UnknownOutcome(f"{error}. Whether it was done isn't known: position show says it") from error


def _show(plan: AdoptionPlan, start: str) -> None:
    for at, it in plan.partitions.items():
        say(f"{at} → {it.sides.target}: goes on at source offset {it.end}")
        for line in said(it):
            say(f"  {line}")
    for at in plan.begun:
        say(f"{at}: the flow has begun to copy it, and goes on where it is")
    for at in plan.empty:
        say(f"{at}: nothing was copied of it; it begins as the flow says (start: {start})")
    if plan.unselected:
        say(f"MirrorMaker 2 has copied topics that the flow doesn't select: {', '.join(plan.unselected)}")
    say(
        f"group {plan.group} has no members, or isn't there: MirrorMaker 2 doesn't run, if that is its group (--alias, "
        "--connect-group)"
    )


def said(it: AdoptedPartition) -> Sequence[str]:
    """Say what stands on both sides of the place where one partition goes on, in sentences."""
    lines = []
    if it.seam is None and it.last is None:
        lines.append("all that was written to the target was aborted: nothing was copied")
    elif it.seam is None:
        lines.append("nothing was compared: the offset is Connect's")
    else:
        lines.append(f"{it.seam.compared} records of the target were recognized at the source")
    if it.source_record is not None:
        lines.append(f"copied:      source offset {it.end - 1}, {_record(it.source_record)}")
    if it.target_record is not None:
        offset, record = it.target_record
        lines.append(f"last of the target: offset {offset}" + ("" if record is None else f", {_record(record)}"))
    following = f"source offset {it.next_offset}" if it.next_offset >= 0 else "none yet"
    if it.seam is not None:
        lines.append(f"copied next: {following}")
    if it.behind_connect:
        lines.append(f"Connect's offset is {it.last}: what is behind it was copied before MirrorMaker 2 was killed")
    if it.seam is not None and it.seam.said:
        lines.append(f"MirrorMaker 2: {it.seam.said}")
    return lines


def _record(record: WholeRecord) -> str:
    from replicator.model.printable import printable

    key = "no key" if record.key is None else f"key {printable(record.key.decode(errors='replace'))}"
    shortened = key if len(key) <= KEY_CHARACTERS_MAX else key[:KEY_CHARACTERS_MAX] + "…"
    return f"{shortened}, time {iso(record.timestamp_ms)}"


def _as_json(flow: str, plan: AdoptionPlan, generation: int | None) -> dict[str, Any]:
    rows = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "target_topic": it.sides.target.topic,
            "position": it.end,
            "connect_offset": it.last,
            "compared": None if it.seam is None else it.seam.compared,
            "doubled": [] if it.seam is None else [list(span) for span in it.seam.doubled],
            "target_last": None if it.target_record is None else it.target_record[0],
            "next_source_offset": None if it.next_offset < 0 else it.next_offset,
        }
        for at, it in plan.partitions.items()
    ]
    return {
        "flow": flow,
        "generation": generation,
        "partitions": rows,
        "begun": [{"topic": at.topic, "partition": at.partition} for at in plan.begun],
        "empty": [{"topic": at.topic, "partition": at.partition} for at in plan.empty],
        "unselected": list(plan.unselected),
    }

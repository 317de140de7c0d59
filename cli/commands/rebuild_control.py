"""`eos-replicate rebuild-control`: make a flow's control topic anew that was deleted, or has lost records."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.commands.position_set import confirmed
from cli.options import (
    config_option,
    json_option,
    log_to_stderr,
    meant_option,
    named,
    one,
    patience_ms,
    print_json,
    say,
    split,
)

if TYPE_CHECKING:
    from replicator.flow.rebuilding import RebuildPlan

REFUSED = 1


@click.command(
    epilog="""\b
Examples:
  eos-replicate rebuild-control -c flows.yaml --dry-run
  eos-replicate rebuild-control -c flows.yaml --flow orders

\b
Exit codes:
  0  rebuilt, or shown with --dry-run
  1  refused, or not confirmed, and nothing was changed: nothing is lost,
     the flow's data on the target contradict each other, or the flow may be
     failed over
  2  the flow file or the command line is wrong, or the flow has never copied
     a topic that is named
  3  a cluster cannot be reached, or a right is missing
  4  the claims topic is lost, or a topic of the flow unreadable or unfit
  5  somebody runs the flow, or writes its control topic all the time
""",
    short_help="Make the control topic anew that was lost.",
)
@config_option
@click.option("--flow", "name", metavar="NAME", help="The flow; needed where the file has several.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@click.option("--take-over", is_flag=True, help="Also take the flow from a worker that holds it, perhaps a dead one.")
@click.option(
    "--failover-was-undone",
    is_flag=True,
    help="The flow, which was failed over once, isn't now: its applications don't write to the target.",
)
@click.option(
    "--failed-over",
    "whole",
    is_flag=True,
    help="The flow is failed over still: nothing of it is copied until failover --undo.",
)
@click.option(
    "--failed-over-topics",
    "topics",
    multiple=True,
    metavar="NAME[,NAME]",
    callback=named,
    help="These source topics are failed over still: nothing of them is copied until failover --undo --topics.",
)
@meant_option
@json_option
def rebuild_control(
    path: Path,
    name: str | None,
    dry_run: bool,
    take_over: bool,
    failover_was_undone: bool,
    whole: bool,
    topics: tuple[str, ...],
    meant: str | None,
    as_json: bool,
) -> int:
    """Rebuild a flow's control topic that was deleted, or has lost records, from the flow's other data on the target.

    The flow must not run. The command reads everything that names a generation: claims, positions, and the flow's
    transactional ids, as all brokers list them. It fences every such id, so that no process of the flow that may still
    run copies anything, and then opens a generation above all of them. Start the flow after that as ever: it goes on
    from its positions, exactly once.

    The command names the information that only the lost topic had, and doesn't restore it. If the flow's data
    contradict each other, nothing is done.
    """
    from replicator import config, failpoints
    from replicator.flow.rebuilding import ControlRebuild
    from replicator.state.control_rebuild import StillFailedOver

    if as_json and meant is None and not dry_run:
        raise click.UsageError("--json asks nothing: name the flow with --yes-i-mean FLOW, or use --dry-run")
    if failover_was_undone and (whole or topics):
        raise click.UsageError("--failover-was-undone contradicts --failed-over and --failed-over-topics")
    log_to_stderr()
    flow = one(config.load(path, os.environ), path, name)
    if meant is not None and meant != flow.name:
        raise click.UsageError(f"--yes-i-mean {meant}: the flow is {flow.name}")
    rebuild = ControlRebuild(
        flow,
        take_over=take_over,
        failover_undone=failover_was_undone,
        still=StillFailedOver(whole, split(topics)),
        failpoint=failpoints.parse(os.environ.get(failpoints.VARIABLE, "")),
        connect_timeout_ms=patience_ms(flow),
    )
    plan = rebuild.look()
    if not as_json:
        _show(flow.name, plan, to_ask=not dry_run)
    if not dry_run:
        if meant is None and not confirmed(flow.name):
            say("not confirmed: nothing was changed", err=True)
            return REFUSED
        rebuild.rebuild(plan)
    if as_json:
        print_json({"flow": flow.name, "rebuilt": not dry_run, **_as_json(plan)})
    elif dry_run:
        say(f"{flow.name}: nothing was changed (--dry-run)")
    else:
        say(f"{flow.name}: rebuilt; generation {plan.made.opened.number} is open. Start the flow again")
    return 0


def _as_json(plan: RebuildPlan) -> dict[str, Any]:
    from replicator.state.control_rebuild import NOT_RESTORED
    from replicator.state.generation import Kind

    made = plan.made
    return {
        "lost": made.lost,
        "generation": made.opened.number,
        "lanes": made.opened.lanes,
        "partitions": dict(made.opened.partitions),
        "failed_over": made.opened.kind is Kind.FROZEN,
        "failed_over_topics": sorted(made.opened.failed_over),
        "fenced": [{"generation": it.number, "lanes": it.lanes} for it in made.earlier],
        "claims": plan.claims,
        "positions": plan.positions,
        "transactional_ids": plan.ids,
        "not_restored": list(NOT_RESTORED),
    }


def _show(flow: str, plan: RebuildPlan, *, to_ask: bool) -> None:
    """Show what would be done. `to_ask`: beside the question, on standard error, so that standard output has the result
    alone, which isn't written before it is done."""
    from replicator.model.counting import counted
    from replicator.state.control_rebuild import NOT_RESTORED
    from replicator.state.generation import Kind

    made, echo = plan.made, partial(say, err=to_ask)
    stands = ", ".join(
        (counted(plan.claims, "claim"), counted(plan.positions, "position"), counted(plan.ids, "transactional id"))
    )
    echo(f"The control topic of {flow} is lost: {made.lost}. On the target stand {stands}.")
    if made.earlier:
        earlier = ", ".join(f"{it.number} ({counted(it.lanes, 'lane')})" for it in made.earlier)
        echo(f"Generations that are fenced: {earlier}")
    echo(f"Opened is generation {made.opened.number} with {counted(made.opened.lanes, 'lane')}.")
    if made.opened.kind is Kind.FROZEN:
        echo("The flow stays failed over: nothing is copied until failover --undo.")
    if made.opened.failed_over:
        listed = ", ".join(sorted(made.opened.failed_over))
        echo(f"Topics that stay failed over, until failover --undo --topics: {listed}")
    echo("Not restored:")
    for what in NOT_RESTORED:
        echo(f"  {what}")

"""`eos-replicate failover`: the source is gone, and consumers go on at the target."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.commands.incident_resolve import decider
from cli.commands.position_set import confirmed
from cli.options import (
    config_option,
    console_for_people,
    json_option,
    log_to_stderr,
    one,
    patience_ms,
    print_json,
    print_wrapped,
)

if TYPE_CHECKING:
    from rich.console import Console

    from replicator.failover.verdict import FailoverVerdict

EPILOG = """\b
Examples:
  eos-replicate failover -c flows.yaml --flow orders --rehearse
  eos-replicate failover -c flows.yaml --flow orders --out verdict.json
  eos-replicate failover -c flows.yaml --flow orders --yes-i-mean orders
  eos-replicate failover -c flows.yaml --flow orders --undo

\b
Exit codes:
  0    done, or rehearsed; all is there that the source had when its ends
       were noted last
  1    done, or rehearsed; the target lacks something, or that isn't known;
       or it was not confirmed
  2    the flow file or the command line is wrong; the flow has never run
  3    the target cannot be reached, or a right is missing
  4    the flow's own topics are lost or unreadable
  5    a backfill or repair has the flow
  130  interrupted: the same command, or --undo, goes on from there
"""
ROWS_SHOWN = 50


@click.command(epilog=EPILOG)
@config_option
@click.option("--flow", "name", default=None, metavar="NAME", help="The flow; needed where there are several.")
@click.option("--rehearse", is_flag=True, help="Change nothing: say what the verdict would be now.")
@click.option("--undo", is_flag=True, help="Have the flow run again from its positions.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the verdict as JSON."
)
@click.option("--by", default=None, metavar="NAME", help="Who decides. Default: the user and host.")
@click.option("--yes-i-mean", "meant", metavar="FLOW", help="The flow's name again: don't ask for it.")
@json_option
def failover(
    path: Path,
    name: str | None,
    rehearse: bool,
    undo: bool,
    out: Path | None,
    by: str | None,
    meant: str | None,
    as_json: bool,
) -> int:
    """The source is gone: stop a flow for good, and say what the target has.

    All workers are fenced, and whoever starts the flow again copies nothing and keeps its positions, until --undo. The
    source is not asked for anything. The verdict says for each partition what is known not to be copied, and where
    consumer groups stand; it can't know what was written at the source after its ends were noted last.
    """
    from replicator import config
    from replicator.failover.failover import FailoverRun
    from replicator.flow.topics import ControlPlane

    log_to_stderr()
    flow = one(config.load(path, os.environ), path, name)
    if rehearse and undo:
        raise click.UsageError("--rehearse changes nothing, --undo does: one of them")
    if meant is not None and meant != flow.name:
        raise click.UsageError(f"--yes-i-mean {meant}: the flow is {flow.name}")
    if not rehearse and meant is None and (as_json or not confirmed(flow.name)):
        click.echo("not confirmed: nothing was changed (--yes-i-mean FLOW does without being asked)", err=True)
        return 1
    with ControlPlane(flow, connect_timeout_ms=patience_ms(flow)) as plane:
        plane.target.connect()
        run = FailoverRun(flow, plane, decider(by), lambda text: click.echo(text, err=True))
        if undo:
            opened = run.undo()
            said = {"flow": flow.name, "generation": opened.number if opened is not None else None}
            text = "is not failed over" if opened is None else f"runs again, under generation {said['generation']}"
            print_json(said) if as_json else click.echo(f"{flow.name} {text}")
            return 0
        verdict = run.rehearse() if rehearse else run.run()
    if out is not None:
        _write(out, verdict)
    if as_json:
        print_json(verdict.as_json())
    else:
        show(console_for_people(), verdict)
    return 0 if verdict.complete else 1


def _write(out: Path, verdict: FailoverVerdict) -> None:
    """As a whole or not at all."""
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    draft.write_text(json.dumps(verdict.as_json(), indent=2) + "\n")
    draft.replace(out)


def show(console: Console, verdict: FailoverVerdict) -> None:
    """The verdict for people: first what is lacking."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from replicator.model.counting import counted

    state = "rehearsed, nothing was changed" if verdict.generation is None else f"failed over ({verdict.generation})"
    console.print(f"[bold]{escape(verdict.flow)}[/]: {escape(verdict.source)} → {escape(verdict.target)}, {state}")
    lacking = [it for it in verdict.partitions if not it.complete]
    print_wrapped(console, _headline(verdict))
    if lacking:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("source partition", overflow="fold")
        for heading in ("copied up to", "source ended at", "not copied, at least"):
            table.add_column(heading, justify="right")
        for it in lacking[:ROWS_SHOWN]:
            numbers = (it.position, it.end_seen, it.not_copied)
            table.add_row(escape(str(it.source)), *("-" if each is None else f"{each:,}" for each in numbers))
        console.print(table)
        if len(lacking) > ROWS_SHOWN:
            console.print(f"and {len(lacking) - ROWS_SHOWN:,} more; --json and --out have all of them")
    for row in verdict.partitions:
        if row.problem:
            print_wrapped(console, f"  {row.source}: {row.problem}")
    if verdict.groups:
        console.print(f"{counted(len(verdict.groups), 'consumer group')} at the target:")
    for group in verdict.groups[:ROWS_SHOWN]:
        said = [f"{counted(group.synced, 'partition')} as synced last"]
        said += [f"{group.others} committed by somebody else"] if group.others else []
        said += [f"{group.unanswered} without an answer to the last commit"] if group.unanswered else []
        said += ["it has members"] if group.has_members else []
        print_wrapped(console, f"  {group.group}: {', '.join(said)}")
    console.print(f"sha256 {verdict.digest}", soft_wrap=True)


def _headline(verdict: FailoverVerdict) -> str:
    from replicator.model.counting import counted

    if not verdict.ends_seen_ms:
        return (
            "Where the source ended was never noted, because the flow has no groups.include: what is not copied isn't "
            "known."
        )
    seen = datetime.fromtimestamp(verdict.ends_seen_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    later = f"What was written at the source after {seen} isn't known."
    if verdict.complete:
        return f"All is copied that the source had at {seen}. {later}"
    unknown = f", and of {counted(verdict.unknown, 'partition')} it isn't known" if verdict.unknown else ""
    return f"At least {counted(verdict.not_copied, 'source offset')} are not copied{unknown}. {later}"

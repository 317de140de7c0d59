"""`eos-replicate incident`: what needs a decision. That is made by `incident_resolve`."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.commands.incident_resolve import resolve
from cli.commands.status import ask, iso
from cli.options import apart, chosen, flow_options, log_to_stderr, print_json, say, show_failed, wrapped
from cli.suggesting import SuggestingGroup

if TYPE_CHECKING:
    from replicator.inspect.flow_status import FlowStatus
    from replicator.inspect.incidents import OpenIncident
    from replicator.model.errors import ReplicatorError

WIDTH = 80
TYPED = ("eos-replicate ", "kafka-transactions.sh ")
OPEN, NO_SUCH = 4, 1
NOT_FOUND_YET = "No worker has found this yet. Run the flow before you decide: the id stays valid"


@click.group(
    cls=SuggestingGroup,
    epilog="""\b
Examples:
  eos-replicate incident list -c flows.yaml
  eos-replicate incident show 3f2a9c1d8e70 -c flows.yaml
  eos-replicate incident resolve 3f2a9c1d8e70 --retry -c flows.yaml
""",
)
def incident() -> None:
    """Show incidents, which keep partitions from being copied until somebody does something, and decide about them.

    Each call asks both clusters again, as `status` does, whether the flows run or not.
    """


incident.add_command(resolve)


@incident.command(
    "list",
    epilog="""\b
Examples:
  eos-replicate incident list -c flows.yaml
  eos-replicate incident list -c flows.yaml --flow orders --json

\b
Exit codes:
  0  no incident is open
  2  the flow file is wrong
  3  the incidents of a flow can't all be known: a cluster cannot be reached,
     or a right is missing; while the source doesn't answer, those that
     workers have found are listed
  4  one or more incidents are open
""",
    short_help="List the incidents that are open now.",
)
@flow_options()
def list_(path: Path, names: tuple[str, ...], as_json: bool) -> int:
    """List the incidents that are open now.

    Each has an id. An incident gets another id when a worker has found it; the former id stays valid as long as the
    facts are the same. `incident show` prints the commands that apply. An incident with partition -1 concerns a whole
    topic, and one without topic the whole flow.
    """
    shown, found, failed = _find(path, names)
    if as_json:
        print_json({"incidents": [_as_json(it) for it in found], "errors": _errors(failed)})
    else:
        _show_list(shown, found)
    show_failed(failed)
    return max((failure.exit_code for failure in failed.values()), default=OPEN if found else 0)


@incident.command(
    epilog="""\b
Examples:
  eos-replicate incident show 3f2a9c1d8e70 -c flows.yaml
  eos-replicate incident show 3f2a -c flows.yaml --json

\b
Exit codes:
  0  shown
  1  no incident with this id is open, or the id's beginning fits several
  2  the flow file is wrong
  3  it is not known: a cluster cannot be reached, or a right is missing
""",
    short_help="Show one incident: what was found, what it means, what to do.",
)
@click.argument("id_", metavar="ID")
@flow_options()
def show(id_: str, path: Path, names: tuple[str, ...], as_json: bool) -> int:
    """Show one incident: what was found, what it means, what to do.

    ID is that of `incident list`, or its beginning. If an id isn't found any more, the incident is closed or its facts
    have changed: `incident list` has the new one.
    """
    from replicator.inspect.incidents import matching

    _, found, failed = _find(path, names)
    fitting = matching(found, id_)
    if len(fitting) == 1:
        (it,) = fitting
        if as_json:
            print_json(_as_json(it))
        else:
            _show_one(it, path)
        return 0
    show_failed(failed)
    known = ", ".join(it.id for it in fitting or found) or "none"
    why = f"several ids begin with {id_}" if fitting else f"no open incident has the id {id_}; open"
    say(f"error: {why}: {known}", err=True)
    return max((failure.exit_code for failure in failed.values()), default=NO_SUCH)


def _find(path: Path, names: Sequence[str]) -> tuple[list[FlowStatus], list[OpenIncident], dict[str, ReplicatorError]]:
    """Find the status of each flow of which it is known, all incidents, and why nothing is known of the others."""
    from replicator import config
    from replicator.inspect.incidents import open_incidents

    log_to_stderr()
    loaded = config.load(path, os.environ)
    shown, failed = ask(loaded, chosen(loaded, path, names))
    return shown, [it for status in shown for it in open_incidents(status)], failed


def _errors(failed: dict[str, ReplicatorError]) -> dict[str, str]:
    return {name: str(failure) for name, failure in failed.items()}


def _as_json(it: OpenIncident) -> dict[str, Any]:
    last_commit = iso(it.last_commit_ms)
    return {
        **asdict(it),
        "last_commit": last_commit,
        "found": it.found,
        "means": it.means,
        "advice": it.advice,
        "commands": [*it.commands],
    }


def _show_list(shown: Sequence[FlowStatus], found: Sequence[OpenIncident]) -> None:
    for flow, of_flow in groupby(found, lambda it: it.flow):
        say(f"{flow}:")
        for it in of_flow:
            at = "" if it.position is None else f" at {it.position}"
            say(f"  {it.id}  {it.name:<27}  {it.where}{at}")
            if it.decided:
                say(f"      decided: {it.decided_said}")
    flows = {it.flow for it in found}
    for status in shown:
        if status.flow not in flows:
            say(f"{status.flow}: none" + (" is written down at the target" if status.source_error else ""))


def _show_one(it: OpenIncident, path: Path) -> None:
    say(f"{it.id}  {it.name}")
    end = "" if it.source_end is None else f" of {it.source_end}"
    behind = "" if it.lag_records is None else f", {it.lag_records} not copied"
    rows = {
        "flow": it.flow,
        "stopped": it.where + (f" → {it.target_topic}" if it.target_topic else ""),
        "position": "" if it.position is None else f"{it.position}{end}{behind}",
        "last commit": iso(it.last_commit_ms) or "",
        "found": it.detail,
        "in general": it.found,
        "means": it.means,
        "do": it.advice,
        "first": NOT_FOUND_YET if it.undecidable_yet else "",
        "decided": it.decided_said,
    }
    for name, text in rows.items():
        if text:
            first, *others = apart(text) if name == "do" else [text]
            click.echo(wrapped(f"  {name:<11}  {first}", WIDTH, indent=15))
            for part in others:
                click.echo(
                    _typed(part.replace(" -c FILE", f" -c {path}"))
                    if part.startswith(TYPED)
                    else wrapped(f"{' ' * 15}{part}", WIDTH, indent=15)
                )
    for number, command in enumerate(it.typed):
        click.echo(_typed(f"eos-replicate {command} -c {path}", "" if number else "commands"))


def _typed(command: str, name: str = "") -> str:
    """Write a command in lines that can be copied as they stand: the shell takes them for one."""
    lines = textwrap.wrap(command, WIDTH - 17, break_long_words=False, break_on_hyphens=False)
    return f"  {name:<11}  " + f" \\\n{' ' * 17}".join(lines)

"""`eos-replicate apply`: have a flow run with a flow file's settings, also of one that it has had before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import config_option, json_option, log_to_stderr, one, patience_ms, print_json, say

if TYPE_CHECKING:
    from replicator.flow.applying import AppliedSettings

EPILOG = """\b
Examples:
  eos-replicate apply -c flows.yaml --dry-run
  eos-replicate apply -c flows.yaml --flow orders

\b
Exit codes:
  0  the flow has these settings now, or had them
  2  the flow file or the command line is wrong, or the flow has never run
  3  a cluster cannot be reached, or a right is missing
  4  the flow's own topics are lost or unreadable
  5  a backfill or repair has the flow, or somebody else writes its control
     topic all the time
"""


@click.command(epilog=EPILOG, short_help="Have workers run with a flow file that the flow has had before.")
@config_option
@click.option("--flow", "name", default=None, metavar="NAME", help="The flow; needed where there are several.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@json_option
def apply(path: Path, name: str | None, dry_run: bool, as_json: bool) -> int:
    """Have the workers that share a flow run with this file's settings.

    A file that is new to the flow needs no command: the first worker that starts with it has all others follow. One
    that the flow has had before, such as the former version after a mistake, is taken as older, and changes nothing
    until it is applied. All workers take it up within seconds; none is
    restarted. A process that runs the flow alone (run --standalone) keeps to its own file, and is thrown out.
    """
    from replicator import config, failpoints
    from replicator.flow.applying import apply_settings

    log_to_stderr()
    flow = one(config.load(path, os.environ), path, name)
    failpoint = failpoints.parse(os.environ.get(failpoints.VARIABLE, ""))
    found = apply_settings(flow, patience_ms(flow), dry_run=dry_run, failpoint=failpoint)
    if as_json:
        differs = {
            key: {"before": before or None, "after": after or None} for key, (before, after) in found.differs.items()
        }
        shown = {"generation": found.generation, "opened": found.opened, "workers": found.workers, "differs": differs}
        print_json({"flow": flow.name, **shown})
    else:
        _show(flow.name, found, dry_run)
    return 0


def _show(flow: str, found: AppliedSettings, dry_run: bool) -> None:
    for key, (before, after) in found.differs.items():
        say(f"{key}: {before or 'default'} → {after or 'default'}")
    if found.generation is not None and not found.opened:
        say(f"{flow}: generation {found.generation} has these settings")
    elif dry_run:
        say(f"{flow}: nothing was changed (--dry-run)")
    else:
        who = "1 worker follows" if found.workers == 1 else f"{found.workers} workers follow"
        say(f"{flow}: generation {found.generation} is open with these settings; {who}")

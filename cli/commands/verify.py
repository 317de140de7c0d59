"""`eos-replicate verify`: does each copy stand where the flow's offset map says?"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import (
    config_option,
    console_for_people,
    json_option,
    one,
    patience_ms,
    print_json,
    print_wrapped,
    sign_option,
    signed_by,
    split,
    time_ms,
    topics_option,
)

if TYPE_CHECKING:
    from rich.console import Console

    from replicator.proof.verified import Verified, VerifiedPartition

EPILOG = """\b
Examples:
  eos-replicate verify -c flows.yaml --flow orders
  eos-replicate verify -c flows.yaml --flow orders --sample 1%
  eos-replicate verify -c flows.yaml --flow orders \\
      --since 2026-01-31T00:00:00Z --json
  eos-replicate verify -c flows.yaml --flow orders --without-source
  eos-replicate verify -c flows.yaml --flow orders --out report \\
      --sign key.pem

The map's chain and its counts are followed from its beginning, and the target's log is read: at each offset that the
map names there must be a committed record, and between them none that it doesn't name. The contents of the last block
of each position are compared, by its digest. A record that was skipped at the source can't be seen here:
reconcile --local reads both sides.

\b
Exit codes:
  0    each copy that was looked for stands, and the map covers all
  1    the target isn't what the map says, or the map contradicts itself
  2    the flow file or the command line is wrong; the flow has no map
  3    a cluster cannot be reached, or a right is missing
  4    nothing contradicts the map, but it doesn't tell of all that was
       copied; or it is gone, or written by a newer version
  130  interrupted
"""
PARTITIONS_SHOWN = 50
REPORT = "verify.json"
_SIGNS = {"differs": "[red]≠ differs[/]", "unproven": "[yellow]? unproven[/]", "stands": "[green]= stands[/]"}


@click.command(epilog=EPILOG)
@config_option
@click.option("--flow", "name", metavar="NAME", help="The flow; may be left out when the file has one.")
@topics_option
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="NUMBER",
    help="Only these partitions; may be given again.",
)
@click.option(
    "--sample",
    metavar="SHARE",
    default="100%",
    show_default=True,
    help="Look for this share of the copies, drawn at random: 1% or 0.01. Chains and counts are followed whole.",
)
@click.option("--since", metavar="TIME", help="Look for copies committed at or after this time, with zone.")
@click.option(
    "--without-source",
    is_flag=True,
    help="Ask the target alone: the source is gone. Records that were not copied aren't known then.",
)
@click.option("--out", metavar="DIR", help="New directory for the result as verify.json.")
@sign_option
@json_option
def verify(
    path: Path,
    name: str | None,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    sample: str,
    since: str | None,
    without_source: bool,
    out: str | None,
    key: Path | None,
    as_json: bool,
) -> int:
    """Compare a flow's target with its offset map. Reads no record of the source.

    It may run while the flow runs: what is in flight is not looked at. Nothing is changed on either side.
    """
    from rich.console import Console

    from cli.commands.reconcile_local import chosen
    from cli.commands.reconcile_progress import LocalProgress
    from replicator import config
    from replicator.model.errors import Incident
    from replicator.proof import map_place, snapshot, target_snapshot
    from replicator.proof.report_directory import check_unused, complete
    from replicator.proof.verify import VerifyScope
    from replicator.proof.verify import verify as compare

    scope = VerifyScope(share(sample), time_ms("--since", since), int.from_bytes(os.urandom(8), "big"))
    flow = one(config.load(path, os.environ), path, name)
    map_place.refuse_delivery(flow)
    seal = signed_by(key, out, "verify", flow.name)
    if out is not None:
        check_unused(Path(out))
    with LocalProgress(Console(stderr=True), flow.name) as progress:
        patience, chosen_topics = patience_ms(flow), split(topics)
        if without_source:
            progress.step("asking the target")
            taken = target_snapshot.take(flow, chosen_topics, connect_timeout_ms=patience)
        else:
            progress.step("asking both clusters")
            window = snapshot.Window()
            taken = snapshot.take(flow, chosen_topics, window, connect_timeout_ms=patience, time_ms_max=None)
        found = compare(flow, chosen(taken, set(partitions)), scope, progress)
    found = replace(found, partitions=tuple(sorted(found.partitions, key=lambda it: it.source)))
    if out is not None:
        with complete(Path(out)) as part:
            (part / REPORT).write_text(json.dumps(found.as_json(), indent=2) + "\n", encoding="utf-8")
            seal(part)
    if as_json:
        print_json(found.as_json())
    else:
        show(console_for_people(), found)
    if found.verdict == "differs":
        return 1
    return Incident.exit_code if found.verdict == "unproven" else 0


def share(text: str) -> float:
    """Read a share as it is typed: `1%` or `0.01`. Raises ConfigError."""
    from replicator.model.errors import ConfigError

    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise ConfigError(f"--sample {text}: expected a share above 0, such as 1% or 0.01, and 100% at most")
    return number


def show(console: Console, found: Verified) -> None:
    """Show a table of the partitions, what isn't as it should be, and the result in one line, which comes last."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from replicator.model.printable import printable
    from replicator.proof.verified import UNSEEN

    gravity = list(_SIGNS)
    shown = sorted(found.partitions, key=lambda it: gravity.index(it.verdict))[:PARTITIONS_SHOWN]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("partition", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for heading in ("sections", "copies", "standing", "expired"):
        table.add_column(heading, justify="right", overflow="fold")
    for it in sorted(shown, key=lambda it: it.source):
        table.add_row(escape(str(it.target)), _SIGNS[it.verdict], *_numbers(it))
    console.print(table)
    if len(found.partitions) > PARTITIONS_SHOWN:
        console.print(f"  and {len(found.partitions) - PARTITIONS_SHOWN} more; --json has all of them")
    lines = [f"{it.target}: {said}" for it in found.partitions for said in it.said()]
    lines += [f"note on {it.source}: {note}" for it in found.partitions for note in it.notes]
    lines += [f"not looked at: {incident}" for incident in found.not_compared]
    lines += [f"nothing copied yet: {at}" for at in found.waiting]
    for line in (*lines, *(f"note: {note}" for note in found.notes), UNSEEN):
        print_wrapped(console, printable(line))
    colour = {"differs": "red", "unproven": "yellow", "stands": "green"}[found.verdict]
    print_wrapped(console, found.headline, style=colour)


def _numbers(it: VerifiedPartition) -> list[str]:
    return [f"{number:,}" for number in (it.sections, it.copies, it.standing, it.expired)]

"""`eos-replicate rights`: what users must be allowed to do on both clusters."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import chosen, console_for_people, flow_options, print_json

if TYPE_CHECKING:
    from replicator.config import Flow
    from replicator.config.rights import GrantedBy, Right

EPILOG = """\b
Examples:
  eos-replicate rights -c flows.yaml
  eos-replicate rights -c flows.yaml --acls
  eos-replicate rights -c flows.yaml --acls --source-principal User:reader \\
    --target-principal User:writer --required-only
  eos-replicate rights -c flows.yaml --flow orders --json

It reads the flow file and connects to nothing. `plan` asks the clusters which of these rights are missing.
A pattern of topics becomes the text that all names which it matches begin with, since ACLs know no other patterns.

\b
Exit codes:
  0  printed
  2  the flow file is wrong
"""


@click.command(epilog=EPILOG)
@flow_options()
@click.option("--acls", is_flag=True, help="Print commands of Kafka's kafka-acls that grant them.")
@click.option(
    "--source-principal", metavar="TYPE:NAME", default="User:eos-replicate", show_default=True,
    help="Who logs in at the source, for --acls.",
)  # fmt: skip
@click.option(
    "--target-principal", metavar="TYPE:NAME", default="User:eos-replicate", show_default=True,
    help="Who logs in at the target, for --acls.",
)  # fmt: skip
@click.option("--required-only", is_flag=True, help="Leave out rights without which a flow can run.")
def rights(
    path: Path,
    names: tuple[str, ...],
    as_json: bool,
    acls: bool,
    source_principal: str,
    target_principal: str,
    required_only: bool,
) -> int:
    """List all rights that flows need on both clusters, as a table or as kafka-acls commands."""
    from replicator import config
    from replicator.config.rights import GrantedBy, rights_of
    from replicator.model.errors import ConfigError

    if acls and as_json:
        raise ConfigError("--acls prints commands, --json data: only one of them")
    for principal in (source_principal, target_principal):
        if not all(principal.partition(":")):
            raise ConfigError(f"{principal}: a principal is TYPE:NAME, such as User:eos-replicate")
    loaded = config.load(path, os.environ)
    needed = {
        flow.name: [right for right in rights_of(flow) if not (required_only and right.optional)]
        for flow in chosen(loaded, path, names)
    }
    if as_json:
        print_json({"flows": [{"flow": name, "rights": [asdict(it) for it in each]} for name, each in needed.items()]})
        return 0
    principals = {GrantedBy.SOURCE: source_principal, GrantedBy.TARGET: target_principal}
    for name, each in needed.items():
        if acls:
            _print_commands(loaded.flows[name], each, principals)
        else:
            _print_table(loaded.flows[name], each)
    return 0


def _print_commands(flow: Flow, rights: list[Right], principals: dict[GrantedBy, str]) -> None:
    from replicator.config.rights import GrantedBy, kafka_acls

    for side, cluster in ((GrantedBy.SOURCE, flow.source), (GrantedBy.TARGET, flow.target)):
        click.echo(f"# flow {flow.name}, {side} cluster {cluster.name}")
        of_side = [right for right in rights if right.side is side]
        for command in kafka_acls(of_side, ",".join(cluster.bootstrap_servers), principals[side]):
            click.echo(command)


def _print_table(flow: Flow, rights: list[Right]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from replicator.config.rights import Resource

    console = console_for_people()
    console.print(f"[bold]{escape(flow.name)}[/]: {escape(flow.source.name)} → {escape(flow.target.name)}")
    table = Table("cluster", "resource", "operations", "needed for", box=SIMPLE_HEAD)
    for right in rights:
        name = f"{right.name}*" if right.prefixed else right.name
        resource = "cluster" if right.resource is Resource.CLUSTER else f"{right.resource} {escape(name)}"
        purpose = f"optional: {right.needed_for}" if right.optional else right.needed_for
        table.add_row(right.side, resource, ", ".join(right.operations), escape(purpose))
    console.print(table)

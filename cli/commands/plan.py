"""`eos-replicate plan`: what `run` would do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.commands.coupled import topics_said
from cli.options import chosen, console_for_people, flow_options, log_to_stderr, patience_ms, print_json, print_wrapped

if TYPE_CHECKING:
    from rich.console import Console

    from replicator.inspect.flow_plan import FlowPlan, TopicPlan

EPILOG = """\b
Examples:
  eos-replicate plan -c flows.yaml
  eos-replicate plan -c flows.yaml --flow orders --json

\b
Exit codes:
  0  every flow can run
  2  the flow file is wrong, or two flows conflict
  3  a cluster cannot be reached, has no transactions or is an unknown Kafka,
     or a right is missing
  4  something else would stop a flow (see `error` lines)
"""

GROUPS_SHOWN, COUPLED_SHOWN = 20, 10
TABLE_WIDTH = 45
"""Of the table of topics, without their names."""


@click.command(epilog=EPILOG)
@flow_options()
def plan(path: Path, names: tuple[str, ...], as_json: bool) -> int:
    """Connect and say what would happen, changing nothing.

    Shows topics to create with partitions and configs, ACLs to create (sync_acls), missing rights, limits that
    don't fit, what a cluster can't do, and topics that transactions tie together. Where the flow runs with another
    file: what this one would change, or why workers would not take it. Topics are offered to the target with
    validate_only, so its policies and quotas are asked too.
    """
    from replicator import config
    from replicator.inspect import planning

    log_to_stderr()
    loaded = config.load(path, os.environ)
    plans = [planning.plan(flow, loaded, connect_timeout_ms=patience_ms(flow)) for flow in chosen(loaded, path, names)]
    codes = {item.exit_code() for item in plans}
    code = next((code for code in (4, 3, 2) if code in codes), 0)
    if as_json:
        print_json({"flows": [asdict(item) for item in plans], "exit_code": code})
        return code
    console = console_for_people()
    for item in plans:
        _show(console, item)
    return code


def _show(console: Console, item: FlowPlan) -> None:
    from replicator.model.counting import counted

    console.print(f"[bold]{item.flow}[/]: {item.source} → {item.target}")
    if any(item.releases.values()):
        told = (item.releases.get(name) or "not told" for name in (item.source, item.target))
        print_wrapped(console, f"  releases of Kafka: {' → '.join(told)}")
    if item.engine:
        print_wrapped(console, item.engine)
    if item.topics:
        _show_topics(console, item.topics)
    created = [(topic.target, topic.partitions, topic.configs) for topic in item.topics if topic.action == "create"]
    created += [(spec.name, spec.partitions, spec.configs) for spec in item.internal]
    for name, partitions, configs in created:
        values = " ".join(f"{key}={value}" for key, value in sorted(configs.items()))
        size = counted(partitions, "partition")
        print_wrapped(console, f"  create {name} with {size}" + (f": {values}" if values else ""))
    for spec in item.at_source:
        print_wrapped(console, f"  create {spec.name} at the source with {counted(spec.partitions, 'partition')}")
    for changes in (topic.changes for topic in item.topics if topic.changes):
        print_wrapped(console, f"  set on {changes.topic}: {changes.said()}")
    for acl in item.acls:
        print_wrapped(console, f"  create an ACL on {acl.topic}: {acl.said()}")
    synced = [it for it in item.groups if it.action == "sync"]
    if item.groups:
        print_wrapped(console, f"  sync {counted(len(synced), 'consumer group')} of {len(item.groups)}:")
    for it in item.groups[:GROUPS_SHOWN]:
        name = it.group if it.group == it.target_group else f"{it.group} → {it.target_group}"
        name = f"share group {name}" if it.kind == "share" else name
        print_wrapped(console, f"    {name}" + (f": {it.action.replace('_', ' ')}" if it.action != "sync" else ""))
    if len(item.groups) > GROUPS_SHOWN:
        console.print(f"    and {len(item.groups) - GROUPS_SHOWN:,} more; --json has all of them")
    _show_coupled(console, item)
    if item.new_settings:
        console.print("  all workers of the flow will run with this file:")
    for key, (before, after) in item.new_settings.items():
        print_wrapped(console, f"    {key}: {before or 'default'} → {after or 'default'}")
    for finding in item.findings:
        print_wrapped(console, f"  {finding.severity}: {finding.message}")
    if item.unchecked:
        console.print("  also needed, and can only be checked by using them:")
        for right in item.unchecked:
            print_wrapped(console, f"    {right}")
    if item.ready():
        console.print("  ready to run")


def _show_topics(console: Console, topics: Sequence[TopicPlan]) -> None:
    """Show a table; where its names would be cut, lines in which they are whole."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from replicator.model.counting import counted

    longest = [max(map(len, names)) for names in zip(*((it.source, it.target) for it in topics), strict=True)]
    if sum(longest) + TABLE_WIDTH > console.width:
        for it in topics:
            counts = f"{counted(it.partitions, 'partition')}, {it.partitions_with_position} with position"
            print_wrapped(console, f"  {it.action}: {it.source} → {it.target}: {counts}")
        return
    table = Table("action", "source topic", "target topic", "partitions", "with position", box=SIMPLE_HEAD)
    for it in topics:
        table.add_row(it.action, it.source, it.target, str(it.partitions), str(it.partitions_with_position))
    console.print(table)


def _show_coupled(console: Console, item: FlowPlan) -> None:
    for it in item.coupled[:COUPLED_SHOWN]:
        print_wrapped(console, f"  coupled by transactions: {topics_said(it.topics, it.outside)}")
    if len(item.coupled) > COUPLED_SHOWN:
        console.print(f"    and {len(item.coupled) - COUPLED_SHOWN:,} more sets; eos-replicate coupled has all of them")
    if item.coupled_unknown:
        print_wrapped(
            console, f"  more topics may be coupled, eos-replicate coupled says why: {item.coupled_unknown[0]}"
        )

"""`eos-replicate validate`: the flow file alone."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cli.options import config_option, json_option, print_json

EPILOG = """\b
Examples:
  eos-replicate validate -c flows.yaml
  eos-replicate validate -c flows.yaml --json

\b
Exit codes:
  0  the file is right
  2  it is not: every fault is shown with key path and line
"""


@click.command(epilog=EPILOG)
@config_option
@json_option
def validate(path: Path, as_json: bool) -> int:
    """Check a flow file, without connecting to any cluster.

    Environment variables and files that it refers to must be there.
    """
    from replicator.config import FlowFileError, load

    try:
        config = load(path, os.environ)
    except FlowFileError as error:
        if not as_json:
            raise
        faults = [{"line": fault.line, "path": fault.path, "message": fault.message} for fault in error.faults]
        print_json({"file": str(path), "valid": False, "errors": faults})
        return error.exit_code
    if as_json:
        flows = {
            name: flow.model_dump(mode="json", exclude={"name", "source", "target"})
            for name, flow in config.flows.items()
        }
        for name, flow in config.flows.items():
            flows[name] |= {"source": flow.source.name, "target": flow.target.name}
        print_json({"file": str(path), "valid": True, "errors": [], "flows": flows})
        return 0
    click.echo(f"{path}: valid")
    for flow in config.flows.values():
        topics = ", ".join(flow.topics)
        click.echo(f"  {flow.name}: {flow.source.name} → {flow.target.name}, {flow.delivery.value}: {topics}")
    return 0

"""`eos-replicate schema`: the flow file's JSON schema."""

from __future__ import annotations

import click

from cli.options import print_json

EPILOG = """\b
Examples:
  eos-replicate schema > flow-file.schema.json

\b
For editors with a YAML language server, put this on the first line of a
flow file:
  # yaml-language-server: $schema=flow-file.schema.json
"""


@click.command(epilog=EPILOG)
def schema() -> int:
    """Print the JSON schema of flow files, for completion and checks in editors."""
    from replicator.config import json_schema

    print_json(json_schema())
    return 0

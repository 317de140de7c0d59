"""`reconcile --local` as a process of its own, which proves the copy by the offset map while the demo compares it by
itself."""

from __future__ import annotations

import json
from pathlib import Path

from cli.demo.model import Proof
from cli.demo.processes import Child

PROVED_S_MAX = 120.0


class Reconciliation:
    """One run of the command."""

    def __init__(self, flow_file: Path, flow: str, log: Path) -> None:
        arguments = ["cli.main", "reconcile", "-c", str(flow_file), "--flow", flow, "--local", "--json"]
        self.child = Child(arguments, log)

    def proof(self) -> Proof:
        """Read what it says. Raises DemoFailed where it says nothing."""
        said = self.child.rest(PROVED_S_MAX)
        found = json.loads(said)
        return Proof(found["verdict"], found["headline"])

"""`eos-replicate run`: the daemon."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

EPILOG = """\b
Examples:
  eos-replicate run -c configs/orders-dr.yaml
  eos-replicate run -c flows.yaml --flow orders --log-format json

\b
Exit codes:
  0   stopped by a signal, everything committed
  2   the flow file is wrong
  3   a cluster cannot be reached, or a right is missing
  4   an incident needs a decision (see the log's `incident` lines)
  5   superseded: another process, a backfill or a repair runs the flow now
  70  a bug
"""


@click.command(epilog=EPILOG)
@click.option("-c", "--config", "path", required=True, type=click.Path(path_type=Path), help="Flow file (YAML).")
@click.option("--flow", "names", multiple=True, help="Run only this flow; may be given again. Default: all.")
@click.option("--take-over", is_flag=True, help="Also take the flow from a backfill or repair that has it.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def run(path: Path, names: tuple[str, ...], take_over: bool, log_format: str, log_level: str) -> None:
    """Copy topics until stopped: records and positions in one transaction on the target.

    The first SIGTERM or ^C finishes the open transaction and leaves; a second one leaves at once, safely.
    """
    from replicator import config, failpoints, logs
    from replicator.daemon import Daemon
    from replicator.errors import ConfigError

    logs.configure(log_format, log_level)
    reach = failpoints.parse(os.environ.get(failpoints.VARIABLE, ""))
    loaded = config.load(path, os.environ)
    unknown = [name for name in names if name not in loaded.flows]
    if unknown:
        raise ConfigError(f"{path}: no flow {', '.join(unknown)}; it has {', '.join(sorted(loaded.flows))}")
    flows = [flow for name, flow in loaded.flows.items() if not names or name in names]
    sys.exit(Daemon(loaded, flows, reach, take_over=take_over).run())

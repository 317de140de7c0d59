"""`eos-replicate top`: what a running process shows of its flows, live in a terminal."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import click

from cli.options import config_option, console_for_people, json_option, print_json

EPILOG = """\b
Examples:
  eos-replicate top -c flows.yaml
  eos-replicate top -c flows.yaml --once
  eos-replicate top -c flows.yaml --address 10.0.0.7:9308 --json

The process that runs the flows must have metrics.listen; it is asked there, and not the clusters. `status` asks the
clusters, whether a process runs or not. ^C ends it.

\b
Exit codes:
  0  shown, or ended by ^C
  2  the flow file is wrong, or has no metrics.listen
  3  the process doesn't answer, or refuses the token
"""
TIMEOUT_S = 5.0
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
ANSWER_BYTES_MAX = 16 * 1024 * 1024


@click.command(epilog=EPILOG)
@config_option
@click.option("--address", metavar="HOST:PORT", help="Where the process listens. Default: metrics.listen of the file.")
@click.option(
    "--every", "every_s", type=click.FloatRange(min=0.2), default=2.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="Show it once. This is the default if the output is no terminal.")
@json_option
def top(path: Path, address: str | None, every_s: float, once: bool, as_json: bool) -> int:
    """Show flows of a running process, live: lag, throughput, and what is not copied and why."""
    from replicator import config
    from replicator.model.errors import ConfigError

    metrics = config.load(path, os.environ).metrics
    asked = address or metrics.listen
    if not asked:
        raise ConfigError(f"{path} has no metrics.listen, so a process that runs it can't be asked; or give --address")
    url = f"http://{_reachable(asked)}/flows"
    if as_json:
        print_json(ask(url, metrics.token))
        return 0
    console = console_for_people()
    if once or not console.is_terminal:
        from cli.commands.top_show import shown

        console.print(shown(ask(url, metrics.token), console.width))
        return 0
    return _live(url, metrics.token, every_s)


def _reachable(address: str) -> str:
    host, _, port = address.rpartition(":")
    bare = host.strip("[]")
    found = ANY_ADDRESS.get(bare, bare)
    return f"[{found}]:{port}" if ":" in found else f"{found}:{port}"


def ask(url: str, token: str) -> dict[str, Any]:
    """Return what the process shows of its flows. Raises Unreachable or NotAllowed."""
    from replicator.model.errors import NotAllowed, Unreachable

    request = urllib.request.Request(url)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the process is asked itself
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            found: dict[str, Any] = json.loads(answer.read(ANSWER_BYTES_MAX))
            return found
    except urllib.error.HTTPError as error:
        if error.code == 401:
            raise NotAllowed(f"{url} wants another token than metrics.token of the flow file") from error
        raise Unreachable(f"{url} answers {error.code}: no process of this version of eos-replicate") from error
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Unreachable(f"no process answers at {url}: {reason}") from error


def _live(url: str, token: str, every_s: float) -> int:
    """Show it until ^C. A process that stops answering is named, and asked again."""
    from rich.live import Live

    from cli.commands.top_show import shown, unreachable
    from replicator.model.errors import ReplicatorError

    console = console_for_people()
    found = ask(url, token)  # the first failure is an error
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(shown(found, console.width, console.height), refresh=True)
                time.sleep(every_s)
                try:
                    found = ask(url, token)
                except ReplicatorError as error:
                    live.update(unreachable(str(error)), refresh=True)
                    time.sleep(every_s)
    except KeyboardInterrupt:
        return 0

"""`eos-replicate demo-spark`: backfill while its tasks are killed, and reconcile, which finds planted damage."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cli.commands.demo import scratch

if TYPE_CHECKING:
    from rich.console import Console

    from cli.demo.on_spark import Result

EPILOG = """\b
Examples:
  eos-replicate demo-spark
  eos-replicate demo-spark --records 100000 --json
  eos-replicate demo-spark --keep

\b
Exit codes:
  0    the copy was exact, tasks were really killed, and reconcile found the
       four planted differences and nothing else
  1    it was not so, or the demo failed: data and logs are kept
  2    Java or pyspark is missing
  130  interrupted
"""


@click.command("demo-spark", epilog=EPILOG)
@click.option(
    "--records",
    type=click.IntRange(40_000, 10**7),
    default=500_000,
    show_default=True,
    help="Records of the history.",
)
@click.option("--keep", is_flag=True, help="Keep the brokers' data, the logs and both reports.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: what was shown.")
def demo_spark(records: int, keep: bool, as_json: bool) -> int:
    """Start two brokers, backfill with Spark while its tasks are killed, hand over to a live worker, and compare.

    Then a second copy is made with planted differences, and reconcile names the one record that is missing, the one
    doubled, the one altered and the two swapped. Needs Java 17 or later and eos-replicate[spark], but neither Kafka
    nor Docker.
    """
    from rich.console import Console

    from cli.demo.model import DemoFailed
    from cli.demo.on_spark import Orchestrator, failed
    from replicator.spark import connector, java

    java.check(os.environ)
    connector.installed()
    console = Console(stderr=as_json, highlight=False)
    with scratch(keep) as (directory, kept):
        try:
            result = Orchestrator(records - records % 4, directory, lambda step: console.print(f"• {step}")).run()
        except DemoFailed as error:
            kept.append("the demo failed")
            raise click.ClickException(str(error)) from error
        problem = failed(result)
        if problem:
            kept.append(problem)
        if as_json:
            click.echo(json.dumps({**asdict(result), "report": str(result.report), "good": result.good}))
        else:
            _tell(console, result, problem)
    return 0 if result.good else 1


def _tell(console: Console, result: Result, problem: str) -> None:
    console.print(
        f"backfilled {result.backfilled:,} records exactly once; killed tasks left {result.aborted:,} offsets of "
        "aborted records and markers, which no read_committed consumer gets"
    )
    console.print(f"the live worker continued after them: {result.live:,} records, no gap, no overlap")
    console.print(f"both sides agree: {'yes' if result.agrees else 'NO'}")
    for found in result.found:
        where = f"partition {found.partition}, near record {found.rank:,}"
        console.print(f"found in the damaged copy: {found.verdict} in {where}")
    console.print("[green]as promised[/]" if result.good else f"[red]not as promised[/]: {problem}")

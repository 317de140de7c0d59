"""`eos-replicate reconcile`: do both sides of a flow hold the same records?"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import __version__
from cli.options import (
    config_option,
    console_for_people,
    json_option,
    one,
    patience_ms,
    print_json,
    sign_option,
    signed_by,
    spark_options,
    split,
    time_ms,
    topics_option,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cli.commands.reconcile_map_repair import Wanted
    from cli.commands.reconcile_repair import Repairing
    from cli.stopping import Stopping
    from replicator.config import Config, Flow, SparkSection
    from replicator.proof.outcome import Mode, Outcome
    from replicator.proof.signing import Seal
    from replicator.spark.reconcile.reconcile import Reconciled
    from replicator.spark.session import SparkSettings

EPILOG = """\b
Examples:
  eos-replicate reconcile -c flows.yaml --flow orders
  eos-replicate reconcile -c flows.yaml --flow orders --out report \\
      --from 2026-01-31T00:00:00Z
  eos-replicate reconcile -c flows.yaml --flow orders --quick --json
  eos-replicate reconcile -c flows.yaml --flow orders \\
      --master spark://host:7077 --conf spark.cores.max=16
  eos-replicate reconcile -c flows.yaml --flow orders --local
  eos-replicate reconcile -c flows.yaml --flow orders --local \\
      --out report --sign key.pem
  eos-replicate reconcile -c flows.yaml --flow orders --local --repair plan

Verdicts: same, missing, extra, doubled, altered (which of key, value, headers, timestamp), reordered. Records
that retention or compaction removed on either side are listed separately and are no difference. Where the clusters
have no evidence left to tell them from lost records, the verdict is unproven.

\b
Exit codes:
  0    both sides agree
  1    differences; with --repair apply, what was missing has been copied
       again: reconcile again to see what is left
  2    the flow file or the command line is wrong, Java or pyspark is missing,
       or the output directory exists
  3    a cluster or Spark cannot be reached, or a right is missing
  4    no difference, but agreement isn't proven: of some records nothing
       tells whether they are lost, or partitions can't be compared (0 with
       --accept unproven); or incidents stopped the repair of some partitions
  5    --repair apply: another worker or job has the flow, or has taken it
       over
  130  interrupted
"""


@click.command(epilog=EPILOG)
@config_option
@click.option("--flow", "name", metavar="NAME", help="The flow; may be left out when the file has one.")
@topics_option
@click.option("--from", "start", metavar="TIME", help="From the first record at or after this time, with zone.")
@click.option("--to", "end", metavar="TIME", help="To before the first record at or after this time, with zone.")
@click.option(
    "--out",
    metavar="DIR|URI",
    help="New directory for HTML, JSON and Parquet: here, or where Spark's Hadoop reaches (s3a://, hdfs://).",
)
@sign_option
@click.option("--quick", is_flag=True, help="Only say which chunks differ, after one read of both sides.")
@click.option("--deep", is_flag=True, help="Compare 128 bits of each record's digest instead of 64.")
@click.option(
    "--local",
    is_flag=True,
    help="Compare by the flow's offset map in this process: without Spark and Java. Records that the map doesn't cover "
    "are counted, and unproven.",
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="NUMBER",
    help="With --local: only these partitions; may be given again.",
)
@click.option(
    "--repair",
    "wanted",
    type=click.Choice(["plan", "apply"]),
    help="Copy missing records again: say what would be done, or do it.",
)
@click.option(
    "--accept", type=click.Choice(["unproven"]), help="Exit with 0 where there is no difference and no proof either."
)
@click.option("--take-over", is_flag=True, help="With --repair apply: take the flow from a worker that holds it.")
@click.option(
    "--no-values", is_flag=True, help="Show no parts of values and headers of altered records; keys are shown."
)
@spark_options
@json_option
def reconcile(
    path: Path,
    name: str | None,
    topics: tuple[str, ...],
    start: str | None,
    end: str | None,
    out: str | None,
    key: Path | None,
    quick: bool,
    deep: bool,
    local: bool,
    partitions: tuple[int, ...],
    wanted: Wanted | None,
    accept: str | None,
    take_over: bool,
    no_values: bool,
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
) -> int:
    """Read both sides of a flow and name every record that differs.

    It may run while the flow runs: what is in flight is not compared. Nothing is changed on either side, unless by
    --repair apply. Needs Java 17 or later and eos-replicate[spark], but with --local.
    """
    from cli.commands import reconcile_local, reconcile_map_repair, reconcile_repair
    from replicator import config
    from replicator.model.errors import ConfigError

    if local:
        asked = {"--quick": quick, "--deep": deep, "--from": start, "--to": end, "--master": master, "--conf": conf}
        reconcile_local.refuse(asked)
    if quick and deep:
        raise ConfigError("--quick and --deep exclude each other")
    window = (time_ms("--from", start), time_ms("--to", end))
    if window[0] is not None and window[1] is not None and window[0] >= window[1]:
        raise ConfigError(f"--from {start} is not before --to {end}")
    if partitions and not local:
        raise ConfigError("--partition: only with --local")
    loaded = config.load(path, os.environ)
    flow = one(loaded, path, name)
    mode: Mode = "quick" if quick else "deep" if deep else "full"
    reconcile_repair.refuse(wanted, mode, window, take_over)
    seal = signed_by(key, out, "reconcile", flow.name)
    if local:
        repair = reconcile_map_repair.MapRepairing(loaded, flow, wanted, take_over) if wanted else None
        scope = reconcile_local.LocalScope(split(topics), set(partitions), not no_values)
        code = _shown(reconcile_local.run(flow, scope, out, repair, seal), out, accept, as_json)
        return repair.code if repair is not None and repair.code else code
    repairing = reconcile_repair.Repairing(loaded, flow, wanted, take_over) if wanted else None
    given = (master, conf)
    outcome = _run(loaded, flow, split(topics), window, mode, out, given, repairing, seal, values=not no_values)
    code = _shown(outcome, out, accept, as_json)
    return repairing.code if repairing is not None and repairing.code else code


def _shown(outcome: Outcome, out: str | None, accept: str | None, as_json: bool) -> int:
    """Show the outcome; returns the exit code that it is."""
    from replicator.model.errors import Incident

    if as_json:
        from replicator.proof.outcome_json import as_json as for_machines

        print_json(for_machines(outcome))
    else:
        from cli.commands import reconcile_repair, reconcile_show

        reconcile_show.show(console_for_people(), outcome, out)
        if outcome.repair is not None:
            reconcile_repair.show(console_for_people(), outcome.repair)
    if outcome.differs:
        return 1
    return Incident.exit_code if outcome.unproven and accept is None else 0


def _run(
    loaded: Config,
    flow: Flow,
    topics: frozenset[str],
    window: tuple[int | None, int | None],
    mode: Mode,
    out: str | None,
    spark_options_given: tuple[str | None, tuple[str, ...]],
    repairing: Repairing | None,
    seal: Seal,
    *,
    values: bool,
) -> Outcome:
    """Run on Spark; everything that can be wrong without it is found before it starts, which takes seconds."""
    from rich.console import Console

    from cli.commands.reconcile_progress import Progress
    from cli.stopping import Stopping
    from replicator.spark.reconcile import java_client

    chosen = _checked(loaded.spark, flow, *spark_options_given)
    from replicator.proof import snapshot
    from replicator.spark import directories, executors, failures, session
    from replicator.spark.engine import SparkEngine
    from replicator.spark.reconcile import report, what_is_left
    from replicator.spark.reconcile.reconcile import reconcile as compare
    from replicator.spark.task_log import TaskLog

    if out is not None:
        here = directories.directory(out)
        if here is not None:
            here.begin()
    for cluster in (flow.source, flow.target):
        java_client.properties(cluster)
    patience = patience_ms(flow)
    span = snapshot.Window(*window)
    with Stopping() as stopping, Progress(Console(stderr=True), flow.name) as status:
        status.update("asking both clusters")
        if repairing is not None:
            repairing.begin()
        snapshot.take(flow, topics, span, connect_timeout_ms=patience)
        status.update("starting Spark")
        with session.session(chosen) as spark:
            if not chosen.local:
                status.update("looking at the executors")
                with SparkEngine(spark, TaskLog("json", "info"), say=status.update) as engine:
                    engine.check(["replicator.spark.reconcile.passes"], executors.files_of(flow))
            if repairing is not None:
                repairing.begin()
            taken = snapshot.take(flow, topics, span, connect_timeout_ms=patience)

            def compared(left: snapshot.Snapshot) -> Reconciled:
                found = compare(spark, flow, left, mode, status.update, values=values, for_repair=bool(repairing))
                if repairing is not None:
                    repairing.find(found)
                return found

            with _interruptible(stopping, spark) as stopped, status.watching(spark):
                found, taken = what_is_left.compared(
                    flow, taken, compared, status.update, connect_timeout_ms=patience, stopped=stopped
                )
            outcome = replace(found.outcome, tool_version=__version__)
            if repairing is not None:
                outcome = repairing.finish(outcome, taken, stopping, status.update)
            if out is not None:
                status.update(f"writing {out}")
                with _interruptible(stopping, spark), failures.explained(flow, taken, connect_timeout_ms=patience):
                    report.write(outcome, found.findings, out, seal)
    return outcome


def _checked(section: SparkSection, flow: Flow, master: str | None, conf: tuple[str, ...]) -> SparkSettings:
    """Check where Spark runs. Raises ConfigError for whatever would be found later and worse."""
    from replicator.spark import connector, java, session

    with _or_locally(flow):
        connector.installed()
    chosen = session.settings(section, master, conf)
    connector.with_connector({**session.configured(), **chosen.conf})
    with _or_locally(flow):  # last: what was typed is corrected sooner than something is installed
        java.check(os.environ)
    return chosen


@contextmanager
def _or_locally(flow: Flow) -> Iterator[None]:
    """Let an error that Spark is missing name the comparison that needs none, if the flow has an offset map."""
    from replicator.config import Delivery
    from replicator.model.errors import ConfigError

    try:
        yield
    except ConfigError as error:
        if flow.delivery is not Delivery.EXACTLY_ONCE:
            raise
        raise ConfigError(f"{error}. Or compare by the flow's offset map, without Spark: --local") from error


@contextmanager
def _interruptible(stopping: Stopping, spark: SparkSession) -> Iterator[Callable[[], bool]]:
    """Let a signal stop Spark; whatever exception the block then raises becomes KeyboardInterrupt. Gives what tells
    whether one has.

    An exception raised in the signal handler would interrupt py4j in the middle of a call to the JVM.
    """
    asked = threading.Event()

    def stop() -> None:
        asked.set()
        spark.stop()

    try:
        with stopping.asks(stop):
            yield asked.is_set
    except Exception:
        if asked.is_set():
            raise KeyboardInterrupt from None
        raise

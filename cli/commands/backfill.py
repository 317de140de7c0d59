"""`eos-replicate backfill`: copy a flow's history with Spark, then hand over to the daemon."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import (
    config_option,
    console_for_people,
    json_option,
    one,
    print_json,
    spark_options,
    split,
    time_ms,
    topics_option,
)

if TYPE_CHECKING:
    from cli.commands.backfill_watch import Watch
    from replicator.config import Config, Flow
    from replicator.jobs.backfill import BackfillRequest, BackfillSummary, Bound

EPILOG = """\b
Examples:
  eos-replicate backfill -c flows.yaml --flow orders
  eos-replicate backfill -c flows.yaml --flow orders --topics orders \\
      --to 2026-01-31T00:00:00Z --rate 50000
  eos-replicate backfill -c flows.yaml --flow orders \\
      --from 'orders[0]=1200' --from 'orders[1]=800'
  eos-replicate backfill -c flows.yaml --flow orders --take-over \\
      --out ranges --master spark://host:7077

\b
Exit codes:
  0    done, or stopped by a signal: what is committed stays, and the same
       command goes on from there
  2    the flow file or the command line is wrong, Java or pyspark is missing,
       or the output directory exists
  3    a cluster or Spark cannot be reached, or a right is missing
  4    incidents stopped partitions; the others are done
  5    another worker or job has the flow, or has taken it over
  70   a bug
  130  interrupted before anything was changed; or a second signal
       (128 + its number)
"""
_OFFSET = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)\[(?P<partition>\d{1,9})\]=(?P<offset>\d{1,18})")
_BOUND = "TIME|TOPIC[P]=OFFSET"


@click.command(epilog=EPILOG)
@config_option
@click.option("--flow", "name", metavar="NAME", help="The flow; may be left out when the file has one.")
@topics_option
@click.option(
    "--from",
    "first",
    multiple=True,
    metavar=_BOUND,
    help="Where partitions begin that the flow has not begun to copy: the first record at or after a time with zone, "
    "or offsets, given again for each partition. Default: as `start` of the flow.",
)
@click.option(
    "--to", "last", multiple=True, metavar=_BOUND, help="Where they end, exclusive. Default: the committed end now."
)
@click.option("--rate", "rate_max", type=click.FloatRange(min=0, min_open=True), help="Most records a second, in all.")
@click.option(
    "--range",
    "offsets_max",
    type=click.IntRange(min=1),
    help="Source offsets in one task; more while no other partition has more left. Default: 2000000.",
)
@click.option(
    "--take-over", is_flag=True, help="Take the flow over from a live worker, which then stops, or from a repair."
)
@click.option(
    "--out",
    metavar="DIR|URI",
    help="New directory for a Parquet list of ranges: of this machine, or a URI that Spark can write to, such as s3a:.",
)
@spark_options
@json_option
def backfill(
    path: Path,
    name: str | None,
    topics: tuple[str, ...],
    first: tuple[str, ...],
    last: tuple[str, ...],
    rate_max: float | None,
    offsets_max: int | None,
    take_over: bool,
    out: str | None,
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
) -> int:
    """Copy a flow's history with Spark, exactly once, up to where the source ends now.

    A live worker of the flow must be stopped before, or is stopped by --take-over. Afterwards `run` continues without
    gap or overlap. If it is killed, run the same command again. Needs Java 17 or later and eos-replicate[spark].

    The first ^C or SIGTERM stops cleanly and hands the flow over. A second one exits at once; nothing is lost, but
    workers of `run` then stand by (--standalone: are refused) until backfill has been run again, or until one is given
    --take-over.
    """
    from replicator import config
    from replicator.jobs import backfill as driver

    bounds = _bound("--from", first), _bound("--to", last)
    _check_order(*bounds, first, last)
    loaded = config.load(path, os.environ)
    flow = one(loaded, path, name)
    size = driver.OFFSETS_MAX if offsets_max is None else offsets_max
    request = driver.BackfillRequest(split(topics), *bounds, size, rate_max, take_over)
    summary, watch = _run(loaded, flow, request, out, master, conf)
    from cli.commands import backfill_show

    if as_json:
        print_json(backfill_show.as_json(flow, summary, watch, out))
    else:
        backfill_show.show(console_for_people(), flow, summary, watch, out)
    incident = driver.failed(summary)
    return 0 if incident is None else incident.exit_code


def _run(
    loaded: Config,
    flow: Flow,
    request: BackfillRequest,
    out: str | None,
    master: str | None,
    conf: tuple[str, ...],
) -> tuple[BackfillSummary, Watch]:
    """Run on Spark; everything that can be wrong without it is found before it starts, which takes seconds."""
    import structlog

    from cli.captured import console_for_progress
    from cli.commands import on_spark
    from cli.commands.backfill_watch import Watch
    from cli.stopping import Stopping
    from replicator import logs
    from replicator.jobs.backfill import Backfill

    chosen = on_spark.checked(loaded.spark, master, conf)
    from replicator.spark import directories, range_ledger

    if out is not None:
        range_ledger.check(out)
    watch, write = Watch(flow, console_for_progress()), on_spark.to_stderr
    with Stopping(watch.leave) as stopping, watch:
        logs.configure("text", "warning")
        job = Backfill(flow, loaded, request, watch, structlog.get_logger())
        watch.doing("asking both clusters")
        if not job.check():
            return job.finish(), watch
        watch.doing("starting Spark")
        with on_spark.engine(chosen, flow, "text", "warning", write, write) as (spark, engine):
            if out is not None and (to := directories.directory(out, spark)) is not None:
                watch.ledger = range_ledger.RangeLedger(out, to)

            def stop() -> None:
                watch.stopping()
                job.stop()
                engine.cancel()  # now: the driver cancels too, but later, and Spark may have got the same signal

            with stopping.asks(stop):
                watch.doing("opening a generation")
                try:
                    return job.run(engine), watch
                finally:
                    watch.ended()  # while there is a JVM to write with


def _bound(option: str, texts: Sequence[str]) -> Bound:
    """Read a time, or offsets by partition. Raises ConfigError."""
    from replicator.jobs.backfill import Bound
    from replicator.model.errors import ConfigError
    from replicator.model.partition import Partition

    offsets: dict[Partition, int] = {}
    for text in texts:
        found = _OFFSET.fullmatch(text)
        if found is None and "[" not in text and len(texts) == 1:
            return Bound(timestamp_ms=time_ms(option, text))
        if found is None and "[" not in text:
            raise ConfigError(f"{option} {text}: a time is for all partitions, so nothing else can be given beside it")
        if found is None:
            raise ConfigError(f"{option} {text}: expected TOPIC[PARTITION]=OFFSET, such as orders[0]=1200")
        at = Partition(found["topic"], int(found["partition"]))
        if at in offsets:
            raise ConfigError(f"{option} {text}: {at} is given twice")
        offsets[at] = int(found["offset"])
    return Bound(offsets=offsets or None)


def _check_order(first: Bound, last: Bound, first_texts: Sequence[str], last_texts: Sequence[str]) -> None:
    """Raise ConfigError if a lower bound is not before its upper one, as far as that needs no cluster."""
    from replicator.model.errors import ConfigError

    if first.timestamp_ms is not None and last.timestamp_ms is not None and first.timestamp_ms >= last.timestamp_ms:
        raise ConfigError(f"--from {first_texts[0]} is not before --to {last_texts[0]}")
    ends = last.offsets or {}
    for at, offset in (first.offsets or {}).items():
        if at in ends and offset >= ends[at]:
            raise ConfigError(f"--from {at}={offset} is not before --to {at}={ends[at]}")

"""What commands that copy on Spark share: everything checked before Spark starts, then an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replicator.config import Flow, SparkSection
    from replicator.spark.engine import SparkEngine
    from replicator.spark.session import SparkSettings


def checked(section: SparkSection, master: str | None, conf: Sequence[str]) -> SparkSettings:
    """Check where Spark runs. Raises ConfigError for whatever would be found later and worse."""
    from replicator import failpoints
    from replicator.spark import connector, java, session

    connector.installed()
    chosen = session.settings(section, master, conf)
    failpoints.parse(os.environ.get(failpoints.VARIABLE, ""))
    java.check(os.environ)  # last: what was typed is corrected sooner than something is installed
    return chosen


@contextmanager
def engine(
    chosen: SparkSettings,
    flow: Flow,
    log_format: str,
    level: str,
    write: Callable[[str], object],
    say: Callable[[str], object],
) -> Iterator[tuple[SparkSession, SparkEngine]]:
    """Start Spark, and an engine whose tasks are known to run.

    Args:
        flow: whose clients the tasks have.
        write: takes the log lines of tasks on this machine.
        say: takes a line for people when there are no executors, in a thread of its own.

    Raises ConfigError, Unreachable.
    """
    from replicator import failpoints
    from replicator.spark import executors, session, task_log
    from replicator.spark.engine import SparkEngine

    local = task_log.forwarded(log_format, level, write)
    logs = local if chosen.local else nullcontext(task_log.TaskLog("json", "info"))
    failpoint = os.environ.get(failpoints.VARIABLE, "")
    with session.session(chosen, kafka=False) as spark, logs as log, SparkEngine(spark, log, failpoint, say) as running:
        running.check(files=() if chosen.local else executors.files_of(flow))
        yield spark, running


def to_stderr(line: str) -> None:
    """Write a line of a task's log, as it comes; above a live display if there is one."""
    click.echo(line, err=True)

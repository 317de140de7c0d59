"""`eos-replicate run`: the daemon."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import __version__
from cli.options import chosen, config_option, flow_option, one, spark_options
from cli.quick_imports import quick_imports

if TYPE_CHECKING:
    import structlog

    from replicator.config import Config, Flow
    from replicator.observe.observation import Observation

EPILOG = """\b
Examples:
  eos-replicate run -c flows.yaml
  eos-replicate run -c flows.yaml --flow orders --log-format json
  eos-replicate run -c flows.yaml --watch-config
  eos-replicate run -c flows.yaml --standalone
  kill -HUP PID              # reads flows.yaml again
  eos-replicate run -c flows.yaml --flow orders --runner spark \\
      --master spark://host:7077

\b
Exit codes:
  0   stopped by a signal (SIGTERM, SIGINT), everything committed
  2   the flow file is wrong; on Spark: Java or pyspark is missing
  3   a cluster (or Spark) cannot be reached, or a right is missing
  4   an incident needs a decision (see the log's `incident` lines)
  5   taken over by rounds on Spark; with --standalone, and on Spark: by
      another process, a backfill or a repair
  70  a bug
"""


@click.command(epilog=EPILOG)
@config_option
@flow_option
@click.option("--take-over", is_flag=True, help="Take the flow over from a backfill or repair that already has it.")
@click.option(
    "--shared/--standalone",
    default=None,
    help="Share each flow's lanes with all other processes that run it, or run it alone.  [default: shared]",
)
@click.option("--exit-on-incident", is_flag=True, help="End with 4 at the first incident, for supervisors.")
@click.option("--watch-config", is_flag=True, help="Read the flow file again when it, or a file it names, has changed.")
@click.option(
    "--runner",
    type=click.Choice(["daemon", "spark"]),
    default="daemon",
    show_default=True,
    help="Copy in this process (daemon), or by tasks on Spark, round after round, for one flow.",
)
@spark_options
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log lines on stderr: text for people, or one JSON object a line.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least severe log lines that are written.",
)
def run(
    path: Path,
    names: tuple[str, ...],
    take_over: bool,
    shared: bool | None,
    exit_on_incident: bool,
    watch_config: bool,
    runner: str,
    master: str | None,
    conf: tuple[str, ...],
    log_format: str,
    log_level: str,
) -> None:
    """Copy topics until stopped: records and positions in one transaction on the target.

    Start it on as many machines as you like: the processes share each flow's lanes, and the lanes of a process that
    dies go on in another one. With --standalone a process is no member of the flow's group: it fences every other
    process that runs the flow.

    The first SIGTERM or ^C commits the open transaction and exits, and so does SIGHUP when the terminal was closed. A
    second one exits at once; nothing is lost or doubled, but the target waits for the transaction to time out or for
    the next start. Any other SIGHUP has the flow file read again: flows that were added start, removed ones stop,
    changed ones start anew, and the others aren't touched; a file with a fault changes nothing. If a process
    has several flows, one that has ended is started again from time to time as long as another one runs. An incident
    stops its partition, and the others go on; with --exit-on-incident all is committed and the process ends.
    """
    with quick_imports():
        from replicator import config, failpoints, logs
        from replicator.flow import wiring
        from replicator.flow.config_watch import ConfigReader, NamedFiles, ReadConfig, file_states
        from replicator.flow.daemon import Daemon
        from replicator.model.errors import ConfigError
        from replicator.observe.observation import Observation

    if runner == "daemon" and (master is not None or conf):
        raise ConfigError("--master and --conf go with --runner spark")
    if runner == "spark":
        _check_options(names, shared=shared, exit_on_incident=exit_on_incident, watch_config=watch_config)
    logs.configure(log_format, log_level)
    failpoint = failpoints.parse(os.environ.get(failpoints.VARIABLE, ""))
    before = file_states([path])
    loaded = config.load(path, os.environ)
    if runner == "spark":
        flow = one(loaded, path, names[0] if names else None)
        sys.exit(_on_spark(loaded, flow, take_over, (master, conf), (log_format, log_level)))
    flows = chosen(loaded, path, names)
    observation = Observation(loaded, flows, __version__)
    _tell_start(flows)
    seen, more = observation, partial(_more_duties, observation)
    told = seen.observe, seen.heartbeats, seen.worker
    parts = wiring.parts(failpoint, *told, __version__, more, seen.conditions, seen.throttled, seen.lost)

    def read() -> ReadConfig:
        again = config.load(path, os.environ)
        return ReadConfig(again, chosen(again, path, names))

    named = NamedFiles(path, loaded, read)
    first = (*before, *file_states(named.files()[1:]))
    daemon = Daemon(
        loaded,
        flows,
        parts,
        take_over=take_over,
        shared=shared is not False,
        exit_on_incident=exit_on_incident,
        reader=ConfigReader(named.read, named.files if watch_config else None, first),
        reloaded=observation.take,
    )
    with observation.running(daemon.stages, daemon.causes, daemon.config_fault) as sum_up:
        sys.exit(daemon.run(sum_up))


def _more_duties(
    observation: Observation,
    flow: Flow,
    ended: threading.Event,
    log: structlog.stdlib.BoundLogger,
    failed: Callable[[BaseException], None],
) -> None:
    """Start more duties of a flow with `groups`, or with schema registries. What it needs takes time to be imported."""
    if flow.groups.synced:
        from replicator.group_sync.watch import watch_groups

        watch_groups(flow, observation.groups(flow), ended, log, failed)
    if flow.schema_registry.synced:
        from replicator.schema_sync.watch import watch_schemas

        watch_schemas(flow, observation.schemas(flow), ended, log, failed)


def _check_options(names: Sequence[str], *, shared: bool | None, exit_on_incident: bool, watch_config: bool) -> None:
    """Check options of --runner spark. Raises ConfigError for one that goes with the daemon."""
    from replicator.model.errors import ConfigError

    if exit_on_incident:
        raise ConfigError("--exit-on-incident goes with --runner daemon: on Spark an incident ends the run")
    if watch_config:
        raise ConfigError("--watch-config goes with --runner daemon")
    if len(names) > 1:
        raise ConfigError("--runner spark runs one flow")
    if shared:
        raise ConfigError("--shared goes with --runner daemon: Spark has workers of its own")


def _tell_start(flows: Sequence[Flow]) -> None:
    """Write the first line of the log."""
    import structlog

    routes = {flow.name: f"{flow.source.name} -> {flow.target.name}" for flow in flows}
    clusters = {
        cluster.name: cluster.properties["bootstrap.servers"]
        for flow in flows
        for cluster in (flow.source, flow.target)
    }
    log = structlog.get_logger()
    log.info("started", version=__version__, flows=routes, clusters=clusters)


def _on_spark(
    loaded: Config,
    flow: Flow,
    take_over: bool,
    spark: tuple[str | None, tuple[str, ...]],
    log_options: tuple[str, str],
) -> int:
    """Run on Spark, and return the exit code. A signal before anything runs has nothing to finish."""
    import structlog

    from cli.commands import on_spark
    from cli.stopping import Stopping
    from replicator.jobs.continuous import Continuous
    from replicator.model.errors import ReplicatorError

    settings = on_spark.checked(loaded.spark, *spark)
    _tell_start([flow])
    log = structlog.get_logger().bind(flow=flow.name)
    job = Continuous(flow, loaded, log, take_over=take_over)

    def say(line: str) -> None:
        log.warning("executors", detail=line)

    try:
        running = on_spark.engine(settings, flow, *log_options, on_spark.to_stderr, say)
        with Stopping() as stopping, running as (_, engine):
            log.info("spark_started", master=settings.master, slots=engine.slots)

            def stop() -> None:
                log.info("stopping")
                job.stop()
                engine.cancel()  # now: the driver cancels too, but later, and Spark may have got the same signal

            with stopping.asks(stop):
                code = job.run(engine)
    except ReplicatorError as error:
        code = error.exit_code
        log.error("flow_ended", kind=type(error).__name__, detail=str(error), exit_code=code)
    except KeyboardInterrupt:
        code = 0
    log.info("stopped", exit_code=code)
    return code

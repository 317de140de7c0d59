"""One SparkSession for a command: checked before it starts, quiet while it runs, gone afterwards.

Local by default. The JVM's log goes into a bounded file beside Spark's scratch space, not over the terminal; when
something fails its last lines are part of the error.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replicator.model.errors import ConfigError, Unreachable
from replicator.spark import connector, defaults, gateway, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replicator.config import SparkSection

LOG_BYTES_MAX = 8 * 1024 * 1024
_TAIL_LINES = 12
_KILLED = re.compile(r"Application has been killed\. Reason: (.+)")
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {directory}/spark.log
appender.file.filePattern = {directory}/spark.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex{{20}}%n
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = {half}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
"""
_DEFAULTS = {
    "spark.app.name": "eos-replicate",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.log.structuredLogging.enabled": "false",
    # Each query's plan is kept as text for a web page that nobody sees here, and written anew whenever an adaptive plan
    # changes: up to 25 MB each where many ranges differ, without a bound by default.
    "spark.sql.maxPlanStringLength": str(64 * 1024),
    "spark.sql.ui.retainedExecutions": "20",
}
_FEW_CONSUMERS = {
    "spark.kafka.consumer.cache.capacity": "8",
    "spark.kafka.consumer.cache.timeout": "10s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "5s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
}
"""The connector keeps consumers that are idle, each with what it has fetched ahead, by default 64 of them for five
minutes; but each read has a group of its own, so none is ever used again. Those that are at work don't count."""
_STEADY = "-XX:+UseSerialGC -XX:MaxNewSize=128m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=20"
"""Garbage is collected early, and the old generation grows by little more than what lives in it: else the JVM's memory
grows with what is read, up to its maximum, whatever it needs."""
_FEW_SLOTS = {"spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1))}
"""Where Spark runs here: each task of a shuffle makes as many files, and what is shuffled is what differs."""
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs and how. `conf` are Spark's own properties; they win over every default here."""

    master: str = "local[*,4]"
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        """Whether driver and executors are one process here."""
        return self.master.split("[")[0] == "local"


def settings(section: SparkSection, master: str | None = None, conf: Sequence[str] = ()) -> SparkSettings:
    """Return the file's `spark:` section with the command line laid over it.

    Args:
        conf: `NAME=VALUE` each, as spark-submit takes them.

    Raises:
        ConfigError: an item is not of that form.
    """
    given: dict[str, str] = {}
    for item in conf:
        name, equals, value = item.partition("=")
        if not equals or not name.startswith("spark."):
            raise ConfigError(f"--conf {item}: expected spark.NAME=VALUE")
        given[name] = value
    named = given.pop("spark.master", "") or master
    if not named and "master" not in section.model_fields_set:
        named = configured().get("spark.master")
    return SparkSettings(named or section.master, {**section.conf, **given})


def configured() -> dict[str, str]:
    """Return what the installed Spark was configured with. Raises ConfigError."""
    try:
        return defaults.load(os.environ, connector.home())
    except OSError as error:
        raise ConfigError(f"{error.filename} can't be read: {error.strerror}") from error


def properties(chosen: SparkSettings, directory: Path, *, kafka: bool = True) -> dict[str, str]:
    """Return all of Spark's properties for `chosen`, with the connector for `kafka`. `directory` takes the log.

    What the installed Spark was configured with (spark-defaults.conf) wins over the defaults here, and `chosen` over
    both. Raises ConfigError, see `connector`.
    """
    options = f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}"
    here = chosen.local
    conf = {**_DEFAULTS, **_FEW_CONSUMERS, **(_FEW_SLOTS if here else {}), **configured(), **(_LOCAL if here else {})}
    conf |= {**chosen.conf, "spark.master": chosen.master}
    if chosen.local:
        conf.setdefault("spark.pyspark.python", sys.executable)
    conf.setdefault("spark.sql.warehouse.dir", str(directory / "warehouse"))
    given = conf.get("spark.driver.extraJavaOptions", "")
    steady = f"{_STEADY} " if chosen.local and "GC" not in given else ""  # a JVM takes one collector
    conf["spark.driver.extraJavaOptions"] = f"{options} {steady}{given}".strip()
    return connector.with_connector(conf) if kafka else conf


def _to_stderr(line: str) -> None:
    """Write to stderr where no log is configured: stdout is for results."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def session(
    chosen: SparkSettings, *, kafka: bool = True, say: Callable[[str], object] = _to_stderr
) -> Iterator[SparkSession]:
    """Start Spark and stop it, with its JVM, at the end. One at a time in a process.

    Args:
        kafka: with the Kafka connector, which Spark may have to download first.
        say: takes a line for people before anything is downloaded.

    Raises:
        ConfigError: Java, pyspark or the connector is missing or does not fit.
        Unreachable: Spark does not start: the master does not answer, the connector cannot be had, a property is
            refused; the end of Spark's log is in the message.
    """
    java.check(os.environ)
    logging.getLogger().addFilter(_not_py4j)
    with tempfile.TemporaryDirectory(prefix="eos-spark-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        (directory / "log4j2.properties").write_text(_LOG4J.format(directory=directory, half=LOG_BYTES_MAX // 2))
        conf = properties(chosen, directory, kafka=kafka)
        downloads = connector.to_download(conf)
        if downloads:
            say(downloads)
        with ExitStack() as running:
            try:
                started = running.enter_context(gateway.jvm(conf, directory))
            except Unreachable as error:
                raise Unreachable(f"{error}{_tail(directory)}") from error
            spark = _started(conf, started, directory)
            running.callback(_stop, spark)
            yield spark


def _started(conf: Mapping[str, str], started: Any, directory: Path) -> SparkSession:
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from replicator.spark.cause import BROKEN

    try:
        # The JVM's own properties too: spark-submit has put there where it downloaded the connector to, and executors
        # on other hosts are sent what `spark.jars` names.
        spark_conf = SparkConf(loadDefaults=True, _jvm=started.jvm).setAll(list(conf.items()))
        context = SparkContext(conf=spark_conf, gateway=started)
        # Only spark-submit heeds this property; without it tasks would run on whatever python3 is on PATH.
        context.pythonExec = conf.get("spark.pyspark.python", context.pythonExec)
        # It would print a traceback when the JVM ends before us; nothing here uses accumulators.
        context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
        return SparkSession(context)
    except Py4JJavaError as error:
        reason = _killed(directory) or str(error.java_exception.toString()).partition("\n")[0]
        raise _not_started(conf, directory, reason) from error
    except BROKEN as error:
        raise _not_started(conf, directory, "its JVM has ended") from error
    except PySparkException as error:
        raise _not_started(conf, directory, str(error)) from error


def _not_started(conf: Mapping[str, str], directory: Path, reason: str) -> Unreachable:
    return Unreachable(f"Spark (master {conf['spark.master']}) did not start: {reason}{_tail(directory)}")


def _not_py4j(record: logging.LogRecord) -> bool:
    """Leave out what py4j logs, with its traceback, of each error that it raises; whoever catches it says what it
    means.
    """
    return record.module not in ("java_gateway", "clientserver")


def _stop(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError

    try:
        spark.stop()
    except (Py4JError, OSError):  # the JVM has ended before us: a signal went to the whole process group, or it crashed
        spark.sparkContext.stop()  # what is left of it in this process


def _killed(directory: Path) -> str:
    """Say why the master ended the application, or couldn't be reached: Spark then only says that it was stopped."""
    log = directory / "spark.log"
    said = _KILLED.findall(log.read_text(errors="replace")) if log.exists() else []
    return str(said[-1]) if said else ""


def _tail(directory: Path) -> str:
    """Return the last lines of what the JVM said, for an error; without the frames of its stack traces."""
    said = [
        line
        for name in ("launch.log", "spark.log")
        if (directory / name).exists()
        for line in (directory / name).read_text(errors="replace").splitlines()
        if line.strip() and not line.lstrip().startswith(("at ", "... "))
    ]
    return "".join(f"\n  {line[:200]}" for line in said[-_TAIL_LINES:])

"""The executors of a cluster: what is looked at before anything depends on them, and what is said while there are none.

Used by `engine`. What an executor lacks is told with what an operator does about it.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any, NamedTuple

from pyspark import SparkContext

from replicator.config import Flow
from replicator.model.errors import ConfigError
from replicator.spark.cause import ADVICE, FAILURES, PACKAGE

ALONE_S, AGAIN_S = 15.0, 60.0
"""So long tasks wait without any executor before that is said, and so long between two lines about it."""
LOOK_S = 1.0
_FILE = re.compile(r".+\.(location|keytab|file)")
_NO_FILE = "probe"  # librdkafka looks for one itself
_FILES_ADVICE = "put them there under the same path, or give their content instead (ssl.ca.pem: file:…)"


class ExecutorState(NamedTuple):
    """What one task found where it ran. `process`: the parent of Python workers, one for each executor."""

    host: str
    process: int
    version: str
    lacking: tuple[str, ...]


Looker = Callable[[int], tuple[str, int, str, tuple[str, ...]]]


def looker(modules: Sequence[str], files: Sequence[str]) -> Looker:
    """Return what a task is to run; it answers the fields of `ExecutorState`.

    Pickled by its value: where it runs there may be another version of this module, or none, and that is to be told.

    Args:
        modules: are imported where the version is the driver's.
        files: paths that must exist.
    """
    ours, package = version(), PACKAGE

    def look(_: int) -> tuple[str, int, str, tuple[str, ...]]:
        import os
        import socket
        import sys
        from importlib import import_module, metadata

        python = ".".join(map(str, sys.version_info[:2]))
        try:
            there = f"{metadata.version(package)} on Python {python}"
        except metadata.PackageNotFoundError:
            there = f"not installed on Python {python}"
        for name in modules if there == ours else ():
            import_module(name)
        lacking = tuple(path for path in files if not os.path.exists(path))
        return socket.gethostname(), os.getppid(), there, lacking

    return look


def version() -> str:
    """Return the version of this package and of Python, here."""
    python = ".".join(map(str, sys.version_info[:2]))
    try:
        return f"{metadata.version(PACKAGE)} on Python {python}"
    except metadata.PackageNotFoundError:
        return f"not installed on Python {python}"


def check(found: ExecutorState) -> None:
    """Raise ConfigError when tasks can't run where this was found."""
    ours = version()
    if found.version != ours:
        raise ConfigError(f"{PACKAGE} is {ours} here and {found.version} on executor {found.host}; {ADVICE}")
    if found.lacking:
        raise ConfigError(
            f"executor {found.host} has no {', '.join(found.lacking)}, which the flow file's properties name; "
            f"{_FILES_ADVICE}"
        )


def files_of(flow: Flow) -> tuple[str, ...]:
    """Return the paths that client properties of the flow's clusters name: their clients run in tasks, too."""
    properties = [item for cluster in (flow.source, flow.target) for item in cluster.properties.items()]
    programs = {cluster.token_command[0] for cluster in (flow.source, flow.target) if cluster.token_command}
    paths = {path for name, path in properties if _FILE.fullmatch(name) and path != _NO_FILE}
    return tuple(sorted(paths | {name for name in programs if name.startswith("/")}))


class Absence:
    """When to say that tasks wait and there is no executor. Pure; times are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._said_s: float | None = None

    def look(self, now_s: float, tasks: int, executors: int) -> float | None:
        """Say for how long there was none, if that is to be said now; 0 when there is one again after it was said."""
        if executors or not tasks:
            said, self._since_s, self._said_s = self._said_s, None, None
            return 0.0 if executors and said is not None else None
        self._since_s = now_s if self._since_s is None else self._since_s
        if now_s < (self._since_s + ALONE_S if self._said_s is None else self._said_s + AGAIN_S):
            return None
        self._said_s = now_s
        return now_s - self._since_s


class ExecutorWatch:
    """Says so when tasks wait and there is no executor for them: Spark itself waits in silence, for ever."""

    def __init__(self, context: SparkContext, say: Callable[[str], object]) -> None:
        """`say` takes a line for people, in a thread of its own."""
        self._context: Any = context
        self._say = say
        self._tasks, self._lock = 0, threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="spark-executors", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    @contextmanager
    def waiting(self, tasks: int) -> Iterator[None]:
        """Note that so many tasks wait or run while the block does."""
        with self._lock:
            self._tasks += tasks
        try:
            yield
        finally:
            with self._lock:
                self._tasks -= tasks

    def executors(self) -> int:
        """Count the executors that there are now. Raises what `FAILURES` lists."""
        return int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # it counts the driver, too

    def _watch(self) -> None:
        absence = Absence()
        while not self._over.wait(LOOK_S):
            try:
                for_s = absence.look(time.monotonic(), self._tasks, self.executors())
            except FAILURES:  # Spark has ended: whoever waits for a task is told
                return
            if for_s == 0.0:
                self._say("Spark has executors again")
            elif for_s is not None:
                self._say(self._explained(for_s))

    def _explained(self, for_s: float) -> str:
        conf = self._context.getConf()
        cores, memory = conf.get("spark.executor.cores", "all"), conf.get("spark.executor.memory", "1g")
        driver = f"{conf.get('spark.driver.host', '?')}:{conf.get('spark.driver.port', '?')}"
        return (
            f"no executor for {for_s:.0f} s: no worker of {self._context.master} has {cores} cores and {memory} of "
            "memory free (spark.executor.cores, spark.executor.memory; other applications take all cores that their "
            f"spark.cores.max doesn't leave), or executors can't reach the driver at {driver} (spark.driver.host); the "
            "master's page and the workers' logs tell which"
        )

"""Where the log lines of tasks go: on a cluster to their executor's stderr, locally to whoever started the job.

Locally a task's stderr is the JVM's, which goes into a file that nobody reads: its lines come back through a FIFO.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from replicator import logs

_END = "\x04\n"


@dataclass(frozen=True, slots=True)
class TaskLog:
    """How a task logs: see `logs.configure`. `fifo` takes the lines instead of stderr."""

    log_format: str = "json"
    level: str = "info"
    fifo: str = ""


@cache
def configure(how: TaskLog) -> None:
    """Set up the log of a task's process, which may run many tasks: once."""
    file = open(how.fifo, "w", buffering=1) if how.fifo else sys.stderr  # noqa: SIM115 - open as long as the process
    logs.configure(how.log_format, how.level, file)


@contextmanager
def forwarded(log_format: str, level: str, write: Callable[[str], object]) -> Iterator[TaskLog]:
    """Make a log for tasks on this machine; `write` gets their lines, without the newline, in a thread of its own."""
    with tempfile.TemporaryDirectory(prefix="eos-tasks-", ignore_cleanup_errors=True) as directory:
        fifo = Path(directory, "log")
        os.mkfifo(fifo, 0o600)
        # A reader and writer of our own: opening waits for nobody, and the other reader sees no end before ours.
        with open(os.open(fifo, os.O_RDWR), "r+b", buffering=0) as keep:
            reader = threading.Thread(target=_forward, args=(fifo, write), name="task-log", daemon=True)
            reader.start()
            try:
                yield TaskLog(log_format, level, str(fifo))
            finally:
                keep.write(_END.encode())
                reader.join()


def _forward(fifo: Path, write: Callable[[str], object]) -> None:
    with fifo.open(errors="replace") as lines:
        for line in lines:
            if line.endswith(_END):  # perhaps behind the half line of a task that was killed
                return
            write(line.rstrip("\n"))

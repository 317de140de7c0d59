"""The console of what is shown while a command works, and the capture of file descriptor 2 while that is a live table:
C libraries and the JVM write there directly."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

STDERR = 2
_END_S_MAX = 1.0  # a child that has inherited the descriptor keeps the pipe open; don't wait for it


@contextmanager
def stderr_lines(write: Callable[[str], object]) -> Iterator[None]:
    """Send whatever goes to file descriptor 2 while the block runs to `write`, line by line, in another thread."""
    sys.stderr.flush()
    kept = os.dup(STDERR)
    reading, writing = os.pipe()
    os.dup2(writing, STDERR)
    os.close(writing)

    def forward() -> None:
        with open(reading, errors="replace") as lines:
            for line in lines:
                write(line.rstrip("\n"))

    forwarder = threading.Thread(target=forward, name="stderr", daemon=True)
    forwarder.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, STDERR)
        os.close(kept)
        forwarder.join(_END_S_MAX)


def console_for_progress() -> Console:
    """Return a console on stderr: stdout is for results. On a terminal with a descriptor of its own, see
    `stderr_lines`.
    """
    from rich.console import Console

    if not sys.stderr.isatty():
        return Console(stderr=True, highlight=False, width=160)
    return Console(file=os.fdopen(os.dup(STDERR), "w"), highlight=False)

"""A process group for a command that must not outlive this process. Used by `token_command` and a failover's hooks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_GUARD = "import os, sys; sys.stdin.read(); os.killpg(0, 9)"
"""Leads the process group of a command, and kills it once its own standard input ends, which whoever runs the command
holds. It is there before the command is: there is no moment at which nobody would end that."""


@contextmanager
def child_group() -> Iterator[int]:
    """Make a process group that is killed at the end of the block, or when this process ends, whatever ends it."""
    with subprocess.Popen(
        [sys.executable, "-ISc", _GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    ) as guard:
        try:
            yield guard.pid
        finally:
            with suppress(ProcessLookupError, PermissionError):  # nothing is left of the group, or nothing of ours
                os.killpg(guard.pid, signal.SIGKILL)

"""Runs a command that must not outlive this process. Used by `token_command` and a failover's hooks.

Invariants
- The command, and all that it has started and left in its process group, ends with it, at its deadline at the latest,
  and with this process, whatever ends that.
- Of a run nothing is left here, no thread and no open pipe, whoever holds the other ends.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO

READ_BYTES = 64 * 1024
PIPE_READS_MAX = 16
"""How often a pipe is read once the command has ended: a pipe holds 1 MiB at most, and whatever has left the process
group may fill it for ever."""
ENDED_AGAIN_S = 0.05
"""How often it is looked whether a command has ended whose pipes others hold: no event tells that everywhere."""
_GUARD = "import os, sys; sys.stdin.read(); os.killpg(0, 9)"
"""Leads the process group of a command, and kills it once its own standard input ends, which whoever runs the command
holds. It is there before the command is: there is no moment at which nobody would end that."""


class LastBytes:
    """The last bytes of a stream that may have no end; the first `left_out` aren't kept."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self.kept, self.left_out = bytes_max, bytearray(), 0

    def add(self, chunk: bytes) -> None:
        """Add what comes next."""
        self.kept += chunk
        over = max(0, len(self.kept) - self._bytes_max)
        del self.kept[:over]
        self.left_out += over

    def text(self) -> str:
        """Return what is kept."""
        return self.kept.decode(errors="replace")


def run_child(command: Sequence[str], timeout_s: float, *outputs: LastBytes, given: bytes = b"") -> int | None:
    """Run a command: its exit code; None: it was killed at its deadline.

    Args:
        outputs: get what it writes to standard output and to standard error; a single one gets both.
        given: its standard input, which it need not read.

    Raises OSError, ValueError: it can't be started.
    """
    with (
        _child_group() as group,
        subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if len(outputs) > 1 else subprocess.STDOUT,
            process_group=group,  # which an interrupt of the terminal doesn't reach
        ) as process,
    ):
        try:
            return _carried(process, time.monotonic() + timeout_s, outputs, given)
        finally:
            process.kill()  # should it have left the group
            process.wait()


@contextmanager
def _child_group() -> Iterator[int]:
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


def _carried(
    process: subprocess.Popen[bytes], deadline_s: float, outputs: Sequence[LastBytes], given: bytes
) -> int | None:
    """Write and read until the command ends: its exit code; None at the deadline."""
    left = memoryview(given)

    def write(pipe: IO[bytes]) -> bool:
        nonlocal left
        with suppress(BrokenPipeError):  # it need not read it
            left = left[os.write(pipe.fileno(), left) :]
            return bool(left)
        return False

    with selectors.DefaultSelector() as selector:
        if process.stdin is not None:
            _watch(selector, process.stdin, selectors.EVENT_WRITE, write)
        for pipe, output in zip((process.stdout, process.stderr), outputs, strict=False):
            assert pipe is not None
            _watch(selector, pipe, selectors.EVENT_READ, partial(_read, output))
        code = None
        while code is None and (left_s := deadline_s - time.monotonic()) > 0:
            if selector.get_map():
                _carry(selector, min(left_s, ENDED_AGAIN_S))
                code = process.poll()
            else:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(left_s)
        for _ in range(PIPE_READS_MAX):  # what it wrote last
            _carry(selector, 0)
    return code


def _watch(selector: selectors.BaseSelector, pipe: IO[bytes], event: int, carry: Callable[[IO[bytes]], bool]) -> None:
    os.set_blocking(pipe.fileno(), False)
    selector.register(pipe, event, (pipe, carry))


def _carry(selector: selectors.BaseSelector, timeout_s: float) -> None:
    """Write and read what the pipes take and give now, and close those that have ended."""
    for key, _ in selector.select(timeout_s):
        pipe, carry = key.data
        if not carry(pipe):
            selector.unregister(pipe)
            pipe.close()


def _read(output: LastBytes, pipe: IO[bytes]) -> bool:
    chunk = os.read(pipe.fileno(), READ_BYTES)
    output.add(chunk)
    return bool(chunk)

"""Runs the commands that a flow file names for the steps of a failover.

Invariants
- A hook, and all that it has started and left in its process group, ends with the hook, at its deadline, with the
  command that runs it, and with that command's death, whatever kills it.
- No shell reads anything. What is known stands as JSON on standard input; a hook need not read it.
- A hook may be run again: whoever repeats the command repeats its hooks.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from replicator.kafka.child_group import child_group

OUTPUT_BYTES_MAX = 16 * 1024
"""Of what a hook has written its end is kept: there stands why it failed."""
READ_BYTES = 64 * 1024
END_S_MAX = 1.0  # what has left the process group may hold the pipe for ever


@dataclass(frozen=True, slots=True)
class HookResult:
    """How a hook ended. `failure`: why it failed, empty where it didn't. `output`: the end of what it has written to
    both streams, of which the first `left_out` bytes are not kept."""

    failure: str
    output: str
    left_out: int = 0


def cannot_start(command: Sequence[str]) -> str:
    """Say why a command can't be started; empty where it can, as far as that can be told without starting it."""
    name = command[0]
    if shutil.which(name) is not None:
        return ""
    if "/" not in name:
        return f"there is no executable {name} in PATH"
    if os.path.isdir(name):
        return f"{name} is a directory"
    return f"{name} is not executable" if os.path.exists(name) else f"there is no file {name}"


def run_hook(command: Sequence[str], facts: Mapping[str, Any], timeout_s: float) -> HookResult:
    """Run a hook to its end, or to its deadline. `facts`: what it gets as JSON. An interrupt ends it, too."""
    with child_group() as group:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=group,  # which an interrupt of the terminal doesn't reach
            )
        except OSError as error:
            return HookResult(f"it can't be started: {error.strerror or error}", "")
        output = _LastBytes(OUTPUT_BYTES_MAX)
        threads = (
            threading.Thread(target=_write, args=(process.stdin, json.dumps(facts).encode() + b"\n"), daemon=True),
            threading.Thread(target=_read, args=(process.stdout, output), daemon=True),
        )
        for thread in threads:
            thread.start()
        try:
            failure = _ended(process.wait(timeout_s))
        except subprocess.TimeoutExpired:
            failure = f"it didn't end within {timeout_s:g} s, and was killed"
        finally:
            process.kill()  # should it have left the group
            process.wait()
    for thread in threads:
        thread.join(END_S_MAX)
    return HookResult(failure, output.text(), output.left_out)


def _ended(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}" if code else ""
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    return f"it was ended by {name}"


def _write(stream: IO[bytes] | None, text: bytes) -> None:
    assert stream is not None
    with suppress(BrokenPipeError), stream:  # it need not read it
        stream.write(text)


def _read(stream: IO[bytes] | None, output: _LastBytes) -> None:
    assert stream is not None
    with stream:
        while chunk := os.read(stream.fileno(), READ_BYTES):
            output.add(chunk)


class _LastBytes:
    """The last bytes of a stream that may have no end."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._kept, self.left_out = bytes_max, b"", 0

    def add(self, chunk: bytes) -> None:
        kept = self._kept + chunk
        self._kept = kept[-self._bytes_max :]
        self.left_out += len(kept) - len(self._kept)

    def text(self) -> str:
        return self._kept.decode(errors="replace")

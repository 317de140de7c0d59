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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replicator.kafka.child_group import LastBytes, run_child

OUTPUT_BYTES_MAX = 16 * 1024
"""Of what a hook has written its end is kept: there stands why it failed."""


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
    output = LastBytes(OUTPUT_BYTES_MAX)
    try:
        code = run_child(command, timeout_s, output, given=json.dumps(facts).encode() + b"\n")
    except OSError as error:
        return HookResult(f"it can't be started: {error.strerror or error}", "")
    failure = f"it didn't end within {timeout_s:g} s, and was killed" if code is None else _ended(code)
    return HookResult(failure, output.text(), output.left_out)


def _ended(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}" if code else ""
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    return f"it was ended by {name}"

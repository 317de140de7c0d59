"""Processes below another one, as Linux tells: which Python workers of Spark there are, and which stand still."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

WAIT_S_MAX = 180.0
POLL_S = 0.05


class Process(NamedTuple):
    """One process. `state` is a letter of proc(5): T is stopped by a signal, Z dead and not yet waited for."""

    pid: int
    parent: int
    state: str
    command: bytes


def processes() -> Iterator[Process]:
    """All processes there are now."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
                yield Process(int(path.name), int(parent), state, (path / "cmdline").read_bytes())


def python_workers(*roots: int) -> list[Process]:
    """Spark's Python workers that run below any of these processes: forked by a daemon, whose command they keep."""
    found = {process.pid: process for process in processes()}

    def below(process: Process) -> bool:
        while process.parent in found and process.pid not in roots:
            process = found[process.parent]
        return process.pid in roots

    daemons = {process.pid for process in found.values() if b"pyspark.daemon" in process.command}
    return [item for item in found.values() if item.parent in daemons and item.state != "Z" and below(item)]


def alive(pid: int) -> bool:
    """Whether a process with this id runs."""
    return any(process.pid == pid and process.state != "Z" for process in processes())


def wait_until(fits: Callable[[], object], meaning: str, report: Callable[[], str]) -> None:
    """Look until it fits; `report` is added to the message when it never does."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not fits():
        assert time.monotonic() < deadline, f"not within {WAIT_S_MAX} s: {meaning}\n{report()}"
        time.sleep(POLL_S)

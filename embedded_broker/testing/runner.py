"""What runs a broker for a test: a thread of the test's own process, or a process. Both do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

HOST = "127.0.0.1"
READY_S_MAX = 60.0
STOP_S_MAX = 30.0


class BrokerDied(RuntimeError):
    """The broker could not start, or has ended by itself."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a broker is started with. Only plain values: they cross to another process."""

    data_dir: Path
    log: Path
    """Gets who connected, and what went wrong."""
    port: int
    fsync: str
    settings: Mapping[str, str]
    """Under Kafka's names."""


OnHit = Callable[[int], None]
"""Called by another thread with the number of a fault that has struck."""


class Runner(Protocol):
    """One life of a broker. Its methods are the test's; they return when what they ask for is so."""

    def start(self, launch: Launch, faults: Mapping[int, Mapping[str, Any]]) -> None:
        """Return when connections are accepted, with these faults in force from the first.

        Raises BrokerDied; ValueError for settings or faults that don't exist.
        """

    def add_fault(self, number: int, spec: Mapping[str, Any]) -> None:
        """Fields of `faults.FaultSpec`. Raises ValueError."""

    def release_fault(self, number: int) -> None:
        """Let go what it holds."""

    def remove_faults(self, numbers: list[int] | None) -> None:
        """Some, or all."""

    def alive(self) -> bool:
        """Whether it runs."""

    def stop(self) -> None:
        """End it cleanly. Raises BrokerDied when it had failed before."""

    def kill(self) -> None:
        """End it between two steps; nothing is finished, flushed or said to clients."""

"""The interface between `KafkaBroker` and what runs the broker: a thread of the test's process, or another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

HOST = "127.0.0.1"
READY_S_MAX = 60.0
STOP_S_MAX = 30.0


class BrokerDied(RuntimeError):
    """The broker could not start, or has failed."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Arguments of a start. Only plain values, since they are sent to another process as JSON."""

    data_dir: Path
    log: Path
    """File for the broker's log."""
    port: int
    fsync: str
    settings: Mapping[str, str]
    """Under Kafka's names."""


OnHit = Callable[[int], None]
"""Called from the broker's thread with the number of a fault, each time that it affects a request."""


class Runner(Protocol):
    """One run of a broker. Its methods are called from the test's thread and return when their effect has happened."""

    def start(self, launch: Launch, faults: Mapping[int, Mapping[str, Any]]) -> None:
        """Return when connections are accepted, with these faults in effect from the first request.

        Raises BrokerDied; ValueError for settings or faults that don't exist.
        """

    def add_fault(self, number: int, spec: Mapping[str, Any]) -> None:
        """Inject a fault with the fields of `faults.FaultSpec`. Raises ValueError for an invalid one."""

    def release_fault(self, number: int) -> None:
        """Let the requests that the fault holds proceed."""

    def remove_faults(self, numbers: list[int] | None) -> None:
        """Remove the faults with these numbers; None: all."""

    def alive(self) -> bool:
        """Return whether the broker runs."""

    def stop(self) -> None:
        """End the broker cleanly. Raises BrokerDied when it had failed before."""

    def kill(self) -> None:
        """End the broker at once; nothing is finished, flushed or answered."""

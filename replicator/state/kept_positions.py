"""Who commits the positions of a flow that was failed over again: a record of the flow's claims topic, like `flow_end`.
Pure.

Nobody owns the positions then, so nothing else says who keeps them from expiring. `flow.frozen` has it written;
`status` and `workers` show it for as long as the flow is failed over. Nothing is decided by it, so older versions may
ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replicator.state.control_topic import Control
from replicator.state.envelope import wrap

POSITIONS_KEPT = "positions_kept"
KEY = b"positions_kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPositions:
    """The process `owner` has committed so many `partitions` again, last at `at_ms` (ms since 1970 UTC), under this
    generation."""

    owner: str
    at_ms: int
    partitions: int
    generation: int

    @property
    def key(self) -> bytes:
        """Key of the record: a new one replaces it."""
        return KEY

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value of the record."""
        content = {
            "owner": self.owner,
            "at_ms": self.at_ms,
            "partitions": self.partitions,
            "generation": self.generation,
        }
        return self.key, wrap(POSITIONS_KEPT, content, must_understand=False)


def decode(body: Mapping[str, Any]) -> KeptPositions:
    """Decode the record, given its content. Raises KeyError, ValueError, TypeError."""
    return KeptPositions(
        owner=str(body["owner"]),
        at_ms=int(body["at_ms"]),
        partitions=int(body["partitions"]),
        generation=int(body["generation"]),
    )


def kept_now(control: Control | None, found: KeptPositions | None) -> KeptPositions | None:
    """Return the note, if it is of the failover that stands; else None."""
    frozen = None if control is None else control.frozen
    return found if found is not None and frozen is not None and found.generation == frozen.number else None

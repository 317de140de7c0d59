"""How a flow has ended in a process that goes on with other flows: a record of the flow's claims topic. Pure.

Nobody sees the end of such a process. Nothing is decided by the record, so older versions may ignore it, and it isn't
part of any transaction: `flow.daemon` has it written, `status` shows it until lanes own positions that are newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replicator.state.envelope import wrap

ENDED = "ended"
KEY = b"ended"
DETAIL_LENGTH_MAX = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEnd:
    """The error that ended it: the name of its class, its text, and the exit code of that flow. `incident`: the name of
    one that concerns the whole flow."""

    kind: str
    detail: str
    exit_code: int
    owner: str
    at_ms: int
    incident: str = ""
    generation: int = 0
    """Of no generation: the newest record counts."""

    @property
    def key(self) -> bytes:
        """Key of the record: a new one replaces it."""
        return KEY

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value of the record."""
        content = {
            "error": self.kind,
            "detail": self.detail[:DETAIL_LENGTH_MAX],
            "exit_code": self.exit_code,
            "owner": self.owner,
            "at_ms": self.at_ms,
            "incident": self.incident,
        }
        return self.key, wrap(ENDED, content, must_understand=False)


def decode(body: Mapping[str, Any]) -> FlowEnd:
    """Decode the record, given its content. Raises KeyError, ValueError, TypeError."""
    return FlowEnd(
        kind=str(body["error"]),
        detail=str(body["detail"]),
        exit_code=int(body["exit_code"]),
        owner=str(body["owner"]),
        at_ms=int(body["at_ms"]),
        incident=str(body.get("incident", "")),
    )

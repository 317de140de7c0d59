"""That a flow file could not be read again: a record of the flow's claims topic, like `flow_end`. Pure.

The process that runs the flow goes on with the settings that it has, and nobody sees that: `flow.daemon` has the fault
noted, and that it is over, `status` shows it until lanes of another process own positions that are newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replicator.state.envelope import wrap

CONFIG_FAULT = "config_fault"
KEY = b"config_fault"
DETAIL_LENGTH_MAX = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFault:
    """What the file's error says; empty once the file was read without one."""

    detail: str
    owner: str
    at_ms: int
    generation: int = 0
    """Of no generation: the newest record counts."""

    @property
    def key(self) -> bytes:
        """Key of the record: a new one replaces it."""
        return KEY

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value of the record."""
        content = {"detail": self.detail[:DETAIL_LENGTH_MAX], "owner": self.owner, "at_ms": self.at_ms}
        return self.key, wrap(CONFIG_FAULT, content, must_understand=False)


def decode(body: Mapping[str, Any]) -> ConfigFault:
    """Decode the record, given its content. Raises KeyError, ValueError, TypeError."""
    return ConfigFault(detail=str(body["detail"]), owner=str(body["owner"]), at_ms=int(body["at_ms"]))

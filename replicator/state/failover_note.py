"""That a flow was failed over, and with what verdict: a record of the control topic. Pure.

Every start of a lane reads that topic whole, so only a summary stands there; its digest says which file of rows belongs
to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from replicator.state.envelope import wrap

FAILOVER = "failover"
KEY = b"failover"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverNote:
    """The newest one counts. `not_copied`: source offsets that are known not to be copied."""

    generation: int
    at_ms: int
    by: str
    complete: bool
    not_copied: int
    partitions: int
    groups: int
    digest: str

    def encode(self) -> tuple[bytes, bytes]:
        """Key and value of the record."""
        content = {
            "generation": self.generation,
            "at_ms": self.at_ms,
            "by": self.by,
            "complete": self.complete,
            "not_copied_at_least": self.not_copied,
            "partitions": self.partitions,
            "groups": self.groups,
            "sha256": self.digest,
        }
        return KEY, wrap(FAILOVER, content, must_understand=False)

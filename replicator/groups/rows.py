"""Where a partition of a group stands on both sides, as `groups` shows it. Pure values."""

from __future__ import annotations

from typing import Any, NamedTuple

from replicator.groups.decision import VERDICTS_SAID, GroupVerdict
from replicator.model.partition import Partition


class GroupRow(NamedTuple):
    """One partition of one group.

    Attributes:
        source, target: the next offset to be consumed on each side; None: there is none, or it isn't known.
        again: how many records a consumer of the target reads again; None: not known.
        exact: whether it skips nothing and reads nothing again.
        notes: of the translation, see `TranslatedOffset`.
        detail: what else is to be known, such as a cluster's refusal.
        looked_ms: when both sides were looked at last (ms since 1970 UTC); 0: never.
    """

    at: Partition
    target_at: Partition
    source: int | None
    target: int | None
    verdict: GroupVerdict
    again: int | None = None
    exact: bool = False
    notes: tuple[str, ...] = ()
    detail: str = ""
    looked_ms: int = 0

    @property
    def in_sync(self) -> bool:
        """Whether the group stands at the target where it stands at the source."""
        return self.verdict is GroupVerdict.IN_SYNC

    @property
    def said(self) -> str:
        """Why it isn't in sync, or what is to be known; empty for one that is exact."""
        if self.in_sync and self.exact:
            return ""
        why = VERDICTS_SAID[self.verdict] if not self.in_sync else ""
        again = "" if not self.in_sync or self.again is None else f"{self.again:,} records are read again"
        return "; ".join(filter(None, (why, again, self.detail)))

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "topic": self.at.topic,
            "partition": self.at.partition,
            "target_topic": self.target_at.topic,
            "source_offset": self.source,
            "target_offset": self.target,
            "verdict": self.verdict.value,
            "exact": self.exact,
            "again": self.again,
            "notes": list(self.notes),
            "looked_ms": self.looked_ms,
            **({"detail": self.detail} if self.detail else {}),
        }

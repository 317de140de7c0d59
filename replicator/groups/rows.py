"""Where each partition of each group stands on both sides, as `run`, `status` and the page show it. Pure values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
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
        """For machines."""
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
            **({"detail": self.detail} if self.detail else {}),
        }


class GroupShown(NamedTuple):
    """A group, by its names on both sides. `detail`: why nothing is known of its partitions."""

    group: str
    target_group: str
    rows: tuple[GroupRow, ...] = ()
    detail: str = ""

    @property
    def counts(self) -> dict[GroupVerdict, int]:
        """How many partitions have each verdict, the most frequent first."""
        return dict(Counter(row.verdict for row in self.rows).most_common())

    @property
    def in_sync(self) -> int:
        """How many partitions are."""
        return sum(row.in_sync for row in self.rows)

    @property
    def again(self) -> int:
        """How many records are read again, as far as that is known."""
        return sum(row.again or 0 for row in self.rows if row.in_sync)

    @property
    def said(self) -> str:
        """The group in a few words."""
        if self.detail:
            return self.detail
        why = [f"{number} {verdict.value}" for verdict, number in self.counts.items() if not verdict.settled]
        return ", ".join(why) or "in sync"

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "group": self.group,
            "target_group": self.target_group,
            "partitions": [row.as_json() for row in self.rows],
            **({"detail": self.detail} if self.detail else {}),
        }


def in_sync(groups: Iterable[GroupShown]) -> int:
    """How many groups have all partitions in sync."""
    return sum(not it.detail and it.in_sync == len(it.rows) for it in groups)

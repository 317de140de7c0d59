"""Where each group stands on both sides, as `run`, `status`, `groups` and the page show it. Pure values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from replicator.groups.decision import GroupVerdict
from replicator.groups.row_columns import RowColumns
from replicator.groups.rows import GroupRow

NOTHING = "it has no offset in a topic that the flow copies"


class GroupShown(NamedTuple):
    """A group, by its names on both sides.

    Attributes:
        detail: why nothing is known of its partitions, or is done with them.
        looked_ms: when both sides were looked at last (ms since 1970 UTC); 0: never.
        unknown: why that isn't known any more; what was seen then may be out of date.
        kind: `share` for a share group.
    """

    group: str
    target_group: str
    topics: tuple[RowColumns, ...] = ()
    detail: str = ""
    looked_ms: int = 0
    unknown: str = ""
    kind: str = ""

    @property
    def rows(self) -> list[GroupRow]:
        """Its partitions, in their order."""
        rows = (row._replace(looked_ms=self.looked_ms) for topic in self.topics for row in topic)
        if not self.unknown:
            return list(rows)
        return [row._replace(verdict=GroupVerdict.UNKNOWN, detail=self.unknown) for row in rows]

    @property
    def partitions(self) -> int:
        """How many there are."""
        return sum(map(len, self.topics))

    @property
    def counts(self) -> dict[GroupVerdict, int]:
        """How many partitions have each verdict, the most frequent first."""
        if self.unknown:
            return {GroupVerdict.UNKNOWN: self.partitions} if self.partitions else {}
        found = Counter[GroupVerdict]()
        for topic in self.topics:
            found.update(topic.counts())
        return dict(found.most_common())

    @property
    def in_sync(self) -> int:
        """How many partitions are."""
        return self.counts.get(GroupVerdict.IN_SYNC, 0)

    @property
    def settled(self) -> bool:
        """Whether it stands where it should, as far as the source has an offset."""
        return not (self.detail or self.unknown) and all(verdict.settled for verdict in self.counts)

    @property
    def without_offsets(self) -> bool:
        """Whether there is nothing to be synced: it is settled, and not in sync."""
        return self.settled and not self.partitions

    @property
    def again(self) -> int:
        """How many records are read again, as far as that is known."""
        return 0 if self.unknown else sum(topic.again for topic in self.topics)

    @property
    def again_unknown(self) -> int:
        """Of how many partitions that isn't known."""
        return self.partitions if self.unknown else sum(topic.again_unknown for topic in self.topics)

    @property
    def again_said(self) -> str:
        """How many records are read again, in words."""
        return f"at least {self.again:,}" if self.again_unknown else f"{self.again:,}"

    @property
    def said(self) -> str:
        """The group in a few words."""
        return f"share group: {self._said}" if self.kind == "share" else self._said

    @property
    def _said(self) -> str:
        if self.detail or self.unknown:
            return self.detail or f"unknown: {self.unknown}"
        if not self.partitions:
            return NOTHING
        why = [f"{number} {verdict.value}" for verdict, number in self.counts.items() if not verdict.settled]
        return ", ".join(why) or "in sync"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "group": self.group,
            "target_group": self.target_group,
            "kind": self.kind or "consumer",
            "partitions": [row.as_json() for row in self.rows],
            "looked_ms": self.looked_ms,
            **({"detail": self.detail} if self.detail else {}),
            **({"unknown": self.unknown} if self.unknown else {}),
        }


def in_sync(groups: Iterable[GroupShown]) -> int:
    """Count how many groups stand where they should; one without any offset stands nowhere."""
    return sum(it.settled and bool(it.partitions) for it in groups)


class GroupObserver(Protocol):
    """Is told where each group stands."""

    def __call__(self, groups: Sequence[GroupShown] | None, *, done: bool = True) -> None:
        """Take it up; None: no round follows. `done`: the round has come to its end; else it has failed."""

"""Where each group stands on both sides, as `run`, `status`, `groups` and the page show it. Pure values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from replicator.groups.decision import GroupVerdict
from replicator.groups.row_columns import RowColumns
from replicator.groups.rows import GroupRow


class GroupShown(NamedTuple):
    """A group, by its names on both sides. `detail`: why nothing is known of its partitions."""

    group: str
    target_group: str
    topics: tuple[RowColumns, ...] = ()
    detail: str = ""

    @property
    def rows(self) -> list[GroupRow]:
        """Its partitions, in their order."""
        return [row for topic in self.topics for row in topic]

    @property
    def partitions(self) -> int:
        """How many there are."""
        return sum(map(len, self.topics))

    @property
    def counts(self) -> dict[GroupVerdict, int]:
        """How many partitions have each verdict, the most frequent first."""
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
        return not self.detail and all(verdict.settled for verdict in self.counts)

    @property
    def again(self) -> int:
        """How many records are read again, as far as that is known."""
        return sum(topic.again for topic in self.topics)

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
    """How many groups stand where they should."""
    return sum(it.settled for it in groups)

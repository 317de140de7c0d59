"""A limit on what members of classic groups hold in memory, which stays there after they have disconnected.

Used by `ClassicGroups`. A member holds what it says of itself when it joins, and its assignment, until its session
expires, which may be after half an hour.

Invariants
- One member holds MEMBER_BYTES_MAX at most.
- All members of all groups hold `bytes_max` at most, or one member more: for one that joins, members of the group that
  holds most leave: those that are only announced, then the largest. So clients that join with much can't keep out
  those that join with little.
"""

from __future__ import annotations

from collections.abc import Iterator

from embedded_broker.state.groups import Group

MEMBER_BYTES_MAX = 1024 * 1024
"""Kafka takes a group whose record fits into a batch of __consumer_offsets: 1 MiB for all members together."""


class GroupMemory:
    """What each group holds."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: in all."""
        self._bytes_max = bytes_max
        self._held: dict[Group, int] = {}
        self.total_bytes = 0

    def note(self, group: Group) -> None:
        """Count a group again, after its members have changed."""
        before, now = self._held.pop(group, 0), group.members.size_bytes
        if now:
            self._held[group] = now
        self.total_bytes += now - before

    def surplus(self, joining_bytes: int) -> Iterator[tuple[Group, str]]:
        """Members, one after the other, that must leave before one of `joining_bytes` may join.

        The caller removes each, and calls `note`, before it asks for the next. Ends with no member left that holds as
        much as the one that joins.
        """
        while self.total_bytes + joining_bytes > self._bytes_max and self._held:
            group = max(self._held, key=self._held.__getitem__)
            announced = next(iter(group.members.pending), None)
            if announced is not None:
                yield group, announced
                continue
            largest = group.members.largest()
            if largest.size_bytes < joining_bytes:
                return
            yield group, largest.member_id

    def fits(self, joining_bytes: int) -> bool:
        """Whether a member of that size may join now."""
        return self.total_bytes + joining_bytes <= self._bytes_max

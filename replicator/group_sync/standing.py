"""Looks for what has changed without anything having changed at the source: members that a group has got at the target,
offsets there that somebody has deleted or replaced, other answers of the offset map. Used by `sync`.

Nothing is decided here: what isn't as it is shown is looked at in the next round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import islice

from replicator.group_sync.asked_once import InPartition, answers_once
from replicator.group_sync.followed import FollowedGroups
from replicator.group_sync.ports import LiveMap, TargetGroups
from replicator.groups.row_columns import Translated
from replicator.model.errors import ReplicatorError
from replicator.translation.answers import OffsetAnswer, with_delivered

TRANSLATED_AT_ONCE = 10_000
_Row = tuple[str, str, int, tuple[int, int, Translated]]


class Standing:
    """Of one flow."""

    def __init__(self, followed: FollowedGroups, target: TargetGroups, live_map: LiveMap) -> None:
        self._followed, self._target, self._map = followed, target, live_map

    def look(self, now_s: float, timeout_s: float, at_once: int, unanswered: list[ReplicatorError]) -> None:
        """Look at the target of groups that weren't looked at; adds to `unanswered` why that was not possible.

        Args:
            at_once: of how many groups the target is asked at once.

        Raises ReplicatorError.
        """
        unseen = self._followed.unseen(now_s)
        if not unseen:
            return
        listing = self._target.listing(timeout_s)
        unanswered += listing.unanswered
        members = {name for name, it in listing.groups.items() if it.has_members}
        for first in range(0, len(unseen), at_once):
            targets = {name: self._followed.target_group(name) for name in unseen[first : first + at_once]}
            wanted = dict.fromkeys(targets.values())
            found = self._target.offsets(wanted, timeout_s, stable=True, else_only=self._copied)
            for name, to in targets.items():
                values = found[to]
                if isinstance(values, ReplicatorError):
                    unanswered.append(values)
                    self._followed.missed(name, str(values))
                else:
                    self._followed.stands(name, values, now_s, has_members=to in members)

    def _copied(self) -> Mapping[str, range]:
        """Return the partitions that the flow copies, by target topic."""
        return {self._map.target_topic(it): range(len(ats)) for it, ats in self._map.partitions().items()}

    def translate(self, now_s: float, since_s: float) -> None:
        """Translate again what is in sync and wasn't translated for `since_s`, by the map as it was read last. Raises
        ReplicatorError."""
        partitions = self._map.partitions()
        rows = (
            (group, topic, at, row)
            for group, topic, of_topic in self._followed.translated(now_s - since_s)
            for at, row in of_topic.items()
            if at < len(partitions.get(topic, ())) and "ahead" not in row[2][2]  # these are looked at each time
        )
        while some := list(islice(rows, TRANSLATED_AT_ONCE)):
            self._compare(some, now_s)

    def _compare(self, rows: Collection[_Row], now_s: float) -> None:
        wanted = defaultdict[str, list[InPartition]](list)
        for _, topic, at, (source, _, _) in rows:
            wanted[topic].append((at, source))
        found = answers_once(self._map, wanted.items())
        for group, topic, at, (source, target, known) in rows:
            answer = with_delivered(found[topic][at, source], self._followed.delivered(group, topic, at))
            if self._differs(answer, target, known):
                self._followed.look_again(group, topic, (at,), now_s)

    def _differs(self, answer: OffsetAnswer, target: int, known: Translated) -> bool:
        found = answer.translated
        if answer.problem or found.offset is None:
            return True
        if (found.again, found.again == 0 and not found.notes, tuple(found.notes)) != known:
            return True
        if found.offset == target:
            return False
        first, end = min(found.offset, target), max(found.offset, target)
        return not self._map.nothing_between(
            answer.asked.at, first, end
        )  # else it is a marker, for whoever stands there

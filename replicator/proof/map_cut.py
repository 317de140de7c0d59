"""The map of one partition up to a position: what a running flow adds meanwhile is left out. Pure; used by `local`, and
by `map_chain`.

Invariant: a position was committed with its section. So the sections that end beyond it and that no section at or below
it follows were committed later; those that such a one follows were passed before the position was set back.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from replicator.offset_map.fold import PartitionFold, PlacedSection
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.varints import OFFSET_MAX

T = TypeVar("T")


class UpToPosition(Generic[T]):
    """Holds back what was committed later than a position."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._later: list[T] = []

    def passed(self, after: int, item: T) -> list[T]:
        """Take the next one, whose section ends at `after`; return those that the position is now known to cover."""
        self._later.append(item)
        if after > self._position:
            return []
        passed, self._later = self._later, []
        return passed


class MapUpTo:
    """Takes the sections of one target partition in their order."""

    def __init__(self, source_topic_id: bytes, target_topic_id: bytes, position: int) -> None:
        self._fold = PartitionFold(source_topic_id, target_topic_id)
        self._target_topic_id, self._held = target_topic_id, UpToPosition[tuple[PlacedSection, int]](position)
        self._reached = 0
        self.sections = self.copies = 0
        """How many were taken, and how many records they say that they copied."""
        self.since: tuple[int, int] | None = None
        """Source offset and time (ms) at which the map began, or went on behind a gap: from there on it is whole."""
        self.unordered = ""
        """Why what follows wasn't taken; empty if all was."""

    def add(self, placed: PlacedSection, commit_ms: int = 0) -> None:
        """Take the next one."""
        if self.unordered:
            return
        for one, at_ms in self._held.passed(placed.section.after, (placed, commit_ms)):
            self._take(one, at_ms)

    def _take(self, placed: PlacedSection, commit_ms: int) -> None:
        try:
            self._fold.add(placed._replace(target_topic_id=self._target_topic_id))
        except ValueError as error:
            self.unordered = self.unordered or str(error)
            return
        section = placed.section
        if self.since is None or section.before > self._reached:
            self.since = section.before, commit_ms
        self._reached = section.after
        self.sections += section.transactions
        self.copies += section.records + section.pruned_copies

    def finished(self, stable: int = OFFSET_MAX) -> PartitionMap | None:
        """Return what can be relied on; None: there is no section. `stable`: see `PartitionFold.finished`."""
        return self._fold.finished(stable) if self.sections else None

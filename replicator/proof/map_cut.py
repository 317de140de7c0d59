"""The map of one partition up to a position: what a running flow adds meanwhile is left out. Pure; used by `local`.

Invariant: a position was committed with its section. So the sections that end beyond it and that no section at or below
it follows were committed later; those that such a one follows were passed before the position was set back.
"""

from __future__ import annotations

from replicator.offset_map.fold import PartitionFold, PlacedSection
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.varints import OFFSET_MAX


class MapUpTo:
    """Takes the sections of one target partition in their order."""

    def __init__(self, source_topic_id: bytes, target_topic_id: bytes, position: int) -> None:
        self._fold = PartitionFold(source_topic_id, target_topic_id)
        self._target_topic_id, self._position = target_topic_id, position
        self._later: list[PlacedSection] = []
        self.sections = self.copies = 0
        """How many were taken, and how many records they say that they copied."""
        self.unordered = ""
        """Why what follows wasn't taken; empty if all was."""

    def add(self, placed: PlacedSection, commit_ms: int = 0) -> None:
        """Take the next one."""
        if self.unordered:
            return
        if placed.section.after > self._position:
            self._later.append(placed)
            return
        for one in (*self._later, placed):
            self._take(one)
        self._later.clear()

    def _take(self, placed: PlacedSection) -> None:
        try:
            self._fold.add(placed._replace(target_topic_id=self._target_topic_id))
        except ValueError as error:
            self.unordered = self.unordered or str(error)
            return
        self.sections += 1
        self.copies += placed.section.records

    def finished(self, stable: int = OFFSET_MAX) -> PartitionMap | None:
        """What can be relied on; None: there is no section. `stable`: see `PartitionFold.finished`."""
        return self._fold.finished(stable) if self.sections else None

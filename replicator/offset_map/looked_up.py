"""The map of a source partition, of which only those pages are read that an answer needs. Pure; used by `translation`.

Where each section goes on where the last one ended, on both sides, source and target offsets ascend together: then the
answer for an offset follows from the page that has it, from where the other pages begin, and from the blocks behind
them. Where something turns back (a repair, an adoption, a loss) all of the partition's map is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from replicator.offset_map.directory import PageRef, PartitionEntry
from replicator.offset_map.fold import PartitionFold, PlacedSection
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.page import MapPage
from replicator.offset_map.run_index import MappedRun


class PassedOver:
    """Takes what the index and blocks have of a partition, as `map_cut.MapUpTo`, without reading most pages.

    `turns`: whether all of them must be read instead.
    """

    def __init__(self, source_topic_id: bytes, target_topic_id: bytes, position: int) -> None:
        self._fold = PartitionFold(source_topic_id, target_topic_id)
        self._target_topic_id, self._position = target_topic_id, position
        self._after = self._end = -1
        self._number = 0
        self._later = False
        self.turns = False
        self.sections = 0
        self.pages: list[PageRef] = []
        """Those that were passed over."""

    def needed(self, entry: PartitionEntry) -> list[bool]:
        """Say of each page whether it is to be read: the first one, pruned ones, those that end behind the position."""
        found = [number == 0 or ref.flags != 0 or ref.after > self._position for number, ref in enumerate(entry)]
        self.turns = any(ref.turns for number, ref in enumerate(entry) if number)
        return found

    def add_page(self, ref: PageRef, page: MapPage | None) -> None:
        """Take the next page; None: it was not read."""
        if page is not None:
            for one in page.sections:
                self.add(PlacedSection(one.generation, self._number, 0, b"", one.section), one.commit_ms)
            return
        if self.turns:
            return
        self._fold.pass_over(ref)
        self.pages.append(ref)
        self._after, self._end = ref.after, max(self._end, ref.target_end)
        self.sections += ref.sections

    def add(self, placed: PlacedSection, commit_ms: int = 0) -> None:
        """Take the next section. What ends beyond the position was committed later."""
        section = placed.section
        if section.repair or (self._after >= 0 and section.before != self._after):
            self.turns = True
        if section.claims_target and section.first_target < self._end:
            self.turns = True
        self._after, self._end = section.after, max(self._end, section.target_end)
        self._later = self._later or section.after > self._position
        if self.turns or self._later:
            return
        self._number += 1
        self._fold.add(PlacedSection(placed.generation, self._number, 0, self._target_topic_id, section))
        self.sections += section.transactions

    def finished(self, stable: int) -> PartitionMap | None:
        """Return the map with the first copies of pages that were passed over; None: there is no section. See
        `MapUpTo`.

        `turns` says afterwards whether it is of use: not where the target's stable offset lies in such a page.
        """
        if any(ref.target_end > stable for ref in self.pages):
            self.turns = True
        return self._fold.finished(stable) if self.sections and not self.turns else None


def page_of_source(pages: Sequence[PageRef], offset: int) -> PageRef | None:
    """Return the page that was passed over and has the place of a source offset behind its first copy."""
    at = bisect_left(pages, offset + 1, key=lambda ref: ref.before) - 1
    return pages[at] if at >= 0 and 0 <= pages[at].first_source < offset < pages[at].after else None


def page_of_target(pages: Sequence[PageRef], offset: int) -> PageRef | None:
    """Return the same of a target offset."""
    at = bisect_left(pages, True, key=lambda ref: ref.target_end > offset)
    return pages[at] if at < len(pages) and 0 <= pages[at].first_target < offset else None


def with_page(mapped: PartitionMap, page: MapPage) -> PartitionMap:
    """Return the map with all runs of a page in the place of its first copy."""
    runs: list[MappedRun] = []
    for one in page.sections:
        target = one.section.first_target
        for first, end in one.section.runs:
            runs.append(MappedRun(first, end - first, target))
            target += end - first
    if not runs:
        return mapped
    by_source = mapped.by_source.with_runs(runs)
    return replace(mapped, by_source=by_source, by_target=mapped.by_target.with_runs([run.turned() for run in runs]))

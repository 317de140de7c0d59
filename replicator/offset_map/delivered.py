"""Gives the sections of source partitions to who wants them, from the map's index and then from raw blocks. Pure.

Called by `proof.map_reader`, which reads both. While it reads, blocks may go into the index and be deleted, and pages
may be written again elsewhere: then it reads the index again and goes on here.

Invariant: each section is given once, in the order in which they were made. Its number among all of its source
partition is the same in blocks and in pages, also in pages whose copies were pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from replicator.offset_map.directory import PartitionEntry
from replicator.offset_map.fold import PlacedSection
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.page import MapPage
from replicator.offset_map.section import MapSection


class TakesSections(Protocol):
    """What is told of one partition's sections."""

    def add(self, placed: PlacedSection, commit_ms: int, /) -> None:
        """Take the next one, in the order of all of the partition's; `commit_ms`: as of `MapBlock`."""


class PrunedMeanwhile(Exception):
    """Of sections that were read in part the copies were pruned: what follows can't be told apart any more."""


class SectionDelivery:
    """Of those partitions that are wanted."""

    def __init__(self, takers: Mapping[SectionKey, TakesSections]) -> None:
        self._takers = takers
        self._given = dict.fromkeys(takers, 0)
        self._raw = dict.fromkeys(takers, 0)

    def from_index(self, key: SectionKey, entry: PartitionEntry | None, load: Callable[[int], MapPage]) -> None:
        """Give what of the index wasn't given yet. `load`: reads the page at an offset of the index's partition.

        Raises PrunedMeanwhile, and what `load` raises.
        """
        at, given, taker = 0, self._given[key], self._takers[key]
        for ref in entry or ():
            if at + ref.sections <= given:
                at += ref.sections
                continue
            for one in load(ref.offset).sections:
                count = one.section.transactions
                if at < given < at + count:
                    raise PrunedMeanwhile
                if at >= given:
                    given = self._given[key] = at + count
                    taker.add(PlacedSection(one.generation, at, 0, b"", one.section), one.commit_ms)
                at += count
        self._raw[key] = at

    @property
    def ahead(self) -> bool:
        """Whether more was given than the index has."""
        return any(self._given[key] > raw for key, raw in self._raw.items())

    def from_block(self, generation: int, commit_ms: int, section: MapSection) -> None:
        """Take a section of a raw block that the index doesn't cover, in the order of blocks, from where it ends."""
        key = section.source_topic_id, section.partition
        taker = self._takers.get(key)
        if taker is None:
            return
        number = self._raw[key]
        self._raw[key] = number + 1
        if number >= self._given[key]:
            self._given[key] = number + 1
            taker.add(PlacedSection(generation, number, 0, b"", section), commit_ms)

"""What a task knows of the offset map: it reads that itself, over the wire client. Used by all that runs in tasks.

The driver tells only where the map stands and up to where it counts. Runs may be many: none goes through the driver.
A Python worker keeps what it has read for its next tasks: of a map of few blocks all partitions, else the last one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from replicator.config import Flow
from replicator.model.partition import Partition
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.section import topic_id_bytes
from replicator.proof.coverage import Uncovered, compared_map, uncovered_of
from replicator.proof.map_cut import MapUpTo
from replicator.proof.map_place import MapPlace
from replicator.proof.map_reader import read_sections
from replicator.proof.pairs import Pair, own_sections
from replicator.proof.row_places import RowPlaces

KEPT_BLOCKS_MAX = 200_000
"""Of a map with no more offsets all partitions are read at once."""


@dataclass(frozen=True, slots=True)
class MapFacts:
    """What tasks are told: the flow, where its map stands, the pairs, and up to which target offsets the map counts
    (`map_place.stable_offsets`). `name`: of this comparison alone."""

    name: str
    flow: Flow
    place: MapPlace
    pairs: Mapping[Partition, Pair]
    stable: Mapping[Partition, int]

    def by_side(self, of_source: bool) -> dict[Partition, Pair]:
        """Return the pairs by their partition of either side."""
        return {pair.at(of_source): pair for pair in self.pairs.values()}


@dataclass(frozen=True)
class PairMap:
    """The map of one pair. `mapped`: None where it has nothing of the pair; `notes`: what of it could not be read."""

    pair: Pair
    taken: MapUpTo
    stable: int
    notes: tuple[str, ...]

    @cached_property
    def mapped(self) -> PartitionMap | None:
        """What can be relied on, with bounds of what is compared."""
        found = self.taken.finished(self.stable)
        return None if found is None else compared_map(self.pair, found)

    @cached_property
    def uncovered(self) -> list[Uncovered]:
        """What the map says nothing of."""
        return uncovered_of(self.pair, self.mapped)

    @cached_property
    def rows(self) -> RowPlaces | None:
        """What it says of many records at a time."""
        return None if self.mapped is None else RowPlaces(self.pair, self.mapped, self.uncovered)


_kept: tuple[str, dict[Partition, PairMap]] = ("", {})


def map_of(facts: MapFacts, source: Partition) -> PairMap:
    """Read the map of one pair, or take what was read before in this process.

    Raises what `map_reader.read_sections` does.
    """
    global _kept
    if _kept[0] != facts.name or source not in _kept[1]:
        _kept = facts.name, _read(facts, list(facts.pairs) if _is_small(facts.place) else [source])
    return _kept[1][source]


def _is_small(place: MapPlace) -> bool:
    """Tell whether the map of all partitions fits into a worker. A page of a consolidated map has any number of
    blocks."""
    return place.index is None and sum(end - first for first, end in place.bounds.values()) <= KEPT_BLOCKS_MAX


def _read(facts: MapFacts, sources: Collection[Partition]) -> dict[Partition, PairMap]:
    """Read the map's topics, which no other function does."""
    pairs = [facts.pairs[at] for at in sources]
    taken = {
        pair.source: MapUpTo(topic_id_bytes(pair.source_id), topic_id_bytes(pair.target_id), pair.source_copied_end)
        for pair in pairs
    }
    read = read_sections(facts.flow, facts.place, own_sections(pairs, taken))
    notes = tuple(read.notes(facts.place.topic))
    return {pair.source: PairMap(pair, taken[pair.source], facts.stable[pair.target], notes) for pair in pairs}

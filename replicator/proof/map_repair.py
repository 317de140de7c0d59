"""What a repair copies by the offset map, found after its fence: implements `jobs.repair_by_map.ChoosesByMap`.

1 snapshot  positions and ends as they are behind the fence      (snapshot)
2 map       its sections, where no transaction of it is open     (map_place, map_reader)
3 compare   one partition at a time, by the thread of its lane   (pair_comparison)

The first two are done once for all partitions, before anything is copied. A lane that begins another session does them
again for its own: what the last one has copied stands in the map, if it was committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from replicator.config import Flow
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.offset_map.fold import PlacedSection
from replicator.offset_map.repair_rule import RepairChoice
from replicator.offset_map.section import topic_id_bytes
from replicator.planes.contract import ReadStopped
from replicator.proof import snapshot
from replicator.proof.map_cut import MapUpTo
from replicator.proof.map_place import MapPlace, place_of_map, stable_offsets
from replicator.proof.map_reader import read_sections
from replicator.proof.pair_comparison import compare_pair
from replicator.proof.pairs import Pair, own_sections
from replicator.proof.partition_side import PartitionSide, both_sides

OnBothRead = Callable[[str, int, int], object]
"""Told how many offsets of both sides were read, of how many."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """What a pair is compared by."""

    pair: Pair
    taken: MapUpTo
    stable: int


class MapRepair:
    """Used by the threads of several lanes."""

    def __init__(self, flow: Flow, asked: threading.Event, *, connect_timeout_ms: int) -> None:
        """`asked`: set when it shall stop."""
        self._flow, self._asked, self._connect_timeout_ms = flow, asked, connect_timeout_ms
        self._first: dict[Partition, _Ready | Incident] = {}
        self._pairs: dict[Partition, Pair] = {}  # of which something was chosen
        self._lock = threading.Lock()

    def fenced(self, partitions: Collection[Partition]) -> None:
        """See `ChoosesByMap`."""
        self._first = self._read(partitions)

    def choose(self, at: Partition, on_read: OnBothRead) -> RepairChoice:
        """See `ChoosesByMap`."""
        with self._lock:
            ready = self._first.pop(at, None)
        if ready is None:
            ready = self._read([at])[at]
        if isinstance(ready, Incident):
            raise ready
        pair, flow, done = ready.pair, self._flow, 0
        self._pairs[at] = pair
        of = sum(max(0, end - first) for first, end in (pair.source_range, pair.target_range))

        def passed(offsets: int) -> None:
            nonlocal done
            done += offsets
            on_read("clusters", done, of)

        with both_sides(flow, pair) as sides:
            return compare_pair(pair, ready.taken, ready.stable, sides, passed, for_repair=True).choice()

    def gone(self, at: Partition, missing: Sequence[tuple[int, int, int]]) -> int:
        """Count the records that the source doesn't have any more: retention or a cleaner has taken them meanwhile.

        Args:
            at: the source partition.
            missing: spans of offsets [first, end), and how many of their records were missing when that was found.

        Raises what `PartitionSide` does.
        """
        pair = self._pairs.get(at)
        if pair is None:
            return 0
        with PartitionSide(self._flow, self._flow.source, pair.source, pair.source_id) as source:
            start = source.start()
            spans = [(max(first, start), end) for first, end, _ in missing if end > start]
            there = sum(end - first for span in spans for first, end in source.occupied(span))
        return max(0, sum(records for _, _, records in missing) - there)

    def _read(self, partitions: Collection[Partition]) -> dict[Partition, _Ready | Incident]:
        flow, topics = self._flow, {at.topic for at in partitions}
        taken = snapshot.take(
            flow, topics, snapshot.Window(), connect_timeout_ms=self._connect_timeout_ms, time_ms_max=None
        )
        pairs = [pair for pair in taken.pairs if pair.source in partitions]
        place = place_of_map(flow)
        _check_none_open(place)
        maps = {pair.source: self._map_of(pair) for pair in pairs}
        read_sections(flow, place, own_sections(pairs, maps))
        stable = stable_offsets(flow, [pair.target for pair in pairs])
        found: dict[Partition, _Ready | Incident] = {
            pair.source: _Ready(pair, maps[pair.source], stable[pair.target]) for pair in pairs
        }
        for incident in taken.not_compared:
            found.setdefault(Partition(incident.topic, incident.partition), incident)
        return {at: found.get(at) or _not_compared(at) for at in partitions}

    def _map_of(self, pair: Pair) -> MapUpTo:
        ids = topic_id_bytes(pair.source_id), topic_id_bytes(pair.target_id)
        return _Stoppable(*ids, pair.source_copied_end, self._asked)


class _Stoppable(MapUpTo):
    """The map may be long."""

    def __init__(self, source_id: bytes, target_id: bytes, position: int, asked: threading.Event) -> None:
        super().__init__(source_id, target_id, position)
        self._asked = asked

    def add(self, placed: PlacedSection, commit_ms: int = 0) -> None:
        """Add as `MapUpTo` does. Raises ReadStopped."""
        if self._asked.is_set():
            raise ReadStopped("reading the offset map")
        super().add(placed, commit_ms)


def _check_none_open(place: MapPlace) -> None:
    """Check that no transaction of the map stays open: it may hold what says where copies stand."""
    if place.open:
        partition, stable, end = place.open[0]
        why = f"{place.topic}[{partition}] is stable up to {stable} of {end}"
        raise Incident("map_transaction_open", why, topic=place.topic, partition=partition)


def _not_compared(at: Partition) -> Incident:
    return Incident("position_expired", f"{at} has no position", topic=at.topic, partition=at.partition)

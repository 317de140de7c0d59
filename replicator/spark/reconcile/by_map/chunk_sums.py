"""Sums over chunks of target offsets, by which most of both sides is known to be equal: the first pass by the map.

A record counts in the chunk of its place: the source's record by the map, the target's by its offset. A chunk's sum is
the XOR of hashes that hold the place and the record's digest, of both sides together: equal records cancel out. Sums
merge, so several tasks may read a partition, divided anywhere. Records of the source that have no place are counted
apart, and so is what the map doesn't cover.

Fields are hashed in the JVM; place and mixing are numpy's, so that nothing in Spark multiplies or overflows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from enum import IntEnum

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition
from replicator.proof.arrays import OffsetArray, WordArray
from replicator.proof.row_places import RowPlaces
from replicator.proof.task_map import MapFacts, PairMap, map_of
from replicator.spark import archives
from replicator.spark.reconcile import arrow

SUMS = (
    "topic string, partition int, kind int, number long, one long, other long, records long, of_source long, "
    "behind long, first long, last long, first_ms long, last_ms long, said binary"
)
_SUM_TYPES = arrow.types(SUMS)
_NONE_MIN, _NONE_MAX = (1 << 63) - 1, -1
_GOLDEN, _FIRST, _SECOND = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


class SumKind(IntEnum):
    """What a sum is of; `number` besides."""

    CHUNK = 0
    """A chunk of target offsets. `records`: the source's less the target's; `behind`: those of the source's that stand
    behind copies of higher source offsets; the offsets are of the others of the source's."""
    PLACED_BEHIND = 1
    """Those that do, by chunk of source offsets."""
    UNPLACED = 2
    """Source records that are compared and have no place, by chunk of source offsets."""
    SOURCE = 3
    """All records of the source."""
    TARGET = 4
    """All records of the target but copies of what lies before the flow's beginning."""
    UNCOVERED_SOURCE = 5
    """Records of the source in an uncovered range of this number."""
    UNCOVERED_TARGET = 6
    OTHERS = 7
    """Copies of the source topic before it was created again."""
    AHEAD = 8
    MAP = 9
    """What is known of the map (`MapSaid`), or why nothing is."""
    PLACED = 10
    """Source records that have a place."""
    NAMED = 11
    """As UNPLACED, of those that the map says were set aside, left out by a rule or skipped by a decision."""
    ERROR = 12
    """Why a task could not read the map."""


@dataclass(frozen=True, slots=True)
class MapSaid:
    """What the driver is told of a pair's map: whether there is any, why parts of the pair are not covered, as of
    `MapUpTo`, and what could not be read."""

    there: bool
    why: tuple[str, ...] = ()
    since: tuple[int, int] | None = None
    unordered: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, known: PairMap) -> MapSaid:
        """Return what is told of a map that was read."""
        why = tuple(one.why for one in known.uncovered)
        return cls(known.mapped is not None, why, known.taken.since, known.taken.unordered, known.notes)


def sums(read: DataFrame, facts: MapFacts, digests: Sequence[str], bits: int, *, of_source: bool) -> DataFrame:
    """Compute the sums of what tasks read of one side, see SUMS, under the source's topic.

    Args:
        read: with topic, partition, offset, timestamp_ms and `digests`.
        bits: a chunk has 2^bits offsets.
    """
    columns = read.select("topic", "partition", "offset", "timestamp_ms", *digests)
    return columns.mapInArrow(archives.of_task(_summing(facts, digests, bits, of_source)), SUMS)


def together(both: DataFrame) -> DataFrame:
    """Put together the sums of the same chunk as one, and whether it is `equal`; such chunks are left out, unless a
    record of theirs stands behind later ones."""
    found = both.groupBy("topic", "partition", "kind", "number").agg(
        F.bit_xor("one").alias("one"),
        F.bit_xor("other").alias("other"),
        *(F.sum(name).alias(name) for name in ("records", "of_source", "behind")),
        *(F.min(name).alias(name) for name in ("first", "first_ms")),
        *(F.max(name).alias(name) for name in ("last", "last_ms")),
        F.first("said").alias("said"),
    )
    equal = (F.col("one") == 0) & (F.col("other") == 0) & (F.col("records") == 0)
    found = found.withColumn("equal", equal)
    return found.where(~((F.col("kind") == int(SumKind.CHUNK)) & F.col("equal") & (F.col("behind") == 0)))


@dataclass(slots=True)
class _Sum:
    """A row of SUMS, in its order."""

    one: int = 0
    other: int = 0
    records: int = 0
    of_source: int = 0
    behind: int = 0
    first: int = _NONE_MIN
    last: int = _NONE_MAX
    first_ms: int = _NONE_MIN
    last_ms: int = _NONE_MAX


@dataclass(slots=True)
class TaskSums:
    """Takes the records of one task, which are of one side of one pair."""

    rows: RowPlaces
    uncovered: int
    bits: int
    found: dict[tuple[SumKind, int], _Sum] = field(default_factory=dict)

    def source(self, offsets: OffsetArray, times_ms: OffsetArray, digests: Sequence[WordArray]) -> None:
        """Add records of the source."""
        self._count(SumKind.SOURCE, 0, offsets, times_ms)
        places, compared, behind = self.rows.source(offsets)
        placed = places >= 0
        self._count(SumKind.PLACED, 0, offsets[placed], times_ms[placed])
        plain = placed & ~behind
        self._add(places[plain], [column[plain] for column in digests], offsets[plain], 1)
        if behind.any():
            self._add(places[behind], [column[behind] for column in digests], None, 1)
            self._by_chunk(SumKind.PLACED_BEHIND, offsets[behind])
        if not bool(placed.all()):
            named = self.rows.named(offsets)
            self._by_chunk(SumKind.UNPLACED, offsets[compared & ~placed & ~named])
            self._by_chunk(SumKind.NAMED, offsets[compared & ~placed & named])
            for number in range(self.uncovered):
                mask = self.rows.unsaid_source(number, offsets)
                self._count(SumKind.UNCOVERED_SOURCE, number, offsets[mask], times_ms[mask])

    def target(self, offsets: OffsetArray, times_ms: OffsetArray, digests: Sequence[WordArray]) -> None:
        """Add records of the target."""
        own, compared = self.rows.target(offsets)
        if not bool(own.all()):
            offsets, times_ms, compared = offsets[own], times_ms[own], compared[own]
            digests = [column[own] for column in digests]
        self._count(SumKind.TARGET, 0, offsets, times_ms)
        for kind, mask in zip((SumKind.OTHERS, SumKind.AHEAD), self.rows.apart(offsets), strict=True):
            self._count(kind, 0, offsets[mask], times_ms[mask])
        for number in range(self.uncovered):
            mask = self.rows.unsaid_target(number, offsets)
            self._count(SumKind.UNCOVERED_TARGET, number, offsets[mask], times_ms[mask])
        self._add(offsets[compared], [column[compared] for column in digests], None, -1)

    def _at(self, kind: SumKind, number: int) -> _Sum:
        return self.found.setdefault((kind, number), _Sum())

    def _count(self, kind: SumKind, number: int, offsets: OffsetArray, times_ms: OffsetArray) -> None:
        if not len(offsets):
            return
        found = self._at(kind, number)
        found.records += len(offsets)
        found.first, found.last = min(found.first, int(offsets[0])), max(found.last, int(offsets[-1]))
        found.first_ms = min(found.first_ms, int(times_ms.min()))
        found.last_ms = max(found.last_ms, int(times_ms.max()))

    def _by_chunk(self, kind: SumKind, offsets: OffsetArray) -> None:
        for number, count in zip(*np.unique(offsets >> self.bits, return_counts=True), strict=True):
            self._at(kind, int(number)).records += int(count)

    def _add(self, places: OffsetArray, digests: Sequence[WordArray], offsets: OffsetArray | None, sign: int) -> None:
        if not len(places):
            return
        chunks = places >> self.bits
        edges = np.flatnonzero(np.diff(chunks, prepend=chunks[0] - 1))
        sums = [np.bitwise_xor.reduceat(mixed(column, places), edges) for column in digests]
        ends = np.append(edges[1:], len(places))
        for index, (first, end) in enumerate(zip(edges.tolist(), ends.tolist(), strict=True)):
            found = self._at(SumKind.CHUNK, int(chunks[first]))
            found.one ^= int(sums[0][index])
            if len(sums) > 1:
                found.other ^= int(sums[1][index])
            found.records += sign * (end - first)
            if sign > 0:
                found.of_source += end - first
                found.behind += end - first if offsets is None else 0
            if offsets is not None:
                found.first, found.last = min(found.first, int(offsets[first])), max(found.last, int(offsets[end - 1]))


def mixed(digests: WordArray, places: OffsetArray) -> WordArray:
    """Compute a hash that holds both (the finalizer of SplitMix64): multiplication wraps, as it does for numpy's
    words.
    """
    word = digests ^ (places.view(np.uint64) + np.uint64(1)) * _GOLDEN
    word = (word ^ (word >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    found: WordArray = word ^ (word >> np.uint64(31))
    return found


def _summing(facts: MapFacts, digests: Sequence[str], bits: int, of_source: bool) -> arrow.Task:
    by_side = facts.by_side(of_source)

    def summing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        taken: TaskSums | None = None
        source: Partition | None = None
        said: tuple[SumKind, object] | None = None
        for at, batch in arrow.of_one_partition(batches):
            if source is None:
                source = by_side[at].source
                said, taken = _begun(facts, source, bits)
            if taken is None:  # what is left is read for nothing: a task that ends early would end its worker
                continue
            offsets, times_ms = (batch.column(name).to_numpy() for name in ("offset", "timestamp_ms"))
            words = [batch.column(name).to_numpy().view(np.uint64) for name in digests]
            (taken.source if of_source else taken.target)(offsets, times_ms, words)
        if source is not None and said is not None:
            found = [] if taken is None else [(*key, one, None) for key, one in taken.found.items()]
            yield _rows(source, [(said[0], 0, _Sum(), pickle.dumps(said[1])), *found])

    return summing


def _begun(facts: MapFacts, source: Partition, bits: int) -> tuple[tuple[SumKind, object], TaskSums | None]:
    """Return what the driver is told of the map, and what takes the records if there is one."""
    try:
        known = map_of(facts, source)
    except ReplicatorError as error:
        return (SumKind.ERROR, error), None
    said = MapSaid.of(known)
    return (SumKind.MAP, said), None if known.rows is None else TaskSums(known.rows, len(known.uncovered), bits)


def _rows(at: Partition, found: Sequence[tuple[SumKind, int, _Sum, bytes | None]]) -> pa.RecordBatch:
    rows = [
        (*at, int(kind), number, arrow.signed(one.one), arrow.signed(one.other), *astuple(one)[2:], said)
        for kind, number, one, said in found
    ]
    return arrow.record_batch(rows, _SUM_TYPES)

"""The reads of a comparison by content, each a Spark job over both sides: chunks, then records of gaps.

A partition may be read by several tasks of the first (`minPartitions` of Spark's Kafka source): the pieces that they
give are put together on the driver. No task of the other one has more than one range of one partition.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.config import Cluster, Flow
from replicator.model.partition import Partition, Span
from replicator.proof.by_content import alignment
from replicator.proof.by_content.alignment import Aligned, Gap, Side
from replicator.proof.by_content.cutting import Cutter, Piece
from replicator.proof.by_content.record_verdicts import RECORD
from replicator.proof.pairs import Pair
from replicator.spark import archives
from replicator.spark.reconcile import arrow, kafka, opened_chunks, transforms
from replicator.spark.reconcile.opened_chunks import GapRange, GapSides

TASK_RECORDS = 2_000_000
"""A partition with more offsets than these is read by several tasks."""
READS_MAX = 8
"""Into how many ranges of offsets the gaps of a partition are put together: each range is a task of its own, and what
lies between the gaps of one range is read and thrown away."""
_PIECES = (
    "topic string, partition int, of_source boolean, first_offset long, last_offset long, records long, first_ms long, "
    "last_ms long, size long, hashes array<long>, begins long, alone boolean, complete boolean"
)
_PIECE_TYPES = arrow.types(_PIECES)
_NOTHING = alignment.side([])


@dataclass(frozen=True, slots=True)
class Compared:
    """One pair after the first read."""

    pair: Pair
    aligned: Aligned

    def side(self, of_source: bool) -> Side:
        """Return what was read of it."""
        return self.aligned.source if of_source else self.aligned.target


@dataclass(frozen=True, slots=True)
class ToOpen:
    """What to look at of one pair. Records below a rank of `source_skipped` or `target_skipped` are left out: retention
    is known to have removed their copies; `source_elsewhere`, `target_elsewhere`: so many of them were found elsewhere
    on the other side (`left_out`). `from_end`: of several equal records the last ones correspond."""

    compared: Compared
    gaps: Sequence[Gap]
    source_skipped: int
    target_skipped: int
    from_end: bool
    source_elsewhere: int = 0
    target_elsewhere: int = 0

    @property
    def pair(self) -> Pair:
        """Of which partition."""
        return self.compared.pair

    @property
    def aligned(self) -> Aligned:
        """What was read first."""
        return self.compared.aligned

    @property
    def left_out(self) -> tuple[int, int]:
        """Records of the source and of the target that were left out and not found elsewhere."""
        return self.source_skipped - self.source_elsewhere, self.target_skipped - self.target_elsewhere


class Passes:
    """Reads of one snapshot, by pairs of partitions."""

    def __init__(self, spark: SparkSession, flow: Flow, pairs: Sequence[Pair], *, deep: bool) -> None:
        """`deep`: records are told apart by 128 bits, not 64."""
        self.spark, self._flow, self._pairs, self.deep = spark, flow, pairs, deep
        self.digest_columns = [RECORD.digest, *(["second_digest"] if deep else [])]
        sides = ([pair.source_range for pair in pairs], [pair.target_range for pair in pairs])
        self._mean = alignment.mean_size(max(sum(end - first for first, end in side) for side in sides))

    def records(self, of_source: bool, ranges: Mapping[Partition, Span], *, tasks: int = 0) -> DataFrame | None:
        """Read the records of these ranges with `digest` and `timestamp_ms`, but for those of the source that operators
        have decided to leave out; `tasks`: at least so many, 0: one for each."""
        cluster: Cluster = self._flow.source if of_source else self._flow.target
        found = kafka.read(self.spark, self._flow, cluster, ranges, tasks=tasks)
        if found is None:
            return None
        signed = [
            (*pair.source, gap.first, gap.end)
            for pair in self._pairs
            if of_source and pair.source in ranges
            for gap in pair.signed_gaps
        ]
        if signed:
            found = transforms.without(found, arrow.frame(self.spark, signed, transforms.GAPS))
        hashed = transforms.hashed(found)
        return transforms.hashed_again(hashed) if self.deep else hashed

    def aligned(self) -> list[Aligned]:
        """Find how both sides correspond, pair by pair: one read of both, cut into chunks."""
        columns = ["topic", "partition", RECORD.offset, RECORD.timestamp_ms, "size", *self.digest_columns]
        both = kafka.union(
            [
                read.withColumn("size", transforms.size())
                .select(columns)
                .mapInArrow(archives.of_task(_cut(self._mean, self.digest_columns, of_source)), _PIECES)
                for of_source in (True, False)
                if (read := self.compared(self._pairs, of_source=of_source)) is not None
            ]
        )
        here, there = _sides(both.toArrow().to_batches() if both is not None else ())
        return [
            alignment.align(here.get(pair.source, _NOTHING), there.get(pair.target, _NOTHING), self._mean)
            for pair in self._pairs
        ]

    def compared(self, pairs: Iterable[Pair], *, of_source: bool) -> DataFrame | None:
        """Read all records of one side of `pairs` that are compared."""
        ranges = {pair.at(of_source): pair.offsets(of_source) for pair in pairs}
        return self.records(of_source, ranges, tasks=tasks(ranges.values()))

    def opened(self, wanted: Sequence[ToOpen]) -> DataFrame:
        """Give verdicts on all records of these gaps; nothing is read before they are used."""
        gaps = {item.pair.source: [_gap_sides(item, gap) for gap in item.gaps] for item in wanted}
        sides = [
            side
            for of_source in (True, False)
            if (side := self._side(of_source, [item.compared for item in wanted], gaps)) is not None
        ]
        both = kafka.union(sides)
        if both is None:
            return arrow.frame(self.spark, (), opened_chunks.FOUND)
        return opened_chunks.findings(both, gaps)

    def _side(self, of_source: bool, compared: Collection[Compared], gaps: opened_chunks.Gaps) -> DataFrame | None:
        sides = {item.pair.at(of_source): (item.pair.source, item.side(of_source)) for item in compared}
        places = {
            at: (source.topic, [gap.source if of_source else gap.target for gap in gaps[source]])
            for at, (source, _) in sides.items()
        }
        spans = {
            at: kafka.put_together(((one.first, one.end) for one in places[at][1]), READS_MAX, side.size)
            for at, (_, side) in sides.items()
        }
        layers: list[DataFrame] = []
        for layer in itertools.count():
            now = {at: ranges[layer] for at, ranges in spans.items() if layer < len(ranges)}
            read = self.records(of_source, now)
            if read is None:
                break
            layers.append(opened_chunks.within(transforms.by_field(read, deep=self.deep), places, of_source=of_source))
        return kafka.union(layers)

    def named(self, pairs: Iterable[Pair], *, of_source: bool) -> DataFrame | None:
        """Read all records of one side of `pairs`, from the compared range's first to the end of the log, under their
        source topic."""
        wanted = list(pairs)
        ranges = {
            pair.at(of_source): (pair.offsets(of_source)[0], pair.source_log_end if of_source else pair.target_log_end)
            for pair in wanted
        }
        read = self.records(of_source, ranges, tasks=tasks(ranges.values()))
        if read is None:
            return None
        return under_source(transforms.by_field(read, deep=self.deep), wanted, of_source=of_source)


def under_source(records: DataFrame, pairs: Iterable[Pair], *, of_source: bool) -> DataFrame:
    """Return those records of one side that are of these pairs, under their source's topic."""
    rows = [(*pair.at(of_source), pair.source.topic) for pair in pairs]
    topics = arrow.frame(records.sparkSession, rows, "topic string, partition int, source_topic string")
    found = records.join(F.broadcast(topics), ["topic", "partition"])
    return found.drop("topic").withColumnRenamed("source_topic", "topic")


def tasks(ranges: Iterable[Span]) -> int:
    """Return the least number of tasks for one side; Spark gives large ranges more of them."""
    return sum(max(1, -(-(end - first) // TASK_RECORDS)) for first, end in ranges if first < end)


def _cut(mean: int, columns: Sequence[str], of_source: bool) -> arrow.Task:
    """Return what a task does with its records: it yields the pieces of its range."""

    def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cutter, at = Cutter(mean), None
        for at, batch in arrow.of_one_partition(batches):
            digests = [batch.column(name).to_numpy().view(np.uint64) for name in columns]
            offsets, times_ms, sizes = (
                batch.column(name).to_numpy() for name in (RECORD.offset, RECORD.timestamp_ms, "size")
            )
            yield _pieces(at, of_source, cutter.feed(offsets, times_ms, sizes, *digests))
        if at is not None:
            yield _pieces(at, of_source, cutter.finish())

    return cut


def _pieces(at: Partition, of_source: bool, pieces: Iterable[Piece]) -> pa.RecordBatch:
    rows = [piece._replace(begins=arrow.signed(piece.begins), hashes=list(piece.hashes)) for piece in pieces]  # type: ignore[arg-type]
    return arrow.record_batch([(*at, of_source, *row) for row in rows], _PIECE_TYPES)


def _sides(found: Iterable[pa.RecordBatch]) -> tuple[dict[Partition, Side], dict[Partition, Side]]:
    """Return both sides by partition, from all pieces."""
    pieces: tuple[dict[Partition, list[Piece]], dict[Partition, list[Piece]]] = ({}, {})
    for batch in found:
        for topic, number, of_source, *fields in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            piece = Piece(*fields)
            pieces[not of_source].setdefault(Partition(topic, number), []).append(
                piece._replace(hashes=tuple(piece.hashes))
            )
    return _side_of(pieces[0]), _side_of(pieces[1])


def _side_of(pieces: Mapping[Partition, Iterable[Piece]]) -> dict[Partition, Side]:
    return {at: alignment.side(items) for at, items in pieces.items()}


def _gap_sides(item: ToOpen, gap: Gap) -> GapSides:
    source, target = item.aligned.source, item.aligned.target
    sides = _gap_range(source, gap.source), _gap_range(target, gap.target)
    pair = item.pair
    return GapSides(
        *sides,
        item.source_skipped,
        item.target_skipped,
        item.from_end,
        compacted=pair.source_compacted or pair.target_compacted,
        prefix_cut=(pair.source_cut or pair.target_cut) and gap.source[1] <= item.aligned.prefix_end[0],
    )


def _gap_range(side: Side, numbers: tuple[int, int]) -> GapRange:
    first, end = numbers
    before = side.chunks[first - 1].last_offset if first else -1
    after = side.chunks[end].first_offset if end < len(side.chunks) else -1
    begin = side.chunks[first].first_offset if first < end else before + 1
    return GapRange(
        begin, side.chunks[end - 1].last_offset + 1 if first < end else begin, side.ranks[first], before, after
    )

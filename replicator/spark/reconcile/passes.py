"""The reads of a reconciliation, each one Spark job over both sides or over what is left to look at.

1. digests of all chunks of both sides; 2. digests of the target again where its ranks are shifted; 3. opened chunks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.config import Cluster, Flow
from replicator.model.partition import Partition
from replicator.spark.reconcile import chunks, kafka, opened_chunks, segments, transforms
from replicator.spark.reconcile.chunks import Chunk, Differing, Range, Stretch
from replicator.spark.reconcile.segments import Segment
from replicator.spark.reconcile.sequences import Pairs
from replicator.spark.reconcile.snapshot import Offsets, Pair

_UNSHIFTED = [Stretch(0, 0)]
_SEGMENTS = "topic string, partition int, bucket long, segments array<struct<first:long,end:long,value:long>>"
_BASES = "topic string, partition int, source_topic string, base long"
_UNLIKE = "topic string, partition int, chunk long"
_OPENED = (
    "topic string, partition int, interval long, rank long, offset long, timestamp_ms long, digest long, "
    "key_hash long, value_hash long, headers_hash long, key_shown binary"
)
Chunks = dict[int, Chunk]


@dataclass(frozen=True, slots=True)
class Compared:
    """One pair after the digest passes: chunks by aligned number, how they were aligned, and what is to be opened."""

    pair: Pair
    source: Mapping[int, Chunk]
    target: Mapping[int, Chunk]
    anchored: Pairs
    stretches: Sequence[Stretch]
    differing: Differing

    @property
    def unlike(self) -> set[int]:
        """Numbers of chunks that differ."""
        return {n for n in self.source.keys() | self.target.keys() if not chunks.equal(*self.both(n))}

    def both(self, number: int) -> tuple[Chunk | None, Chunk | None]:
        """A chunk as either side has it."""
        return self.source.get(number), self.target.get(number)


@dataclass(frozen=True, slots=True)
class _ToOpen:
    """What to open of one partition of one side."""

    at: Partition
    source_topic: str
    ranges: Sequence[Range]
    parts: Sequence[Segment]


class Passes:
    """Reads of one snapshot, by pairs of partitions."""

    def __init__(self, spark: SparkSession, flow: Flow, pairs: Sequence[Pair]) -> None:
        self.spark, self._flow, self._pairs = spark, flow, pairs
        sides = ([pair.source_range for pair in pairs], [pair.target_range for pair in pairs])
        self.bits = chunks.chunk_bits(max(sum(end - first for first, end in side) for side in sides))

    def records(self, cluster: Cluster, ranges: Mapping[Partition, Offsets]) -> DataFrame | None:
        """Records of these ranges with `rank` (from the start of each range), `digest` and `timestamp_ms`."""
        found = kafka.read(self.spark, self._flow, cluster, ranges)
        return None if found is None else transforms.hashed(transforms.ranked(found))

    def named(self, pairs: Iterable[Pair], *, of_source: bool) -> DataFrame | None:
        """All compared records of one side of `pairs`, under their source topic."""
        cluster = self._flow.source if of_source else self._flow.target
        own = {
            (pair.source if of_source else pair.target): (
                pair.source.topic,
                pair.source_range if of_source else pair.target_range,
            )
            for pair in pairs
        }
        found = self.records(cluster, {at: offsets for at, (_, offsets) in own.items()})
        if found is None:
            return None
        bases = [(*at, topic, 0) for at, (topic, _) in own.items()]
        return _as_source(transforms.placed(found, self.spark.createDataFrame(bases, _BASES)))

    def digests(self) -> list[Compared]:
        """Both sides once, and shifted partitions of the target once more."""
        source = self.records(self._flow.source, {pair.source: pair.source_range for pair in self._pairs})
        target = self.records(self._flow.target, {pair.target: pair.target_range for pair in self._pairs})
        here, there = self._chunks(
            *(None if side is None else side.withColumn("aligned", F.col("rank")) for side in (source, target))
        )
        anchored = {
            pair: chunks.anchors(here.get(pair.source, {}).values(), there.get(pair.target, {}).values(), self.bits)
            for pair in self._pairs
        }
        shifts = {pair: chunks.stretches(anchored[pair], _ends_aligned(pair, here, there)) for pair in self._pairs}
        shifted = [pair for pair in self._pairs if shifts[pair] != _UNSHIFTED]
        again = self.records(self._flow.target, {pair.target: pair.target_range for pair in shifted})
        if again is not None:
            moves = {pair.target: segments.shifts(shifts[pair], _total(there.get(pair.target, {}))) for pair in shifted}
            there |= self._chunks(None, self._aligned(again, moves))[1]
        return [
            _compared(pair, here.get(pair.source, {}), there.get(pair.target, {}), anchored[pair], shifts[pair])
            for pair in self._pairs
        ]

    def opened(self, intervals: Iterable[tuple[Compared, Sequence[Sequence[int]]]]) -> tuple[DataFrame, list[Pair]]:
        """Verdicts on all records of these lists of chunks; nothing is read before they are used.

        Returns:
            The findings, and the pairs in which large differences had to be cut without an anchor.
        """
        source: list[_ToOpen] = []
        target: list[_ToOpen] = []
        guessed: list[Pair] = []
        from_end = set()
        for item, numbers in intervals:
            found = segments.parts(numbers, item.source, item.target, item.anchored, item.stretches, self.bits)
            pair, topic = item.pair, item.pair.source.topic
            source.append(_ToOpen(pair.source, topic, _ranges(item.source, numbers), found.source))
            target.append(_ToOpen(pair.target, topic, _ranges(item.target, numbers), found.target))
            if found.guessed:
                guessed.append(pair)
            if pair.source_cut or pair.target_cut:
                from_end.add(pair.source)
        sides = self._opened(self._flow.source, source), self._opened(self._flow.target, target)
        return opened_chunks.findings(*sides, frozenset(from_end)), guessed

    def unequal(self, compared: Sequence[Compared]) -> DataFrame | None:
        """Findings on records in chunks of equal digests whose fields differ all the same. Shuffles all records."""
        source = self.named((item.pair for item in compared), of_source=True)
        target = self.named((item.pair for item in compared), of_source=False)
        if source is None or target is None:
            return None
        moves = {
            item.pair.source: segments.shifts(item.stretches, _total(item.target)) for item in compared if item.target
        }
        rows = [(*item.pair.source, number) for item in compared for number in item.unlike]
        unlike = self.spark.createDataFrame(rows, _UNLIKE)
        return transforms.unequal(
            transforms.outside(source.withColumn("aligned", F.col("rank")), unlike, self.bits),
            self._aligned(target, moves),
        )

    def _aligned(self, records: DataFrame, shifts: Mapping[Partition, Sequence[Segment]]) -> DataFrame:
        """Adds `aligned`: the rank on the source that a target record's rank corresponds to."""
        shifted = transforms.valued(records, self._segments(shifts), self.bits, "shift")
        return shifted.withColumn("aligned", F.col("rank") + F.col("shift")).drop("shift")

    def _chunks(
        self, source: DataFrame | None, target: DataFrame | None
    ) -> tuple[dict[Partition, Chunks], dict[Partition, Chunks]]:
        """Chunks of both sides in one job, by partition and number."""
        frames = [
            transforms.digests(side, self.bits).withColumn("of_source", F.lit(of_source))
            for side, of_source in ((source, True), (target, False))
            if side is not None
        ]
        sides: tuple[dict[Partition, Chunks], dict[Partition, Chunks]] = ({}, {})
        both = kafka.union(frames)
        for topic, partition, *fields, of_source in both.collect() if both is not None else []:
            chunk = Chunk._make(fields)
            sides[not of_source].setdefault(Partition(topic, partition), {})[chunk.number] = chunk
        return sides

    def _opened(self, cluster: Cluster, wanted: Sequence[_ToOpen]) -> DataFrame:
        """Records of one side to be opened, with hashes of their fields. Each layer reads a range of each partition."""
        parts = self._segments({item.at: item.parts for item in wanted})
        layers: list[DataFrame] = []
        for layer in itertools.count():
            now = [(item, item.ranges[layer]) for item in wanted if layer < len(item.ranges)]
            read = self.records(cluster, {item.at: (span.first, span.end) for item, span in now})
            if read is None:
                break
            bases = [(*item.at, item.source_topic, span.rank) for item, span in now]
            here = transforms.placed(read, self.spark.createDataFrame(bases, _BASES))
            layers.append(transforms.by_field(transforms.valued(here, parts, self.bits, "interval")))
        found = kafka.union(layers)
        return self.spark.createDataFrame([], _OPENED) if found is None else _as_source(found)

    def _segments(self, by_partition: Mapping[Partition, Sequence[Segment]]) -> DataFrame:
        rows = [
            (*at, bucket, [tuple(item) for item in found])
            for at, items in by_partition.items()
            for bucket, found in segments.bucketed(items, self.bits).items()
        ]
        return self.spark.createDataFrame(rows, _SEGMENTS)


def _as_source(records: DataFrame) -> DataFrame:
    return records.drop("topic").withColumnRenamed("source_topic", "topic")


def _total(side: Mapping[int, Chunk]) -> int:
    return sum(chunk.records for chunk in side.values())


def _ends_aligned(pair: Pair, here: Mapping[Partition, Chunks], there: Mapping[Partition, Chunks]) -> int:
    """The shift to try without any anchor: where a side's head was cut, the ends correspond, else the beginnings."""
    if not (pair.source_cut or pair.target_cut):
        return 0
    return _total(here.get(pair.source, {})) - _total(there.get(pair.target, {}))


def _compared(pair: Pair, source: Chunks, target: Chunks, anchored: Pairs, shifts: Sequence[Stretch]) -> Compared:
    differing = chunks.differing(source, target, source_cut=pair.source_cut, target_cut=pair.target_cut)
    return Compared(pair, source, target, anchored, shifts, differing)


def _ranges(side: Mapping[int, Chunk], intervals: Iterable[Sequence[int]]) -> list[Range]:
    return chunks.ranges(side[number] for numbers in intervals for number in numbers if number in side)

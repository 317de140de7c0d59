"""The reads of a reconciliation, each one Spark job over both sides or over what is left to look at.

1. digests of all chunks of both sides; 2. digests of the target again where its ranks are shifted; 3. opened chunks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.config import Cluster, Flow
from replicator.planes.contract import Partition
from replicator.spark import chunks, kafka, opening, transforms
from replicator.spark.chunks import Chunk, Differing, Range, Stretch
from replicator.spark.snapshot import Offsets, Pair

_UNSHIFTED = [Stretch(0, 0)]
_PLAN = "topic string, partition int, source_topic string, base long, stretches array<struct<start:long,shift:long>>"
_INTERVALS = "topic string, partition int, chunk long, interval int"
_OPENED = (
    "topic string, partition int, interval int, rank long, offset long, timestamp_ms long, digest long, key_hash long, "
    "value_hash long, headers_hash long, key_shown binary"
)
_ALIGNED = (
    "topic string, partition int, aligned long, rank long, offset long, timestamp_ms long, digest long, key binary, "
    "value binary, headers array<struct<key:string,value:binary>>"
)
Chunks = dict[int, Chunk]


@dataclass(frozen=True, slots=True)
class Compared:
    """One pair after the digest passes: chunks by aligned number, and what is to be opened."""

    pair: Pair
    source: Mapping[int, Chunk]
    target: Mapping[int, Chunk]
    stretches: Sequence[Stretch]
    differing: Differing


@dataclass(frozen=True, slots=True)
class _ToOpen:
    """What to open of one partition of one side."""

    at: Partition
    source_topic: str
    ranges: Sequence[Range]
    stretches: Sequence[Stretch]
    intervals: Sequence[Sequence[int]]


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

    def digests(self) -> list[Compared]:
        """Both sides once, and shifted partitions of the target once more."""
        source = self.records(self._flow.source, {pair.source: pair.source_range for pair in self._pairs})
        target = self.records(self._flow.target, {pair.target: pair.target_range for pair in self._pairs})
        here, there = self._chunks(
            *(None if side is None else side.withColumn("aligned", F.col("rank")) for side in (source, target))
        )
        shifts = {
            pair.target: chunks.stretches(
                here.get(pair.source, {}).values(), there.get(pair.target, {}).values(), self.bits
            )
            for pair in self._pairs
        }
        shifted = [pair for pair in self._pairs if shifts[pair.target] != _UNSHIFTED]
        if shifted:
            again = self.records(self._flow.target, {pair.target: pair.target_range for pair in shifted})
            plan = self._plan((pair.target, pair.source.topic, 0, shifts[pair.target]) for pair in shifted)
            realigned = None if again is None else transforms.aligned(again, plan)
            there |= self._chunks(None, realigned)[1]
        return [
            _compared(pair, here.get(pair.source, {}), there.get(pair.target, {}), shifts[pair.target])
            for pair in self._pairs
        ]

    def findings(self, compared: Iterable[Compared]) -> DataFrame:
        """Verdicts on all records of the chunks that differ. Nothing is read before the result is used."""
        opened = [item for item in compared if item.differing.intervals]
        source = [_to_open(item.pair.source, item, item.source, _UNSHIFTED) for item in opened]
        target = [_to_open(item.pair.target, item, item.target, item.stretches) for item in opened]
        return opening.findings(self._opened(self._flow.source, source), self._opened(self._flow.target, target))

    def unequal(self, compared: Sequence[Compared]) -> DataFrame:
        """Findings on records in chunks of equal digests whose fields differ all the same. Shuffles all records."""
        everything = [replace(item, differing=Differing([_equal_chunks(item)])) for item in compared]
        source = [_to_open(item.pair.source, item, item.source, _UNSHIFTED) for item in everything]
        target = [_to_open(item.pair.target, item, item.target, item.stretches) for item in everything]
        return transforms.unequal(
            self._layers(self._flow.source, source) or self.spark.createDataFrame([], _ALIGNED),
            self._layers(self._flow.target, target) or self.spark.createDataFrame([], _ALIGNED),
        )

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

    def _opened(self, cluster: Cluster, parts: Sequence[_ToOpen]) -> DataFrame:
        """Records of one side to be opened, with hashes of their fields."""
        found = self._layers(cluster, parts)
        return self.spark.createDataFrame([], _OPENED) if found is None else transforms.by_field(found)

    def _layers(self, cluster: Cluster, parts: Sequence[_ToOpen]) -> DataFrame | None:
        """Records of one side under their source topic. Each layer reads at most one range of each partition."""
        rows = [
            (*part.at, number, interval)
            for part in parts
            for interval, numbers in enumerate(part.intervals)
            for number in numbers
        ]
        intervals = self.spark.createDataFrame(rows, _INTERVALS)
        layers: list[DataFrame] = []
        for layer in itertools.count():
            now = [(part, part.ranges[layer]) for part in parts if layer < len(part.ranges)]
            read = self.records(cluster, {part.at: (span.first, span.end) for part, span in now})
            if read is None:
                break
            plan = self._plan((part.at, part.source_topic, span.rank, part.stretches) for part, span in now)
            layers.append(transforms.opened(transforms.aligned(read, plan), intervals, self.bits))
        found = kafka.union(layers)
        return None if found is None else found.drop("topic").withColumnRenamed("source_topic", "topic")

    def _plan(self, rows: Iterable[tuple[Partition, str, int, Sequence[Stretch]]]) -> DataFrame:
        plan = [(*at, topic, base, [tuple(stretch) for stretch in shifts]) for at, topic, base, shifts in rows]
        return self.spark.createDataFrame(plan, _PLAN)


def _compared(pair: Pair, source: Chunks, target: Chunks, shifts: Sequence[Stretch]) -> Compared:
    differing = chunks.differing(source, target, source_cut=pair.source_cut, target_cut=pair.target_cut)
    return Compared(pair, source, target, shifts, differing)


def _to_open(at: Partition, item: Compared, side: Mapping[int, Chunk], shifts: Sequence[Stretch]) -> _ToOpen:
    intervals = item.differing.intervals
    wanted = [side[number] for numbers in intervals for number in numbers if number in side]
    return _ToOpen(at, item.pair.source.topic, chunks.ranges(wanted), shifts, intervals)


def _equal_chunks(item: Compared) -> list[int]:
    return [n for n in sorted(item.source) if chunks.equal(item.source[n], item.target.get(n))]

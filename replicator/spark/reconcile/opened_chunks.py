"""The second read as a DataFrame: records of gaps of both sides in, findings out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.model.partition import Partition
from replicator.proof.by_content import alterations, record_verdicts
from replicator.proof.by_content.record_verdicts import FINDING, RECORD, Finding, ReadRecord
from replicator.spark import archives
from replicator.spark.reconcile import arrow
from replicator.spark.reconcile.transforms import PARTITION

FIELDS = tuple(name for name in ReadRecord._fields if name != RECORD.rank)
"""What is read of a record, see `transforms.by_field`; its rank comes from its place among those that are read."""
_SIDE = f"topic string, partition int, gap long, of_source boolean, {arrow.columns(ReadRecord, *FIELDS)}"
FOUND = f"topic string, partition int, {arrow.columns(Finding)}"
"""Columns of findings: where, and all fields of a `Finding`."""
FOUND_TYPES = arrow.types(FOUND)


class GapRange(NamedTuple):
    """What a gap has of one side: offsets [first, end), how many records of the partition stand before it, and the
    offsets of the records next to it, -1 where there is none."""

    first: int
    end: int
    rank: int
    before: int
    after: int


class GapSides(NamedTuple):
    """A gap, by both sides. Records below a rank of `source_skipped` or `target_skipped` are left out. `from_end`: of
    several equal records the last ones correspond. `compacted`: a side's topic is. `prefix_cut`: it is at the
    beginning, and a side's log was cut there."""

    source: GapRange
    target: GapRange
    source_skipped: int
    target_skipped: int
    from_end: bool
    compacted: bool = False
    prefix_cut: bool = False


Gaps = Mapping[Partition, list[GapSides]]
"""By source partition. The number of a gap is its place in the list."""


def within(records: DataFrame, places: Mapping[Partition, tuple[str, list[GapRange]]], *, of_source: bool) -> DataFrame:
    """Return those of `records` that lie in the ranges of their partition, under the name of the source's topic.

    Args:
        records: with `topic`, `partition` and `FIELDS`.
        places: by partition of this side, the source's topic, and each gap's range in order.
    """
    columns = records.select("topic", "partition", *FIELDS)
    return columns.mapInArrow(archives.of_task(_located(places, of_source)), _SIDE)


def _located(places: Mapping[Partition, tuple[str, list[GapRange]]], of_source: bool) -> arrow.Task:
    tables = {
        at: (
            topic,
            np.array([one.first for one in ranges], dtype=np.int64),
            np.array([one.end for one in ranges], dtype=np.int64),
        )
        for at, (topic, ranges) in places.items()
    }

    def locate(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for at, batch in arrow.by_partition(batches):
            topic, firsts, ends = tables[at]
            offsets = batch.column(RECORD.offset).to_numpy()
            gaps = np.searchsorted(firsts, offsets, side="right") - 1
            inside = (gaps >= 0) & (offsets < ends[gaps])
            if not inside.any():
                continue
            kept = batch.filter(pa.array(inside))
            count = kept.num_rows
            columns = [
                pa.array([topic] * count, pa.string()),
                kept.column("partition"),
                pa.array(gaps[inside]),
                pa.array(np.full(count, of_source)),
                *(kept.column(name) for name in FIELDS),
            ]
            names = ["topic", "partition", "gap", "of_source", *FIELDS]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    return locate


def findings(sides: DataFrame, gaps: Gaps) -> DataFrame:
    """Give verdicts on all opened records: those of one gap meet in one task, and nothing else is shuffled.

    Args:
        sides: of both sides, as `within` gives them.
    """

    def compare(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        topic, partition, number = (value.as_py() for value in key)
        gap = gaps[Partition(topic, partition)][number]
        here = _records(table, True, gap.source.rank, gap.source_skipped)
        there = _records(table, False, gap.target.rank, gap.target_skipped)
        edges = (gap.source.before, gap.source.after), (gap.target.before, gap.target.after)
        found = record_verdicts.compare(
            here, there, edges, number=number, from_end=gap.from_end, compacted=gap.compacted, prefix_cut=gap.prefix_cut
        )
        return arrow.table([(topic, partition, *item) for item in found], FOUND_TYPES)

    return sides.groupBy("topic", "partition", "gap").applyInArrow(archives.of_group(compare), FOUND)


def _records(table: pa.Table, of_source: bool, rank: int, skipped: int) -> list[ReadRecord]:
    mine = table.filter(pc.equal(table.column("of_source"), of_source)).sort_by(RECORD.offset)
    columns = [mine.column(name).to_pylist() for name in FIELDS]
    return [ReadRecord(rank + index, *fields) for index, fields in enumerate(zip(*columns, strict=True))][
        max(0, skipped - rank) :
    ]


def altered(findings: DataFrame) -> DataFrame:
    """Return missing and extra records with those that are one record as one finding, see `alterations`.

    Args:
        findings: with a column `together`: records of a partition with the same number are looked at together.
    """

    def pair(_: tuple[Any, ...], table: pa.Table) -> pa.Table:
        names = ["topic", "partition", *Finding._fields]
        rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
        at: tuple[str, int] | None = None
        mine = []
        for topic, partition, *fields in rows:
            at = topic, partition
            mine.append(Finding(*fields))
        return arrow.table([(*at, *one) for one in alterations.altered(mine)] if at else [], FOUND_TYPES)

    return findings.groupBy("topic", "partition", "together").applyInArrow(archives.of_group(pair), FOUND)


class First(NamedTuple):
    """So many records have a verdict, and the first ranks on either side."""

    records: int
    source_rank: int | None
    target_rank: int | None


Firsts = Mapping[Partition, Mapping[str, First]]
"""By partition and verdict."""


def firsts(opened: DataFrame) -> Firsts:
    """Collect which verdicts there are on opened records, and where each begins."""
    ranks = FINDING.source_rank, FINDING.target_rank
    rows = opened.groupBy(*PARTITION, FINDING.verdict).agg(
        F.sum(FINDING.records).alias(FINDING.records), *(F.min(rank).alias(rank) for rank in ranks)
    )
    found: dict[Partition, dict[str, First]] = {}
    for row in rows.collect():
        first = First(row[FINDING.records], *(row[rank] for rank in ranks))
        found.setdefault(Partition(row["topic"], row["partition"]), {})[row[FINDING.verdict]] = first
    return found

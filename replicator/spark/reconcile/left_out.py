"""Records that were left out of the opened gaps, looked up by digest among what the other side has too many of.

Of a partition whose log was cut at its beginning, records are left out whose copies retention has removed
(`reconcile`). Their copies may stand elsewhere all the same: a repair copies behind all others what was lost, and its
place may have expired since. Called by `explain`, before anything is explained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from replicator.model.partition import Partition, Span
from replicator.proof import verdicts
from replicator.proof.by_content.alignment import Side
from replicator.proof.by_content.record_verdicts import FINDING, RECORD, Finding, ReadRecord
from replicator.spark import archives
from replicator.spark.reconcile import arrow, kafka, transforms
from replicator.spark.reconcile.opened_chunks import FIELDS, FOUND, Firsts
from replicator.spark.reconcile.passes import Passes, ToOpen
from replicator.spark.reconcile.transforms import PARTITION

_MORE = (verdicts.EXTRA, verdicts.DOUBLED)
_RANKED = f"topic string, partition int, {arrow.columns(ReadRecord, RECORD.rank, *FIELDS)}"


def looked_up(
    passes: Passes, differ: Sequence[ToOpen], differing: DataFrame, firsts: Firsts
) -> tuple[list[ToOpen], DataFrame]:
    """Return what is to be opened, with the number of records that were found elsewhere, and the findings with one more
    for each of these: missing or extra, until `resolve.moved` makes one finding of both.

    Of each digest as many are added as the other side has more of, the last ones: what retention takes are the first.
    """
    added = []
    for of_source in (True, False):
        names = _MORE if of_source else (verdicts.MISSING,)
        asked = [
            item
            for item in differ
            if (item.source_skipped if of_source else item.target_skipped)
            and firsts.get(item.pair.source, {}).keys() & {*names}
        ]
        left_out = _read(passes, asked, of_source)
        if left_out is not None:
            added.append(_wanted(left_out, differing, of_source))
    found = kafka.union(added)
    if found is None:
        return list(differ), differing
    found = found.persist()
    counts: dict[Partition, dict[str, int]] = defaultdict(dict)
    for row in found.groupBy(*PARTITION, FINDING.verdict).count().collect():
        counts[Partition(row["topic"], row["partition"])][row[FINDING.verdict]] = row["count"]
    items = [
        replace(
            item,
            source_elsewhere=counts[item.pair.source].get(verdicts.MISSING, 0),
            target_elsewhere=counts[item.pair.source].get(verdicts.EXTRA, 0),
        )
        for item in differ
    ]
    return items, differing.unionByName(found)


def _read(passes: Passes, items: Sequence[ToOpen], of_source: bool) -> DataFrame | None:
    """Read the records that were left out of one side, with their ranks, under the source's topic; one task for each
    partition, or no rank would be known."""
    ranges: dict[Partition, Span] = {}
    limits: dict[Partition, tuple[str, int]] = {}
    for item in items:
        pair, aligned = item.pair, item.aligned
        at, side, skipped = (
            (pair.source, aligned.source, item.source_skipped)
            if of_source
            else (pair.target, aligned.target, item.target_skipped)
        )
        ranges[at] = pair.offsets(of_source)[0], _end(side, skipped)
        limits[at] = pair.source.topic, skipped
    read = passes.records(of_source, ranges)
    if read is None:
        return None
    by_field = transforms.by_field(read, deep=passes.deep).select("topic", "partition", *FIELDS)
    return by_field.mapInArrow(archives.of_task(_ranked(limits)), _RANKED)


def _end(side: Side, rank: int) -> int:
    """Return an offset below which all records with a smaller rank stand."""
    number = side.holding(rank)
    return side.chunks[number - 1 if side.ranks[number] == rank else number].last_offset + 1


def _ranked(limits: Mapping[Partition, tuple[str, int]]) -> arrow.Task:
    def ranked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read: dict[Partition, int] = defaultdict(int)
        for at, batch in arrow.by_partition(batches):
            topic, end = limits[at]
            first = read[at]
            read[at] += batch.num_rows
            kept = batch.slice(0, max(0, min(batch.num_rows, end - first)))
            columns = [
                pa.array([topic] * kept.num_rows, pa.string()),
                kept.column("partition"),
                pa.array(np.arange(first, first + kept.num_rows)),
                *(kept.column(name) for name in FIELDS),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["topic", "partition", RECORD.rank, *FIELDS])

    return ranked


def _wanted(left_out: DataFrame, differing: DataFrame, of_source: bool) -> DataFrame:
    """Return the findings of those records that the other side has more of than was found on this one."""
    missing = F.count_if(F.col(FINDING.verdict) == verdicts.MISSING)
    more = F.count_if(F.col(FINDING.verdict).isin(*_MORE))
    surplus = (more - missing) if of_source else (missing - more)
    digests = differing.groupBy(*PARTITION, FINDING.digest).agg(surplus.alias("surplus")).where("surplus > 0")
    last = Window.partitionBy(*PARTITION, RECORD.digest).orderBy(F.desc(RECORD.rank))
    found = left_out.join(digests, [*PARTITION, FINDING.digest]).withColumn("nth", F.row_number().over(last))
    place = (FINDING.source_offset, FINDING.source_rank) if of_source else (FINDING.target_offset, FINDING.target_rank)
    usual = Finding(verdicts.MISSING if of_source else verdicts.EXTRA, 1)._asdict()
    known = {name: F.lit(value) for name, value in usual.items() if name not in FIELDS} | {
        place[0]: F.col(RECORD.offset),
        place[1]: F.col(RECORD.rank),
        FINDING.tombstone: F.isnull(RECORD.value_hash),
    }
    columns = (column.split() for column in FOUND.split(", "))
    return found.where("nth <= surplus").select(
        *(known.get(name, F.col(name)).cast("bigint" if kind == "long" else kind).alias(name) for name, kind in columns)
    )

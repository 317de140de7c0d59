"""What both sides have besides, that `offset_map.compare` asks of what is left over: the third pass by the map.

Of the source: the last record that equals one which the target has left, and of compacted pairs the last one of each
key. Of the target: the last one of each key, and, where copies stand apart, those that equal what the source has left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.model.partition import Partition
from replicator.proof.pairs import Pair
from replicator.spark.reconcile import kafka
from replicator.spark.reconcile.by_map.opened_rows import CARRIED, carried
from replicator.spark.reconcile.passes import Passes, under_source

FEW_MAX = 250_000
"""What is left over is sent to every executor; with more, the records among which it is looked for are shuffled."""
AT = ("topic", "partition")
_CONTENT, _KEY = ("digest", "second_digest"), ("kept_key",)


class LeftCounts(NamedTuple):
    """How many records of a pair are left over: all, the target's, and those of the source's that have a key."""

    records: int
    of_target: int
    with_key: int


def counts(left: DataFrame) -> dict[Partition, LeftCounts]:
    """Count what is left over, by pair."""
    gone, here = ~F.col("behind"), F.col("of_source")
    rows = left.groupBy(*AT).agg(
        F.count(F.lit(1)).alias("records"),
        F.count_if(gone & ~here).alias("of_target"),
        F.count_if(gone & here & F.isnotnull("kept_key")).alias("with_key"),
    )
    return {Partition(*row[:2]): LeftCounts(*row[2:]) for row in rows.collect()}


def with_known(
    left: DataFrame,
    passes: Passes,
    pairs: Collection[Pair],
    numbers: Mapping[Partition, LeftCounts],
    apart: Collection[Partition],
) -> DataFrame:
    """Return what is left over of these pairs, and what else is known (`known`).

    Args:
        numbers: as of `counts`.
        apart: source partitions of which copies stand apart from what is compared.
    """
    few = sum(numbers[pair.source].records for pair in pairs) <= FEW_MAX
    mine = under_source(left, pairs, of_source=True)
    gone = mine.where(~F.col("behind"))
    here, there = gone.where("of_source"), gone.where(~F.col("of_source"))
    compacted = [pair for pair in pairs if pair.target_compacted and numbers[pair.source].with_key]
    found = [mine.withColumn("known", F.lit(False))]
    contents = there.select(*AT, *_CONTENT)
    keys = here.select(*AT, *_KEY).where(F.isnotnull("kept_key")).distinct()
    last_there = _last(passes, compacted, keys, _KEY, of_source=False, few=few)
    if last_there is not None:
        last_there = last_there.persist()
        found.append(_known(last_there, of_source=False))
        contents = contents.unionByName(last_there.select(contents.columns))
    wanted = [pair for pair in pairs if numbers[pair.source].of_target or pair in compacted]
    found += [
        _known(rows, of_source=True)
        for rows in (
            _last(passes, wanted, contents.distinct(), _CONTENT, of_source=True, few=few),
            _last(passes, compacted, keys, _KEY, of_source=True, few=few),
        )
        if rows is not None
    ]
    equal = _rows(passes, [pair for pair in pairs if pair.source in apart], of_source=False)
    if equal is not None:
        lost = here.select(*AT, *_CONTENT).distinct()
        found.append(
            _known(equal.join(F.broadcast(lost) if few else lost, [*AT, *_CONTENT], "left_semi"), of_source=False)
        )
    both = kafka.union(found)
    assert both is not None, "there is what is left over"
    return both


def _last(
    passes: Passes, pairs: Collection[Pair], wanted: DataFrame, by: tuple[str, ...], *, of_source: bool, few: bool
) -> DataFrame | None:
    """Find the last record of one side of each content or key that is wanted."""
    rows = _rows(passes, pairs, of_source=of_source)
    if rows is None:
        return None
    found = rows.join(F.broadcast(wanted) if few else wanted, [*AT, *by], "left_semi")
    others = [name for name in CARRIED if name not in by]
    last = F.max_by(F.struct(*others), "offset").alias("last")
    return found.groupBy(*AT, *by).agg(last).select(*AT, *by, "last.*").select(*AT, *CARRIED)


def _rows(passes: Passes, pairs: Collection[Pair], *, of_source: bool) -> DataFrame | None:
    """Read all records of one side of these pairs, under the source's topic."""
    read = passes.compared(pairs, of_source=of_source)
    return None if read is None else under_source(carried(read), pairs, of_source=of_source).select(*AT, *CARRIED)


def _known(rows: DataFrame, *, of_source: bool) -> DataFrame:
    return rows.withColumns(
        {
            "of_source": F.lit(of_source),
            "place": F.lit(None).cast("long"),
            "behind": F.lit(False),
            "known": F.lit(True),
        }
    )

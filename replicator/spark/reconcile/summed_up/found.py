"""What was found of each partition, summed up by Spark: counts, where findings lie, ranges of them, and why some are
unproven. The driver holds no more than this, however many findings there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from replicator.model.partition import Partition
from replicator.proof import verdicts
from replicator.proof.by_content.record_verdicts import FINDING
from replicator.proof.outcome import BUCKETS, OffsetRange
from replicator.spark.reconcile import arrow
from replicator.spark.reconcile.passes import Compared

RANGES_OF_VERDICT, RANGES_MAX = 20, 5_000
"""Ranges of each verdict in each partition that are told, and of all; the driver and the page hold them."""
REASONS_MAX = 5
"""Reasons that are told for each partition; those with most records."""
OTHER_REASONS = "other reasons (findings.parquet has them)"


class Count(NamedTuple):
    """So many findings of a verdict, how many of them are of records of either side, how many lie in each of BUCKETS
    parts of the partition, by rank, and of how many the verdict is a guess."""

    records: int
    of_source: int
    of_target: int
    places: list[int]
    guessed: int = 0


def _counts(findings: DataFrame, compared: Iterable[Compared]) -> dict[Partition, dict[str, Count]]:
    """Count how many findings of each verdict there are, and where, by partition and verdict."""
    lengths = [
        (*item.pair.source, max(1, item.aligned.source.records, item.aligned.target.records)) for item in compared
    ]
    sizes = arrow.frame(findings.sparkSession, lengths, "topic string, partition int, length long")
    rank = F.coalesce(FINDING.source_rank, FINDING.target_rank)
    bucket = F.least(F.floor(rank * BUCKETS / F.col("length")), F.lit(BUCKETS - 1)).cast("int")
    rows = (
        findings.join(F.broadcast(sizes), ["topic", "partition"])
        .groupBy("topic", "partition", FINDING.verdict, bucket.alias("bucket"))
        .agg(
            F.sum(FINDING.records),
            F.count(FINDING.source_rank),
            F.count(FINDING.target_rank),
            F.count_if(FINDING.guessed),
        )
        .collect()
    )
    found: dict[Partition, dict[str, Count]] = {}
    for topic, partition, verdict, at, records, of_source, of_target, guessed in rows:
        of_partition = found.setdefault(Partition(topic, partition), {})
        before = of_partition.get(verdict, Count(0, 0, 0, [0] * BUCKETS))
        before.places[at] = records
        of_partition[verdict] = Count(
            before.records + records,
            before.of_source + of_source,
            before.of_target + of_target,
            before.places,
            before.guessed + guessed,
        )
    return found


class LeftOut(NamedTuple):
    """So many records of one side stand below a rank, with a verdict that all of them have. `offsets` and
    `timestamps_ms` are the first and the last ones that are known."""

    verdict: str
    reason: str
    of_source: bool
    records: int
    end: int
    offsets: tuple[int, int]
    timestamps_ms: tuple[int, int]

    def is_followed_by(self, row: Row) -> bool:
        """Return whether findings of the same kind begin where these end."""
        here = self.verdict, self.reason, self.of_source, self.end
        return here == (row[FINDING.verdict], row[FINDING.reason], row["of_source"], row["rank"])

    def joined_with(self, behind: OffsetRange) -> OffsetRange:
        """Return both as one range."""
        span = behind.source_offsets if self.of_source else behind.target_offsets
        times_ms = [*self.timestamps_ms, *(behind.timestamps_ms or ())]
        return self._replace(
            records=self.records + behind.records,
            offsets=(self.offsets[0], span[1] if span else self.offsets[1]),
            timestamps_ms=(min(times_ms), max(times_ms)),
        ).as_range()

    def as_range(self) -> OffsetRange:
        """Return these alone."""
        return OffsetRange(
            verdict=self.verdict,
            records=self.records,
            reason=self.reason,
            source_offsets=self.offsets if self.of_source else None,
            target_offsets=None if self.of_source else self.offsets,
            timestamps_ms=self.timestamps_ms,
        )


class _Ranges(NamedTuple):
    """The first ranges of a partition, and how many of each verdict there are."""

    first: tuple[OffsetRange, ...] = ()
    found: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of one partition. `counts`: by verdict; `reasons`: why findings are unproven, and of how many
    records; `ranges`: the first ones of each verdict, of which there are `ranges_found`."""

    counts: Mapping[str, Count] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[OffsetRange, ...] = ()
    ranges_found: Mapping[str, int] = field(default_factory=dict)


def found(
    findings: DataFrame, compared: Sequence[Compared], left_out: Mapping[Partition, Collection[LeftOut]]
) -> dict[Partition, Found]:
    """Sum up all findings by source partition, in three jobs at most.

    Args:
        compared: all partitions that were compared.
        left_out: records that are no findings because nobody looked at them.
    """
    counts, ranges = _counts(findings, compared), _ranges(findings, left_out)
    unproven = any(verdicts.UNPROVEN in of_partition for of_partition in counts.values())
    reasons = _reasons(findings) if unproven else {}
    return {
        at: Found(counts.get(at, {}), reasons.get(at, {}), *ranges.get(at, _Ranges()))
        for at in counts.keys() | ranges.keys()
    }


def _ranges(findings: DataFrame, left_out: Mapping[Partition, Collection[LeftOut]]) -> dict[Partition, _Ranges]:
    """Return findings that follow one another as ranges: the first RANGES_OF_VERDICT of each verdict in each partition,
    and of all partitions RANGES_MAX at most, where the first ones of each come first.

    Args:
        left_out: records that are no findings because nobody looked at them; they come first.
    """
    of_verdict = ["topic", "partition", FINDING.verdict]
    order = Window.partitionBy(*of_verdict).orderBy("rank", "shift")
    all_ = Window.partitionBy(*of_verdict)
    joined = _joined(findings).withColumns(
        {"nth": F.row_number().over(order), "found": F.count(F.lit(1)).over(all_)},
    )
    rows = joined.where(F.col("nth") <= RANGES_OF_VERDICT).orderBy("nth", *of_verdict).limit(RANGES_MAX).collect()
    first: dict[Partition, list[OffsetRange]] = {}
    found: dict[Partition, dict[str, int]] = {}
    waiting = {at: list(items) for at, items in left_out.items()}
    for row in sorted(rows, key=lambda row: (row["topic"], row["partition"], row["rank"])):
        at = Partition(row["topic"], row["partition"])
        found.setdefault(at, {})[row[FINDING.verdict]] = row["found"]
        one = _range(row)
        for before in [it for it in waiting.get(at, ()) if it.is_followed_by(row)]:
            waiting[at].remove(before)
            one = before.joined_with(one)
        first.setdefault(at, []).append(one)
    for at, items in waiting.items():
        for alone in items:
            first.setdefault(at, []).insert(0, alone.as_range())
            of_verdict_found = found.setdefault(at, {})
            of_verdict_found[alone.verdict] = of_verdict_found.get(alone.verdict, 0) + 1
    return {at: _Ranges(tuple(items), found[at]) for at, items in first.items()}


def _joined(findings: DataFrame) -> DataFrame:
    """Make one row for findings of one kind whose ranks follow one another, on both sides where both have the
    record.
    """
    place = F.coalesce(FINDING.source_rank, FINDING.target_rank)
    with_shift = findings.withColumns(
        {
            "rank": place,
            "shift": F.coalesce(F.col(FINDING.target_rank) - F.col(FINDING.source_rank), F.lit(0)),
            "of_source": F.isnotnull(FINDING.source_rank),
        }
    )
    kind = ["topic", "partition", FINDING.verdict, FINDING.fields, FINDING.reason, "of_source", "shift"]
    order = Window.partitionBy(*kind).orderBy("rank")
    return (
        with_shift.withColumn("island", F.col("rank") - F.row_number().over(order))
        .groupBy(*kind, "island")
        .agg(
            F.min("rank").alias("rank"),
            F.sum(FINDING.records).alias(FINDING.records),
            *(
                end(name).alias(f"{end.__name__}_{name}")
                for name in (FINDING.source_offset, FINDING.target_offset, FINDING.timestamp_ms)
                for end in (F.min, F.max)
            ),
            F.min_by(FINDING.key, "rank").alias(FINDING.key),
        )
    )


def _range(row: Row) -> OffsetRange:
    spans = [
        None if row[f"min_{name}"] is None else (row[f"min_{name}"], row[f"max_{name}"])
        for name in (FINDING.source_offset, FINDING.target_offset, FINDING.timestamp_ms)
    ]
    return OffsetRange(
        verdict=row[FINDING.verdict],
        records=row[FINDING.records],
        fields=row[FINDING.fields],
        reason=row[FINDING.reason],
        source_offsets=spans[0],
        target_offsets=spans[1],
        timestamps_ms=spans[2],
        key=None if row[FINDING.key] is None else bytes(row[FINDING.key]),
    )


def _reasons(findings: DataFrame) -> dict[Partition, dict[str, int]]:
    """Say why records are unproven, by partition: REASONS_MAX reasons at most, and how many records have others."""
    of_reason = (
        findings.where(F.col(FINDING.verdict) == verdicts.UNPROVEN)
        .groupBy("topic", "partition", FINDING.reason)
        .agg(F.sum(FINDING.records).alias(FINDING.records))
    )
    order = Window.partitionBy("topic", "partition").orderBy(F.desc(FINDING.records), FINDING.reason)
    told = F.when(F.row_number().over(order) <= REASONS_MAX, F.col(FINDING.reason)).otherwise(F.lit(OTHER_REASONS))
    rows = (
        of_reason.withColumn("told", told)
        .groupBy("topic", "partition", "told")
        .agg(F.sum(FINDING.records).alias(FINDING.records))
    )
    found: dict[Partition, dict[str, int]] = {}
    for row in rows.orderBy("topic", "partition", F.desc(FINDING.records), "told").collect():
        found.setdefault(Partition(row["topic"], row["partition"]), {})[row["told"]] = row[FINDING.records]
    return found

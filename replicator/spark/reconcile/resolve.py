"""What a look beyond the opened gaps says about missing and extra records. Pure DataFrame functions, at any scale.

Doubled: the source has an equal record anywhere in the compared range. Moved far: missing in one place and extra, or
doubled, in another. Removed by retention: it has not moved, stands before the first record that both sides have, and
`retention.retained_prefix` says so. Compacted: that side's topic is compacted, and a later record of the key
exists; or it is a tombstone, and nothing older of the key is left there (a cleaner removes that first).

Records that are identical are interchangeable: which of them is missing can't be known, and doesn't matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from replicator.model.partition import Partition
from replicator.proof import verdicts
from replicator.proof.by_content.names import names
from replicator.proof.by_content.record_verdicts import FINDING, SIDES, Finding
from replicator.proof.copied_again import CopiedRun, copied_from
from replicator.spark import archives
from replicator.spark.reconcile import arrow
from replicator.spark.reconcile.transforms import PARTITION


class PartitionFacts(NamedTuple):
    """What is known of a partition: ranks of the first record that both sides have (None: none); how many of the first
    records of either side that were opened and have no equal lost their copy to retention, and whether that is proven
    (`retention.RetainedPrefix`); whose topic is compacted; the position; and below which offset records of either side
    went while they were read (0: none did)."""

    common_source: int | None
    common_target: int | None
    expired_source: int
    expired_target: int
    proven: bool
    source_compacted: bool
    target_compacted: bool
    source_copied_end: int
    source_gone: int
    target_gone: int


KNOWN = names(PartitionFacts)
PLACES = f"topic string, partition int, {arrow.columns(PartitionFacts)}"
"""Where, and all fields of its `PartitionFacts`."""
BY_RETENTION = "retention may have removed its copy, and no count says whether it did"
MEANWHILE = "retention removed records here while they were read, and its copy may have been one of them"
_OF_EITHER = [name for name in Finding._fields if name not in (*SIDES, FINDING.verdict, FINDING.digest, FINDING.reason)]
"""What a missing record and the extra one that equals it are the same in, or of which one will do."""


def expired(findings: DataFrame, places: DataFrame) -> DataFrame:
    """Name what retention explains: of the records before the first common one that only one side has, the first ones.

    Args:
        findings: after `moved`: a record that stands elsewhere on the other side has not expired there.
        places: schema PLACES, one row for each partition.
    """
    found = findings.join(F.broadcast(places), list(PARTITION))
    there = _missing() & before(FINDING.source_rank, KNOWN.common_source) & (F.col(KNOWN.expired_source) > 0)
    here = (
        (_extra() | _doubled()) & before(FINDING.target_rank, KNOWN.common_target) & (F.col(KNOWN.expired_target) > 0)
    )
    found = found.withColumn("prefix", F.when(there, F.lit(1)).when(here, F.lit(2)))
    order = Window.partitionBy(*PARTITION, "prefix").orderBy(F.coalesce(FINDING.source_rank, FINDING.target_rank))
    prefixes = found.where(F.isnotnull("prefix")).withColumn("nth", F.row_number().over(order))
    of_source, proven = F.col("prefix") == 1, F.col(KNOWN.proven)
    gone = F.col("nth") <= F.when(of_source, F.col(KNOWN.expired_source)).otherwise(F.col(KNOWN.expired_target))
    verdict = (
        F.when(gone & ~proven, F.lit(verdicts.UNPROVEN))
        .when(gone & of_source, F.lit(verdicts.EXPIRED))
        .when(gone, F.lit(verdicts.NEVER_MINE))
        .otherwise(F.col(FINDING.verdict))
    )
    reason = F.when(gone & ~proven, F.lit(BY_RETENTION)).otherwise(F.col(FINDING.reason))
    named = prefixes.withColumns({FINDING.verdict: verdict, FINDING.reason: reason}).select(findings.columns)
    return found.where(F.isnull("prefix")).select(findings.columns).unionByName(named)


def expired_originals(findings: DataFrame, known: Mapping[Partition, tuple[Sequence[CopiedRun], int]]) -> DataFrame:
    """Name extra and doubled records that a repair of the flow copied, and whose originals the source has lost since.

    Args:
        known: by source partition, what was copied again, and where the source's log begins.
    """
    lost = {at: one for at, one in known.items() if any(run.source_first < one[1] for run in one[0])}
    if not lost:
        return findings

    def name_expired(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            places = zip(*(batch.column(name).to_pylist() for name in (*PARTITION, FINDING.target_offset)), strict=True)
            gone = []
            for topic, number, offset in places:
                copied, start = lost.get(Partition(topic, number), ((), 0))
                original = copied_from(copied, offset)
                gone.append(original is not None and original < start)
            verdict = pc.if_else(pa.array(gone, pa.bool_()), verdicts.NEVER_MINE, batch.column(FINDING.verdict))
            yield batch.set_column(batch.schema.get_field_index(FINDING.verdict), FINDING.verdict, verdict)

    asked = _extra() | _doubled()
    named = findings.where(asked).mapInArrow(archives.of_task(name_expired), findings.schema)
    return findings.where(~asked).unionByName(named)


def removed_meanwhile(findings: DataFrame, places: DataFrame) -> DataFrame:
    """Leave unproven what only one side has, where the other one lost records while both were read.

    What a task has not read yet goes first: then even behind a common record one may be gone that nobody saw, and
    numbers from the first read say nothing about it.

    Args:
        findings: verdicts in the end.
        places: schema PLACES, one row for each partition.
    """
    found = findings.join(F.broadcast(places), list(PARTITION))
    behind = F.col(FINDING.other_after) + 1
    here = (_extra() | _doubled()) & (behind < F.col(KNOWN.source_gone))
    unseen = here | (_missing() & (behind < F.col(KNOWN.target_gone)))
    verdict = F.when(unseen, F.lit(verdicts.UNPROVEN)).otherwise(F.col(FINDING.verdict))
    reason = F.when(unseen, F.lit(MEANWHILE)).otherwise(F.col(FINDING.reason))
    return found.withColumns({FINDING.verdict: verdict, FINDING.reason: reason}).select(findings.columns)


def moved(findings: DataFrame) -> DataFrame:
    """Make one finding of a missing and an extra or doubled record of one partition with one digest; as many as there
    are."""
    place = F.coalesce(FINDING.source_rank, FINDING.target_rank)
    before = (
        Window.partitionBy(*PARTITION, FINDING.digest)
        .orderBy(place, FINDING.verdict)
        .rowsBetween(Window.unboundedPreceding, 0)
    )
    more = _extra() | _doubled()
    nth = F.when(_missing(), F.count_if(_missing()).over(before)).when(more, F.count_if(more).over(before))
    # Others are numbered from -1 down, so that each stays alone.
    other = -F.count_if(~(_missing() | more)).over(before)
    return (
        findings.withColumn("nth", F.coalesce(nth, other))
        .groupBy(*PARTITION, FINDING.digest, "nth")
        .agg(
            F.when(F.count(F.lit(1)) == 2, F.lit(verdicts.REORDERED))
            .otherwise(F.min(FINDING.verdict))
            .alias(FINDING.verdict),
            *(F.first(name, ignorenulls=True).alias(name) for name in _OF_EITHER),
            *(F.max(name).alias(name) for name in (*SIDES, FINDING.reason)),
        )
        .select(findings.columns)
    )


def doubled(findings: DataFrame, source: DataFrame, *, few: bool = False) -> DataFrame:
    """Name extra records that the source has, too.

    Args:
        source, few: as of `explained`.
    """
    small = F.broadcast if few else _as_it_is
    wanted = findings.where(_extra()).select(*PARTITION, FINDING.digest).distinct()
    there = (
        source.select(*PARTITION, FINDING.digest)
        .join(small(wanted), [*PARTITION, FINDING.digest], "left_semi")
        .distinct()
    )
    found = findings.join(small(there.withColumn("equal", F.lit(True))), [*PARTITION, FINDING.digest], "left")
    verdict = F.when(_extra() & F.isnotnull("equal"), F.lit(verdicts.DOUBLED)).otherwise(F.col(FINDING.verdict))
    return found.withColumn(FINDING.verdict, verdict).select(findings.columns)


def alone() -> Column:
    """Return whether a missing or an extra record has no equal on the other side to which, or from where, it could have
    moved: only such a record can be one that was altered. Of several equal ones the first are those that moved. Asked
    after `doubled`: an extra record that equals one of the source isn't called extra any more."""
    place = F.coalesce(FINDING.source_rank, FINDING.target_rank)
    equal = Window.partitionBy(*PARTITION, FINDING.digest)
    before = equal.orderBy(place, FINDING.verdict).rowsBetween(Window.unboundedPreceding, 0)
    others = F.count_if(_extra() | _doubled()).over(equal)
    return _extra() | (_missing() & (F.count_if(_missing()).over(before) > others))


def explained(
    findings: DataFrame, places: DataFrame, source: DataFrame | None, target: DataFrame | None, *, few: bool = False
) -> DataFrame:
    """Name what compaction may explain; `reason` says what it is if it doesn't: see `compaction_proof`.

    Args:
        places: schema PLACES, one row for each partition.
        source, target: records of the partitions where it may matter, to the end of their logs, with `topic`,
            `partition` (the source's), `offset`, `digest`, `key_hash`; None: it matters nowhere.
        few: the findings fit into every executor's memory; then neither they nor records of a side are shuffled.
    """
    small = F.broadcast if few else _as_it_is
    found = findings.join(F.broadcast(places), list(PARTITION))
    keys = found.where(_open_question() & F.isnotnull(FINDING.key_hash)).select(*PARTITION, FINDING.key_hash).distinct()
    copied_end = places.select(*PARTITION, KNOWN.source_copied_end)
    for side, records in (("source", source), ("target", target)):
        last_of = f"{side}_last", f"{side}_last_copied", f"{side}_last_digest"
        if records is None:
            found = found.withColumns({name: F.lit(None).cast("long") for name in last_of})
            continue
        here = records.join(F.broadcast(copied_end), list(PARTITION)).join(small(keys), [*PARTITION, FINDING.key_hash])
        copied = F.when(F.lit(side == "target") | (F.col("offset") < F.col(KNOWN.source_copied_end)), F.col("offset"))
        last = here.groupBy(*PARTITION, FINDING.key_hash).agg(
            F.max("offset").alias(last_of[0]),
            F.max(copied).alias(last_of[1]),
            F.max_by(FINDING.digest, "offset").alias(last_of[2]),
        )
        found = found.join(small(last), [*PARTITION, FINDING.key_hash], "left")
    gone, never = F.col(KNOWN.target_compacted) & _missing(), F.col(KNOWN.source_compacted) & (_extra() | _doubled())
    verdict = (
        F.when(gone & (_cleaned_there() | _last_equals("target")), F.lit(verdicts.COMPACTED))
        .when(never & (_cleaned_here() | _last_equals("source")), F.lit(verdicts.COMPACTED_SOURCE))
        .otherwise(F.col(FINDING.verdict))
    )
    # One of several identical records may have been removed anywhere before: not between its neighbours.
    anywhere = (gone & ~_cleaned_there() & _last_equals("target")) | (never & ~_cleaned_here() & _last_equals("source"))
    after = F.when(anywhere, F.lit(-1)).otherwise(F.col(FINDING.other_after))
    otherwise = (
        F.when(verdict == verdicts.COMPACTED, F.lit(verdicts.MISSING))
        .when(
            verdict == verdicts.COMPACTED_SOURCE,
            F.when(_doubled(), F.lit(verdicts.DOUBLED)).otherwise(verdicts.EXTRA),
        )
        .otherwise(F.col(FINDING.reason))
    )
    return found.withColumns({FINDING.verdict: verdict, FINDING.other_after: after, FINDING.reason: otherwise}).select(
        findings.columns
    )


def _as_it_is(frame: DataFrame) -> DataFrame:
    return frame


def _missing() -> Column:
    return F.col(FINDING.verdict) == verdicts.MISSING


def _extra() -> Column:
    return F.col(FINDING.verdict) == verdicts.EXTRA


def _doubled() -> Column:
    return F.col(FINDING.verdict) == verdicts.DOUBLED


def before(rank: str, common: str) -> Column:
    """Return whether a record stands before the first one that both sides have; its side is the one of `rank`."""
    return F.isnotnull(rank) & (F.isnull(common) | (F.col(rank) < F.col(common)))


def _open_question() -> Column:
    return (_missing() & F.col(KNOWN.target_compacted)) | ((_extra() | _doubled()) & F.col(KNOWN.source_compacted))


def _cleaned_there() -> Column:
    """Return whether compaction may have removed a missing record from the target: a later record of its key was
    copied, or stands there behind its place, whoever wrote it; or it is a tombstone, and the key is gone there; or it
    has no key, which no compacted topic keeps."""
    later = F.col("source_last_copied") > F.col(FINDING.source_offset)
    there = F.col("target_last") > F.col(FINDING.other_after)
    return _any(later, there, F.col(FINDING.tombstone) & F.isnull("target_last"), F.isnull(FINDING.key_hash))


def _cleaned_here() -> Column:
    """Return whether compaction may have removed an extra record from the source: a later record of its key stands
    there, however far behind, or came to the target; or it is a tombstone, and the key is gone here; or it has no key.
    """
    here = F.col("source_last") > F.col(FINDING.other_after)
    later = F.col("target_last") > F.col(FINDING.target_offset)
    return _any(here, later, F.col(FINDING.tombstone) & F.isnull("source_last"), F.isnull(FINDING.key_hash))


def _last_equals(side: str) -> Column:
    """Return whether a side's last record of the key equals this one: then it may be what is left of both."""
    return F.coalesce(F.col(f"{side}_last_digest") == F.col(FINDING.digest), F.lit(False))


def _any(*conditions: Column) -> Column:
    found = F.lit(False)
    for condition in conditions:
        found = found | F.coalesce(condition, F.lit(False))
    return found

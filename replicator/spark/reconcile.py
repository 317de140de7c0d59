"""Reconciliation of one flow: both sides read by Spark's own reader, compared, and every difference named.

Alignment is by rank. With an exact offset map it could be by offset: `chunks.Stretch` is where that would come in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.config import Cluster, Flow
from replicator.planes.contract import Partition
from replicator.spark import chunks, resolve, summary, transforms, verdicts
from replicator.spark.chunks import Chunk
from replicator.spark.outcome import DIFFERS, Mode, Outcome, PartitionOutcome
from replicator.spark.passes import Compared, Passes
from replicator.spark.resolve import Found, Head, Whereabouts
from replicator.spark.snapshot import Offsets, Pair, Snapshot
from replicator.spark.verdicts import Finding

FINDINGS_MAX = 100_000
"""Missing and extra records that are looked for elsewhere, in the driver; more than these stay as they are."""
_SCHEMA = f"topic string, partition int, {transforms.FINDING}"
Say = Callable[[str], None]


def reconcile(spark: SparkSession, flow: Flow, snapshot: Snapshot, mode: Mode, say: Say) -> tuple[Outcome, DataFrame]:
    """Compares both sides of `snapshot`.

    Args:
        mode: quick: which chunks differ, not which records. full: which records, and how. deep: chunks with equal
            digests are compared too, field by field.
        say: told in a few words what begins.

    Returns:
        The outcome, and all findings besides the records that are the same (persisted until Spark stops).
    """
    passes = Passes(spark, flow, snapshot.pairs)
    say("reading both sides")
    compared = passes.digests()
    differ = [item for item in compared if item.differing.intervals]
    notes: list[str] = []
    findings = spark.createDataFrame([], _SCHEMA)
    if mode != "quick" and differ:
        say(f"opening {sum(len(numbers) for item in differ for numbers in item.differing.intervals)} chunks")
        opened = passes.findings(compared).persist()
        findings = _resolved(spark, flow, passes, compared, opened, _firsts(opened), notes)
    if mode == "deep":
        say("comparing every field of every record")
        findings = findings.unionByName(passes.unequal(compared))
    findings = findings.persist()
    named = mode == "deep" or (mode == "full" and bool(differ))
    counts, places = (summary.counts(findings), summary.places(findings, compared)) if named else ({}, {})
    examples = summary.examples(findings) if named else {}
    partitions = tuple(
        replace(
            _outcome(item, counts.get(item.pair.source, {}), mode),
            places=places.get(item.pair.source, {}),
            examples=examples.get(item.pair.source, ()),
        )
        for item in compared
    )
    outcome = Outcome(
        flow=flow.name,
        source=flow.source.name,
        target=flow.target.name,
        mode=mode,
        snapshot_ms=snapshot.taken_ms,
        finished_ms=time.time_ns() // 1_000_000,
        partitions=partitions,
        waiting=snapshot.waiting,
        notes=tuple(notes),
    )
    return outcome, findings


def _firsts(opened: DataFrame) -> dict[Partition, tuple[int, int]]:
    """Ranks of the first opened record that both sides have alike."""
    rows = transforms.counted(opened.where(F.col("verdict") == verdicts.SAME)).collect()
    return {Partition(row["topic"], row["partition"]): (row["source_rank"], row["target_rank"]) for row in rows}


def head(item: Compared, first: tuple[int, int] | None) -> Head:
    """Where the part begins that both sides have: in an equal chunk, or in an opened one."""
    opened = {number for numbers in item.differing.intervals for number in numbers}
    equal = [
        (item.source[number].first_rank, item.target[number].first_rank)
        for number in sorted(item.source.keys() & item.target.keys() - opened)
    ][:1]
    known = sorted([*equal, *([first] if first else [])])
    source_rank, target_rank = known[0] if known else (None, None)
    return Head(source_rank, target_rank, item.pair.source_cut, item.pair.target_cut)


def _resolved(
    spark: SparkSession,
    flow: Flow,
    passes: Passes,
    compared: Iterable[Compared],
    opened: DataFrame,
    firsts: Mapping[Partition, tuple[int, int]],
    notes: list[str],
) -> DataFrame:
    """The findings with missing and extra records looked for beyond their stretch."""
    unsettled = opened.where(F.col("verdict").isin(verdicts.MISSING, verdicts.EXTRA))
    settled = opened.where(~F.col("verdict").isin(verdicts.MISSING, verdicts.EXTRA, verdicts.SAME))
    if unsettled.limit(FINDINGS_MAX + 1).count() > FINDINGS_MAX:
        notes.append(
            f"more than {FINDINGS_MAX} records are missing or extra: not looked for elsewhere, nor told apart from "
            "what retention and compaction removed"
        )
        return settled.unionByName(unsettled)
    items = {item.pair.source: item for item in compared}
    heads = {at: head(item, firsts.get(at)) for at, item in items.items()}
    found = [
        Found(Partition(row[0], row[1]), Finding._make(_plain(value) for value in row[2:]))
        for row in unsettled.collect()
    ]
    found = resolve.moved([Found(at, resolve.expired(finding, heads[at])) for at, finding in found])
    pairs = {at: item.pair for at, item in items.items()}
    seen = _whereabouts(flow, passes, pairs, found)
    rows = [
        resolve.explained(item, seen, pairs[item.at].source_compacted, pairs[item.at].target_compacted)
        for item in found
    ]
    known = spark.createDataFrame([(*item.at, *item.finding) for item in rows], _SCHEMA)
    return settled.unionByName(known)


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray) else value


def _whereabouts(flow: Flow, passes: Passes, pairs: Mapping[Partition, Pair], found: Iterable[Found]) -> Whereabouts:
    """Looks for equal records, and for later records of the same keys, in the affected partitions."""
    seen = Whereabouts()
    extra = {(at, f.digest) for at, f in found if f.verdict == verdicts.EXTRA}
    missing_keys = {(at, f.key_hash) for at, f in found if f.verdict == verdicts.MISSING and pairs[at].target_compacted}
    extra_keys = {(at, f.key_hash) for at, f in found if f.verdict == verdicts.EXTRA and pairs[at].source_compacted}
    source = {at: (at, pairs[at].source_range) for at, _ in extra | missing_keys}
    target = {at: (pairs[at].target, pairs[at].target_range) for at, _ in extra_keys}
    for at, digest, _ in _looked_up(passes, flow.source, source, "digest", extra):
        seen.source_digests.add((at, digest))
    for at, key, offset in _looked_up(passes, flow.source, source, "key_hash", missing_keys):
        seen.source_keys[at, key] = offset
    for at, key, offset in _looked_up(passes, flow.target, target, "key_hash", extra_keys):
        seen.target_keys[at, key] = offset
    return seen


def _looked_up(
    passes: Passes,
    cluster: Cluster,
    parts: Mapping[Partition, tuple[Partition, Offsets]],
    column: str,
    wanted: Iterable[tuple[Partition, int | None]],
) -> list[tuple[Partition, int, int]]:
    """(source partition, value of `column`, last offset) of records in `parts` whose value is wanted."""
    values = sorted({(*parts[at][0], value) for at, value in wanted if value is not None})
    if not values:
        return []
    names = {own: at for at, (own, _) in parts.items()}
    records = passes.records(cluster, dict(parts.values()))
    if records is None:
        return []
    asked = passes.spark.createDataFrame(values, f"topic string, partition int, {column} long")
    rows = (
        transforms.by_field(records)
        .join(F.broadcast(asked), ["topic", "partition", column])
        .groupBy("topic", "partition", column)
        .agg(F.max("offset").alias("offset"))
        .collect()
    )
    return [(names[Partition(row[0], row[1])], row[2], row[3]) for row in rows]


def _outcome(item: Compared, counts: Mapping[str, int], mode: Mode) -> PartitionOutcome:
    """One partition's row, without what only people look at. Counts agree where they can be compared."""
    pair, differing = item.pair, item.differing
    source_records = sum(chunk.records for chunk in item.source.values())
    target_records = sum(chunk.records for chunk in item.target.values())
    numbers = item.source.keys() | item.target.keys()
    unlike = {n for n in numbers if not chunks.equal(item.source.get(n), item.target.get(n))}
    found = {name: records for name, records in counts.items() if records}
    if mode == "quick" and differing.intervals:
        opened = {n for interval in differing.intervals for n in interval} & unlike
        found[DIFFERS] = sum(max(_records(item.source, n), _records(item.target, n)) for n in opened)
    for name, records in (
        (verdicts.EXPIRED, differing.expired_target),
        (verdicts.NEVER_MINE, differing.expired_source),
    ):
        if records:
            found[name] = found.get(name, 0) + records
    source_only = (verdicts.MISSING, verdicts.ALTERED, verdicts.REORDERED, verdicts.EXPIRED, verdicts.COMPACTED)
    same = source_records - sum(found.get(name, 0) for name in source_only)
    if mode == "quick":
        same = sum(_records(item.source, n) for n in numbers - unlike)
    position = pair.count
    source_known = position is not None and not pair.source_cut and not pair.source_compacted
    target_known = position is not None and not pair.target_cut and not pair.target_compacted
    return PartitionOutcome(
        source=pair.source,
        target=pair.target,
        source_offsets=pair.source_range,
        target_offsets=pair.target_range,
        source_records=source_records,
        target_records=target_records,
        position_records=position if source_known or target_known else None,
        source_counts_agree=not source_known or source_records == position,
        target_counts_agree=not target_known or target_records == position,
        chunks=len(numbers),
        chunks_differing=len(unlike),
        verdicts={verdicts.SAME: same, **found},
        notes=(*pair.notes, *_foreign(item)),
    )


def _foreign(item: Compared) -> list[str]:
    last = max((chunk.last_offset for chunk in item.target.values()), default=-1)
    if last < item.pair.vouched:
        return []
    return [f"records at target offsets {item.pair.vouched} to {last} were not written by this flow"]


def _records(side: Mapping[int, Chunk], number: int) -> int:
    return side[number].records if number in side else 0

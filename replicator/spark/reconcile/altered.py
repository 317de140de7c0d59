"""A few altered records, read once more from both sides to show their fields side by side.

The executors shorten them: the driver never holds a whole value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.config import Flow
from replicator.model.partition import Partition
from replicator.proof import excerpts
from replicator.proof.excerpts import Excerpt, FieldPair, Fields
from replicator.proof.outcome import PartitionOutcome
from replicator.spark.reconcile import arrow, kafka, verdicts
from replicator.spark.reconcile.alignment import Side
from replicator.spark.reconcile.passes import Compared

OF_PARTITION, OF_ALL = 3, 30
"""Altered records that are shown: of each partition, and together. Those that are far apart are read by tasks of their
own."""
_SHOWN = (
    "number int, name string, same boolean, of_source boolean, before string, differing string, after string, "
    "bytes long, sha256 string, cut_before boolean, cut_differing boolean, cut_after boolean"
)
_SHOWN_TYPES = arrow.types(_SHOWN)
_FIELDS = ("key", "value", "headers", "timestamp_ms")


class _Wanted(NamedTuple):
    """The first record of a range of a pair of partitions; the range's place in the list of the pair."""

    compared: Compared
    place: int
    source_offset: int
    target_offset: int


def with_fields(
    spark: SparkSession, flow: Flow, compared: Iterable[Compared], outcomes: Sequence[PartitionOutcome]
) -> tuple[PartitionOutcome, ...]:
    """The outcomes, with the fields of the first record of some of the ranges that were altered. One that retention has
    removed meanwhile has none."""
    wanted = _wanted({item.pair.source: item for item in compared}, outcomes)
    sides = [
        side for of_source in (True, False) if (side := _side(spark, flow, wanted, of_source=of_source)) is not None
    ]
    both = kafka.union(sides)
    if both is None:
        return tuple(outcomes)
    shown: dict[int, list[dict[str, Any]]] = {}
    for row in both.groupBy("number").applyInArrow(_compared, _SHOWN).collect():
        shown.setdefault(row["number"], []).append(row.asDict())
    found = {outcome.source: outcome for outcome in outcomes}
    for number, rows in shown.items():
        at, place = wanted[number].compared.pair.source, wanted[number].place
        ranges = list(found[at].ranges)
        ranges[place] = replace(ranges[place], fields_of_first=_field_pairs(rows))
        found[at] = replace(found[at], ranges=tuple(ranges))
    return tuple(found[outcome.source] for outcome in outcomes)


def _wanted(compared: Mapping[Partition, Compared], outcomes: Iterable[PartitionOutcome]) -> list[_Wanted]:
    found: list[list[_Wanted]] = []
    for outcome in outcomes:
        of_pair = [
            _Wanted(compared[outcome.source], place, item.source_offsets[0], item.target_offsets[0])
            for place, item in enumerate(outcome.ranges)
            if item.verdict == verdicts.ALTERED and item.source_offsets and item.target_offsets
        ]
        found.append(of_pair[:OF_PARTITION])
    # The first one of each partition comes before the second one of any.
    in_turn = [items[nth] for nth in range(OF_PARTITION) for items in found if nth < len(items)]
    return in_turn[:OF_ALL]


def _side(spark: SparkSession, flow: Flow, wanted: Sequence[_Wanted], *, of_source: bool) -> DataFrame | None:
    """The records of one side, each with its number in `wanted`."""
    offsets: dict[Partition, set[int]] = defaultdict(set)
    sides: dict[Partition, Side] = {}
    numbers: list[tuple[str, int, int, int]] = []
    for number, item in enumerate(wanted):
        at, offset = item.compared.at(of_source), item.source_offset if of_source else item.target_offset
        sides[at] = item.compared.side(of_source)
        offsets[at].add(offset)
        numbers.append((*at, offset, number))
    ranges = {
        at: kafka.put_together(((offset, offset + 1) for offset in sorted(here)), OF_PARTITION, sides[at].size)
        for at, here in offsets.items()
    }
    # A read takes one range of a partition.
    layers = [{at: here[layer] for at, here in ranges.items() if layer < len(here)} for layer in range(OF_PARTITION)]
    reads = [
        read
        for layer in layers
        if (read := kafka.read(spark, flow, flow.source if of_source else flow.target, layer)) is not None
    ]
    records = kafka.union(reads)
    if records is None:
        return None
    named = arrow.frame(spark, numbers, "topic string, partition int, offset long, number int")
    return (
        records.withColumn("timestamp_ms", F.unix_millis("timestamp"))
        .join(F.broadcast(named), ["topic", "partition", "offset"])
        .select("number", F.lit(of_source).alias("of_source"), *_FIELDS)
    )


def _compared(table: pa.Table) -> pa.Table:
    """Both sides of one record as rows of _SHOWN; none when a side is gone."""
    sides: dict[bool, Fields] = {}
    rows = table.to_pylist()
    for row in rows:
        headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
        sides[row["of_source"]] = Fields(row["key"], row["value"], headers, row["timestamp_ms"])
    if len(sides) < 2:
        return arrow.table([], _SHOWN_TYPES)
    shown = [
        (rows[0]["number"], pair.name, pair.same, of_source, *asdict(excerpt).values())
        for pair in excerpts.side_by_side(sides[True], sides[False])
        for of_source, excerpt in ((True, pair.source), (False, pair.target))
    ]
    return arrow.table(shown, _SHOWN_TYPES)


def _field_pairs(rows: Sequence[Mapping[str, Any]]) -> tuple[FieldPair, ...]:
    sides = {(row["name"], row["of_source"]): row for row in rows}
    return tuple(
        FieldPair(name, sides[name, True]["same"], *(_excerpt(sides[name, of_source]) for of_source in (True, False)))
        for name in verdicts.FIELDS
    )


def _excerpt(row: Mapping[str, Any]) -> Excerpt:
    return Excerpt(**{name: row[name] for name in Excerpt.__dataclass_fields__})

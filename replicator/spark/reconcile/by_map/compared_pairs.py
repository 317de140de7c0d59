"""Compares pairs that differ, in tasks: by the functions of `reconcile --local`.

Of a large pair a task is given what is left over; a small one it reads whole, as `reconcile --local` does, which is
sooner done than finding out what is left over.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from struct import Struct
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from replicator.jobs.repair_by_map import planned_by_map
from replicator.jobs.repair_plan import PlannedPartition
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition
from replicator.offset_map.verdicts import ComparedRecord, MapVerdict
from replicator.proof.by_content.record_verdicts import Finding
from replicator.proof.coverage import Coverage, SideCount
from replicator.proof.local_findings import MissingSpans, ReportedRecord, missing_spans
from replicator.proof.outcome import PartitionOutcome
from replicator.proof.pair_comparison import compare_rows
from replicator.proof.pair_report import pair_report
from replicator.proof.pair_rows import PairRows
from replicator.proof.pairs import Pair
from replicator.proof.partition_side import PartitionSide, both_sides
from replicator.proof.task_map import MapFacts, map_of
from replicator.spark import archives
from replicator.spark.reconcile import arrow
from replicator.spark.reconcile.opened_chunks import FOUND

COMPARED = f"{FOUND}, compared binary"
"""Findings; `compared`: of one row besides for each pair, a `ComparedPair` or the error that there was."""
_COMPARED_TYPES = arrow.types(COMPARED)
_DIGEST = Struct(">qq").pack
TASKS_MAX = 256
_OfPair = tuple["ComparedPair", list[ReportedRecord]]


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Records of a pair by the first pass: all of either side; `others`, `ahead`: see `Coverage`; `placed`: those of
    the source that have a place; `opened`: those of both sides in chunks that are opened."""

    source: int
    target: int
    others: SideCount
    ahead: SideCount
    placed: int
    opened: int

    def coverage(self, pair: Pair) -> Coverage:
        """Count as a comparison would have counted that has read all records; nothing is uncovered."""
        found = Coverage(pair, None)
        found.uncovered = []
        found.source_records, found.target_records = self.source, self.target
        found.others, found.ahead = self.others, self.ahead
        return found


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """What became of a pair: its outcome, which source records are missing, and what a repair would copy of it."""

    outcome: PartitionOutcome
    missing: MissingSpans
    planned: PlannedPartition | None


class OpenedRows(PairRows):
    """Rows that Spark has read: those that are left over, then those that say what else there is."""

    def __init__(
        self, pair: Pair, sides: tuple[PartitionSide, PartitionSide], coverage: Coverage, table: pa.Table
    ) -> None:
        """`table`: as of `compared`."""
        super().__init__(pair, *sides, coverage, lambda offsets: None)
        self._opened: tuple[list[ComparedRecord], list[ComparedRecord]] = [], []
        self._known: tuple[list[ComparedRecord], list[ComparedRecord]] = [], []
        self._asked = [False, False]
        self.placed = 0
        """Records of the source among those that are left over which have a place."""
        for of_source, known, has_place, record in _records(table):
            (self._known if known else self._opened)[not of_source].append(record)
            self.placed += of_source and has_place and not known

    def source(self) -> Iterable[ComparedRecord]:
        """See `PairRows`."""
        return self._next(0)

    def target(self) -> Iterable[ComparedRecord]:
        """See `PairRows`."""
        return self._next(1)

    def _next(self, side: int) -> list[ComparedRecord]:
        again, self._asked[side] = self._asked[side], True
        return sorted((self._known if again else self._opened)[side])


def compared(
    left: DataFrame, facts: MapFacts, counts: Mapping[Partition, PairCounts], *, values: bool, for_repair: bool
) -> DataFrame:
    """Return the findings and outcomes, see COMPARED.

    Args:
        left: what is left over, see `opened_rows.OPENED`, and what else is known, with `known` true.
    """

    def compare(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        at = Partition(*(value.as_py() for value in key))
        compare_it = partial(_compared, facts, at, (counts[at], table), values=values, for_repair=for_repair)
        return arrow.table(_rows(at, compare_it), _COMPARED_TYPES)

    return left.groupBy("topic", "partition").applyInArrow(archives.of_group(compare), COMPARED)


def compared_whole(
    spark: SparkSession, facts: MapFacts, pairs: Collection[Pair], *, values: bool, for_repair: bool
) -> DataFrame:
    """Return the findings and outcomes of pairs that are read whole, each by one task, see COMPARED."""

    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for topic, number in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                at = Partition(topic, number)
                compare_it = partial(_compared, facts, at, values=values, for_repair=for_repair)
                yield arrow.record_batch(_rows(at, compare_it), _COMPARED_TYPES)

    # From one partition rows go round to all tasks; from several, each begins with a task of its own choice.
    named = arrow.frame(spark, [pair.source for pair in pairs], "topic string, partition int").coalesce(1)
    return named.repartition(min(len(pairs), TASKS_MAX)).mapInArrow(archives.of_task(compare), COMPARED)


def _compared(
    facts: MapFacts, at: Partition, left: tuple[PairCounts, pa.Table] | None = None, *, values: bool, for_repair: bool
) -> _OfPair:
    """Compare a pair by what is left over of it and is known besides (see `compared`), or else by all records."""
    known = map_of(facts, at)
    pair, mapped = known.pair, known.mapped
    assert mapped is not None, f"{at} has a map"
    with both_sides(facts.flow, pair) as sides:
        rows: PairRows
        if left is None:
            coverage, equal = Coverage(pair, mapped), 0
            rows = PairRows(pair, *sides, coverage, lambda offsets: None)
        else:
            counts, table = left
            coverage = counts.coverage(pair)
            rows = opened = OpenedRows(pair, sides, coverage, table)
            equal = counts.placed - opened.placed
        one = compare_rows(pair, mapped, rows, coverage, for_repair=for_repair)
        one.found.counts[MapVerdict.SAME] += equal
        outcome, said = pair_report(pair, known.taken, one, sides, values=values)
    looked_at = coverage.source_records + coverage.target_records if left is None else left[0].opened
    planned = planned_by_map(one.choice()) if for_repair else None
    return ComparedPair(replace(outcome, opened=looked_at), missing_spans(said.records), planned), said.records


def _records(table: pa.Table) -> Iterator[tuple[bool, bool, bool, ComparedRecord]]:
    names = (
        *("of_source", "known", "place", "offset", "digest", "second_digest", "kept_key", "tombstone", "timestamp_ms"),
    )
    for batch in table.to_batches():
        columns = (batch.column(name).to_pylist() for name in names)
        for of_source, known, place, offset, digest, second, key, tombstone, time_ms in zip(*columns, strict=True):
            record = ComparedRecord(offset, _DIGEST(digest, second), key, tombstone, time_ms)
            yield of_source, known, place is not None, record


def _rows(at: Partition, compare: Callable[[], _OfPair]) -> list[tuple[object, ...]]:
    """Return what `compare` finds of a pair, or the error that there was, as rows."""
    try:
        found, records = compare()
    except ReplicatorError as error:
        return [_last_row(at, error)]
    return [*(_row(at, one) for one in records), _last_row(at, found)]


def _row(at: Partition, one: ReportedRecord) -> tuple[object, ...]:
    finding = Finding(
        one.verdict,
        1,
        one.fields,
        one.source,
        one.target,
        timestamp_ms=one.timestamp_ms,
        key=one.key,
        reason=one.reason,
    )
    return (*at, *finding, None)


def _last_row(at: Partition, found: ComparedPair | ReplicatorError) -> tuple[object, ...]:
    return (*at, *(None for _ in Finding._fields), pickle.dumps(found))

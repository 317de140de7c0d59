"""Whether log compaction took a record, by the log itself: it leaves offsets that no record has.

A record that one side lacks, of a topic that is compacted there, and whose key has a later record, was taken by
compaction, or is lost. Between its neighbours the other side's log tells: without an offset that is empty nothing was
compacted there, and the record is lost. With fewer of them than records are missing there, nothing tells which. Where
the two sides hold records in different orders, its copy may have stood elsewhere: then only a log without any empty
offset shows a loss.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.config import Flow
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition, Span, merged
from replicator.proof import verdicts
from replicator.proof.by_content.record_verdicts import FINDING, Finding
from replicator.proof.pairs import Pair
from replicator.spark import archives
from replicator.spark.reconcile import arrow
from replicator.spark.reconcile.transforms import PARTITION
from replicator.wire import log_evidence

INTERVALS_AT_ONCE = 1_000
"""Read in one go: their empty offsets are held in memory."""
_OF_PLACE = (FINDING.verdict, FINDING.other_after, FINDING.other_before)
_PLACE = (*PARTITION, *_OF_PLACE)
_PROVEN = f"topic string, partition int, {arrow.columns(Finding, *_OF_PLACE)}, proven string, why string"
_PROVEN_TYPES = arrow.types(_PROVEN)
_FEWER = "compaction emptied {} offsets where {} records are missing, so that some of them may be lost"
_ELSEWHERE = (
    "compaction emptied no offset between the records beside it, but others, and records stand in another order here"
)


class IntervalVerdict(NamedTuple):
    """What the log says of the records that are missing in one interval; `why` is empty unless it is unproven."""

    verdict: str
    why: str = ""


class Place(NamedTuple):
    """So many records are missing between two offsets, which have records; -1: the range begins or ends there."""

    after: int
    before: int
    records: int


def settled(
    findings: DataFrame, flow: Flow, pairs: Sequence[Pair], reordered: Collection[Partition], *, few: bool = False
) -> DataFrame:
    """Return the findings with compaction proven, refuted or left unproven. One task reads the log of one partition.

    Args:
        findings: those that compaction may explain among them; their `reason` says what they are if it doesn't.
        reordered: source partitions whose records stand in another order on the target.
        few: as of `resolve.explained`.
    """
    by_source, elsewhere = {pair.source: pair for pair in pairs}, frozenset(reordered)

    def prove(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        topic, partition, verdict = (value.as_py() for value in key)
        pair = by_source[Partition(topic, partition)]
        columns = (table.column(name).to_pylist() for name in (FINDING.other_after, FINDING.other_before, "missing"))
        places = [Place(*row) for row in zip(*columns, strict=True)]
        read, whole = _reader(flow, pair, verdict), _range(pair, verdict)
        proven = proven_places(read, places, whole, in_order=pair.source not in elsewhere)
        rows = [
            (topic, partition, verdict, place.after, place.before, *found)
            for place, found in zip(places, proven, strict=True)
        ]
        return arrow.table(rows, _PROVEN_TYPES)

    asked = findings.where(F.col(FINDING.verdict).isin(verdicts.COMPACTED, verdicts.COMPACTED_SOURCE))
    places = asked.groupBy(*_PLACE).agg(F.count(F.lit(1)).alias("missing"))
    # Also where all findings are one partition, several tasks read the logs.
    apart = places.repartition(*PARTITION, FINDING.verdict)
    proven = apart.groupBy(*PARTITION, FINDING.verdict).applyInArrow(archives.of_group(prove), _PROVEN)
    found = findings.join(F.broadcast(proven) if few else proven, list(_PLACE), "left")
    lost, unproven = F.col("proven") == verdicts.MISSING, F.col("proven") == verdicts.UNPROVEN
    candidate = F.isnotnull("proven")
    return found.withColumns(
        {
            FINDING.verdict: F.when(lost, F.col(FINDING.reason))
            .when(unproven, F.col("proven"))
            .otherwise(F.col(FINDING.verdict)),
            FINDING.reason: F.when(candidate, F.col("why")).otherwise(F.col(FINDING.reason)),
        }
    ).select(findings.columns)


Read = Callable[[Sequence[Span]], Sequence[tuple[Sequence[Span], str]]]
"""The empty offsets in each interval, and why some of it can't be told; intervals are sorted and disjoint."""


def _reader(flow: Flow, pair: Pair, verdict: str) -> Read:
    there = verdict == verdicts.COMPACTED
    cluster, at = (flow.target, pair.target) if there else (flow.source, pair.source)
    topic_id = pair.target_id if there else pair.source_id

    def read(intervals: Sequence[Span]) -> Sequence[tuple[Sequence[Span], str]]:
        found = log_evidence.holes(flow, cluster, at, intervals, topic_id=topic_id)
        return [(item.holes, item.unknown[0].why if item.unknown else "") for item in found]

    return read


def _range(pair: Pair, verdict: str) -> Span:
    return pair.target_range if verdict == verdicts.COMPACTED else pair.source_range


def proven_places(read: Read, places: Sequence[Place], whole: Span, *, in_order: bool = True) -> list[IntervalVerdict]:
    """Say what the log says of each place. Pure but for `read`; an error of the cluster leaves them unproven.

    Args:
        whole: offsets [first, end) that were compared.
        in_order: no record is known to stand elsewhere than between its neighbours of the other side.
    """
    spans = [_span(place, whole) for place in places]
    try:
        if in_order:
            found, unknown = _all_holes(read, spans)
        else:
            found, unknown = _all_holes(read, [whole])
    except ReplicatorError as error:
        return [IntervalVerdict(verdicts.UNPROVEN, f"the log's batches can't be read: {error}")] * len(places)
    holes = _Counted(found)
    return [
        _proven(
            place,
            holes.below(span[1]) - holes.below(span[0]),
            next((why for at, why in unknown if _touch(at, span)), ""),
            elsewhere=not in_order and bool(found),
        )
        for place, span in zip(places, spans, strict=True)
    ]


def _proven(place: Place, empty: int, unknown: str, *, elsewhere: bool) -> IntervalVerdict:
    if empty >= place.records:
        return IntervalVerdict(verdicts.COMPACTED)
    if unknown:
        return IntervalVerdict(verdicts.UNPROVEN, f"of some offsets nothing can be told: they are {unknown}")
    if not empty:
        return IntervalVerdict(verdicts.UNPROVEN, _ELSEWHERE) if elsewhere else IntervalVerdict(verdicts.MISSING)
    return IntervalVerdict(verdicts.UNPROVEN, _FEWER.format(empty, place.records))


def _span(place: Place, whole: Span) -> Span:
    first = place.after + 1 if place.after >= 0 else whole[0]
    return first, max(first, place.before if place.before >= 0 else whole[1])


def _touch(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _all_holes(read: Read, spans: Sequence[Span]) -> tuple[list[Span], list[tuple[Span, str]]]:
    """Find empty offsets in any of these spans, in order, and spans of which some can't be told."""
    asked = merged((first, end) for first, end in spans if first < end)
    holes: list[Span] = []
    unknown: list[tuple[Span, str]] = []
    for at in range(0, len(asked), INTERVALS_AT_ONCE):
        some = asked[at : at + INTERVALS_AT_ONCE]
        for span, (found, why) in zip(some, read(some), strict=True):
            holes += found
            if why:
                unknown.append((span, why))
    return holes, unknown


class _Counted:
    """How many offsets of sorted, disjoint spans lie below an offset."""

    def __init__(self, holes: Sequence[Span]) -> None:
        self._firsts = [first for first, _ in holes]
        self._holes = holes
        self._before = [0, *accumulate(end - first for first, end in holes)]

    def below(self, offset: int) -> int:
        """Count the offsets of all spans below this one."""
        number = bisect_left(self._firsts, offset)
        if not number:
            return 0
        first, end = self._holes[number - 1]
        return self._before[number - 1] + min(end, offset) - first

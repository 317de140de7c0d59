"""Compares pairs by the offset map, on Spark: the same verdicts as `reconcile --local`, by the same functions.

1 sum     both sides read once, XORed by chunks of target offsets; equal chunks are done           (chunk_sums)
2 open    records of chunks that differ, joined by their place: what is left over is what differs  (opened_rows)
3 ask     where records that equal those stand, and the last records of their keys                 (opened_rows)
4 compare what is left over of each pair, in a task                                                (compared_pairs)

A small pair that differs is read whole by a task instead of steps 2 to 4.
Which pairs the map doesn't cover is known after the first step; those are left to the comparison by content.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.config import Delivery, Flow
from replicator.model.counting import counted
from replicator.model.errors import Incident, ReplicatorError, Unsupported
from replicator.model.partition import Partition, Span, merged
from replicator.offset_map.verdicts import MapComparison, MapVerdict
from replicator.proof.coverage import NO_MAP, SideCount
from replicator.proof.local_findings import Reported
from replicator.proof.map_place import place_of_map, stable_offsets
from replicator.proof.outcome import DIFFERS, Mode, PartitionOutcome
from replicator.proof.pair_comparison import LEFT_MAX
from replicator.proof.pairs import Pair
from replicator.proof.snapshot import Snapshot, after_reading
from replicator.proof.summed_up import summed_up
from replicator.proof.task_map import MapFacts, map_of
from replicator.spark.reconcile import arrow, kafka
from replicator.spark.reconcile.by_map import chunk_sums, compared_pairs, known_rows, opened_rows
from replicator.spark.reconcile.by_map.chunk_sums import MapSaid, SumKind
from replicator.spark.reconcile.by_map.compared_pairs import ComparedPair, PairCounts
from replicator.spark.reconcile.by_map.opened_rows import OPENED, ChunksToOpen
from replicator.spark.reconcile.passes import READS_MAX, Passes, tasks
from replicator.wire.access import access

CHUNK_BITS_MIN, CHUNKS_MAX = 12, 1 << 18
WHOLE_MAX = 500_000
"""A pair that differs and has no more offsets on both sides is read whole by one task: at 100,000 records a side that
takes about two seconds, where opening, asking and comparing take four jobs and more. No more than `LEFT_MAX`: as many
records may be left over."""
ON_DRIVER_MAX = 20_000
"""Records that are left over which the driver keeps: what is asked of them then takes no shuffle."""
RECORD_BYTES = 512
"""About so many a record has: by that ranges are put together that are read in one go."""
UNNAMED = "the position names no block of the offset map"
WINDOW = "--from and --to cut both sides by time"
TOO_MANY = f"more than {LEFT_MAX:,} records don't stand where the offset map says"


@dataclass(slots=True)
class ByMap:
    """What was found. By source partition: `outcomes`, and, for a repair, what is missing and what would be copied;
    `by_content`: why a pair has to be compared so; `stopped`: why it can't be compared at all."""

    outcomes: dict[Partition, PartitionOutcome] = field(default_factory=dict)
    compared: dict[Partition, ComparedPair] = field(default_factory=dict)
    by_content: dict[Partition, str] = field(default_factory=dict)
    stopped: list[Incident] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    findings: DataFrame | None = None


def compare_by_map(
    spark: SparkSession,
    flow: Flow,
    snapshot: Snapshot,
    mode: Mode,
    say: Callable[..., object],
    *,
    values: bool,
    for_repair: bool,
) -> ByMap:
    """Compare those pairs of a snapshot that the map covers.

    Args:
        mode, say, values: as of `reconcile`.
        for_repair: whether it is asked what a repair would copy.

    Raises what `reconcile_local` does, but no Incident about a map that isn't there, and Unsupported.
    """
    found = ByMap()
    say("asking for the offset map")
    facts = _facts(flow, snapshot, found)
    if facts is None or not facts.pairs:
        return found
    return _Comparison(spark, facts, mode, say, found, values=values, for_repair=for_repair).run()


def _facts(flow: Flow, snapshot: Snapshot, found: ByMap) -> MapFacts | None:
    """Say what tasks are told; None where the flow has no map, or it can't be read."""
    why = ""
    if flow.delivery is not Delivery.EXACTLY_ONCE:
        why = f"a flow with delivery {flow.delivery.value} has no offset map"
    elif snapshot.window.from_ms is not None or snapshot.window.to_ms is not None:
        why = WINDOW
    else:
        try:
            for cluster in (flow.source, flow.target):
                access(cluster)
            place = place_of_map(flow)
        except (Unsupported, Incident) as error:
            why = str(error)
    if why:
        found.by_content = {pair.source: why for pair in snapshot.pairs}
        return None
    pairs = {pair.source: pair for pair in snapshot.pairs if pair.map_topic_id == place.topic_id}
    found.by_content = {pair.source: UNNAMED for pair in snapshot.pairs if pair.source not in pairs}
    stable = stable_offsets(flow, [pair.target for pair in pairs.values()])
    return MapFacts(uuid4().hex, flow, place, pairs, stable)


@dataclass(slots=True)
class _PairSums:
    """What the first pass has said of one pair. `differing`, and `equal`, with records that stand behind later ones: by
    chunk, records of the source and of the target, and the first and the last source offset; `apart`: how many records
    by kind and chunk of source offsets."""

    said: MapSaid | None = None
    counts: dict[SumKind, SideCount] = field(default_factory=dict)
    differing: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    equal: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    apart: dict[SumKind, dict[int, int]] = field(default_factory=dict)

    def take(self, row: Any) -> None:
        """Take a row of `chunk_sums.together`."""
        kind = SumKind(row["kind"])
        if kind is SumKind.ERROR:
            raise pickle.loads(row["said"])
        if kind is SumKind.MAP:
            self.said = pickle.loads(row["said"])
        elif kind is SumKind.CHUNK:
            of_source = row["of_source"]
            chunks = self.equal if row["equal"] else self.differing
            chunks[row["number"]] = of_source, of_source - row["records"], row["first"], row["last"]
        elif kind in (SumKind.UNPLACED, SumKind.NAMED, SumKind.PLACED_BEHIND):
            self.apart.setdefault(kind, {})[row["number"]] = row["records"]
        else:
            times_ms = row["first_ms"], row["last_ms"]
            self.counts[kind] = SideCount(row["records"], (row["first"], row["last"]), times_ms)

    def records(self, kind: SumKind) -> int:
        """Return how many there are of a kind."""
        return self.counts[kind].records if kind in self.counts else 0

    @property
    def opened(self) -> bool:
        """Whether any record has to be looked at."""
        return bool(self.differing or self.equal or self.apart)

    def pair_counts(self) -> PairCounts:
        """Return what its comparison takes of this."""
        none = SideCount()
        return PairCounts(
            self.records(SumKind.SOURCE),
            self.records(SumKind.TARGET),
            self.counts.get(SumKind.OTHERS, none),
            self.counts.get(SumKind.AHEAD, none),
            self.records(SumKind.PLACED),
            sum(here + there for here, there, _, _ in (*self.differing.values(), *self.equal.values())),
        )

    def to_open(self) -> ChunksToOpen:
        """Say which chunks are looked at."""
        sources = {number for chunks in self.apart.values() for number in chunks}
        return ChunksToOpen(sorted({*self.differing, *self.equal}), sorted(sources))

    def ranges(self, pair: Pair, bits: int, of_source: bool) -> list[Span]:
        """Return the offsets of one side that hold their records."""
        first, end = pair.offsets(of_source)
        opened = self.to_open()
        numbers = opened.sources if of_source else opened.targets
        spans = [(number << bits, (number + 1) << bits) for number in numbers]
        if of_source:
            spans += [(at, last + 1) for _, _, at, last in (*self.differing.values(), *self.equal.values())]
        return merged((max(first, one), min(end, other)) for one, other in spans if max(first, one) < min(end, other))


class _Comparison:
    def __init__(
        self,
        spark: SparkSession,
        facts: MapFacts,
        mode: Mode,
        say: Callable[..., object],
        found: ByMap,
        *,
        values: bool,
        for_repair: bool,
    ) -> None:
        self._facts, self._mode, self._say, self._found = facts, mode, say, found
        self._how = {"values": values, "for_repair": for_repair}
        self._passes = Passes(spark, facts.flow, list(facts.pairs.values()), deep=mode == "deep")
        self._bits = CHUNK_BITS_MIN
        while sum(-(-_length(pair.target_range) >> self._bits) for pair in facts.pairs.values()) > CHUNKS_MAX:
            self._bits += 1

    def run(self) -> ByMap:
        """Compare all pairs."""
        sums = self._sums()
        now = self._after_reading(sums)
        differ: dict[Partition, _PairSums] = {}
        for at, one in sums.items():
            said = self._said(at, one)
            self._found.notes += [note for note in said.notes if note not in self._found.notes]
            if not said.there or one.records(SumKind.UNCOVERED_SOURCE) or one.records(SumKind.UNCOVERED_TARGET):
                self._found.by_content[at] = "; ".join(dict.fromkeys(said.why)) or NO_MAP
            elif one.opened and self._mode != "quick":
                differ[at] = one
            else:
                self._found.outcomes[at] = self._outcome(now[at], said, one)
        small = {at: pair for at in differ if _offsets(pair := self._facts.pairs[at]) <= WHOLE_MAX}
        if small:
            self._say(f"comparing {counted(len(small), 'small partition')} record by record")
            self._take_compared(
                compared_pairs.compared_whole(self._passes.spark, self._facts, small.values(), **self._how)
            )
        if large := {at: one for at, one in differ.items() if at not in small}:
            self._open(large)
        return self._found

    def _after_reading(self, ats: Iterable[Partition]) -> dict[Partition, Pair]:
        """Return pairs as they are now: where retention has begun since the snapshot, the position counts more records
        than were read."""
        pairs = [self._facts.pairs[at] for at in ats]
        return {pair.source: pair for pair in after_reading(self._facts.flow, pairs)} if pairs else {}

    def _said(self, at: Partition, one: _PairSums) -> MapSaid:
        return one.said or MapSaid.of(map_of(self._facts, at))  # no task has: neither side has a record there

    def _sums(self) -> dict[Partition, _PairSums]:
        pairs = self._facts.pairs
        offsets = sum(_offsets(pair) for pair in pairs.values())
        self._say("comparing both sides by the offset map", offsets)
        found = {at: _PairSums() for at in pairs}
        frames = [
            chunk_sums.sums(read, self._facts, self._passes.digest_columns, self._bits, of_source=of_source)
            for of_source in (True, False)
            if (read := self._passes.compared(pairs.values(), of_source=of_source)) is not None
        ]
        both = kafka.union(frames)
        for row in chunk_sums.together(both).collect() if both is not None else ():
            found[Partition(row["topic"], row["partition"])].take(row)
        return found

    def _outcome(self, pair: Pair, said: MapSaid, one: _PairSums) -> PartitionOutcome:
        """Return the outcome of a pair of which nothing is opened: all records that have a place are where it is, or,
        in the quick pass, a chunk is all that is known."""
        here, there, places = one.pair_counts(), MapComparison(), one.differing.values()
        closed = [sum(chunk[side] for chunk in places) for side in (0, 1)]
        unplaced = sum(one.apart.get(SumKind.UNPLACED, {}).values())
        same = here.placed - closed[0]
        there.counts[MapVerdict.SAME] = same
        notes = [f"the map's sections are out of order from here on: {said.unordered}"] if said.unordered else []
        outcome = summed_up(
            pair, None, there, Reported(same=same), here.coverage(pair), notes, said.since, whole=not one.opened
        )
        if not (one.differing or unplaced):
            return outcome
        return replace(
            outcome,
            verdicts={**outcome.verdicts, DIFFERS: max(closed[0] + unplaced, closed[1])},
            chunks_differing=len(one.differing),
        )

    def _take_compared(self, rows: DataFrame) -> None:
        """Take what tasks have compared; the findings stay where they are."""
        compared = rows.persist()
        for row in compared.where(F.isnotnull("compared")).select("topic", "partition", "compared").collect():
            self._take(Partition(row["topic"], row["partition"]), pickle.loads(row["compared"]))
        findings = compared.where(F.isnull("compared")).drop("compared")
        before = self._found.findings
        self._found.findings = findings if before is None else before.unionByName(findings)

    def _open(self, differ: Mapping[Partition, _PairSums]) -> None:
        facts, pairs = self._facts, [self._facts.pairs[at] for at in differ]
        self._say(f"opening {counted(sum(len(one.differing) for one in differ.values()), 'chunk')} that differ")
        sides = [self._opened(pairs, differ, of_source=of_source) for of_source in (True, False)]
        left = opened_rows.left_over(*sides).persist()
        numbers = known_rows.counts(left)
        many = {at for at, number in numbers.items() if number.records > LEFT_MAX}
        self._found.by_content |= dict.fromkeys(many, TOO_MANY)
        if sum(number.records for number in numbers.values()) <= ON_DRIVER_MAX:
            left = arrow.on_driver(left)
        counts = {at: one.pair_counts() for at, one in differ.items() if at not in many}
        asked = [pair for pair in pairs if pair.source in counts and pair.source in numbers]
        for at, pair in self._after_reading(counts.keys() - numbers.keys()).items():
            known = differ[at]  # what differed before stands where it should by now, or is gone
            gone = replace(known, differing={}, equal={}, apart={})
            self._found.outcomes[at] = self._outcome(pair, self._said(at, known), gone)
        if not asked:
            return
        self._say("comparing what differs")
        apart = {at for at, one in counts.items() if one.others.records or one.ahead.records}
        rows = known_rows.with_known(left, self._passes, asked, numbers, apart)
        self._take_compared(compared_pairs.compared(rows, facts, counts, **self._how))

    def _opened(self, pairs: Sequence[Pair], differ: Mapping[Partition, _PairSums], *, of_source: bool) -> DataFrame:
        """Read the records of one side that may differ. A read takes one range of a partition: hence the layers."""
        spans = {
            pair.at(of_source): kafka.put_together(
                differ[pair.source].ranges(pair, self._bits, of_source), READS_MAX, _bytes
            )
            for pair in pairs
        }
        wanted = {at: one.to_open() for at, one in differ.items()}
        layers: list[DataFrame] = []
        for number in range(READS_MAX):
            ranges = {at: found[number] for at, found in spans.items() if number < len(found)}
            read = self._passes.records(of_source, ranges, tasks=tasks(ranges.values()))
            if read is None:
                break
            rows = opened_rows.carried(read)
            layers.append(opened_rows.opened(rows, self._facts, wanted, self._bits, of_source=of_source))
        found = kafka.union(layers)
        return arrow.frame(self._passes.spark, (), OPENED) if found is None else found

    def _take(self, at: Partition, compared: ComparedPair | ReplicatorError) -> None:
        if isinstance(compared, Incident):
            self._found.stopped.append(compared)
        elif isinstance(compared, Unsupported):  # its log is older than what is spoken here
            self._found.by_content[at] = str(compared)
        elif isinstance(compared, ReplicatorError):
            raise compared
        else:
            self._found.outcomes[at], self._found.compared[at] = compared.outcome, compared


def _offsets(pair: Pair) -> int:
    """Count how many offsets both sides have."""
    return _length(pair.source_range) + _length(pair.target_range)


def _length(span: Span) -> int:
    return max(0, span[1] - span[0])


def _bytes(first: int, end: int) -> int:
    return max(0, end - first) * RECORD_BYTES

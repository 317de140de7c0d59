"""Compares the target with the flow's offset map: `verify`. Reads no record of the source.

1 snapshot  the positions, and what they cover of the target: `snapshot`
2 map       its sections, in their order: chains and counts                                  (map_reader, map_chain)
3 target    where committed records stand: all of it, or where a sample of copies should be  (partition_side,
            claimed_places)

It proves that records stand at the places that the map names, and that nobody else's are among them; of the last block
of each position also what they hold (`last_block`). It can't see that a source record was skipped, nor what other
copies hold.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from replicator.config import Flow
from replicator.model.errors import Incident
from replicator.model.partition import Span
from replicator.proof.claimed_places import ClaimedPlaces, OffsetSpans
from replicator.proof.last_block import last_block
from replicator.proof.local import ComparisonProgress
from replicator.proof.map_chain import MapChain
from replicator.proof.map_place import place_of_map, refuse_delivery
from replicator.proof.map_reader import read_sections
from replicator.proof.pairs import Pair, own_sections
from replicator.proof.partition_side import NEAR, PartitionSide
from replicator.proof.snapshot import Snapshot
from replicator.proof.verified import WITHOUT_SOURCE, Verified, VerifiedPartition

COMPACTION_LOOKED_AT_MAX = 100_000
"""Empty places of a compacted partition that are looked at one by one; of more it isn't told what took them."""


@dataclass(frozen=True, slots=True)
class VerifyScope:
    """`sample`: which share of the copies is looked for on the target, drawn by `seed`. `since_ms`: only those that
    were committed since then."""

    sample: float = 1.0
    since_ms: int | None = None
    seed: int = 0

    @property
    def whole(self) -> bool:
        """Whether all of the target is looked at."""
        return self.sample >= 1 and self.since_ms is None


def verify(flow: Flow, snapshot: Snapshot, scope: VerifyScope, told: ComparisonProgress) -> Verified:
    """Compare the target's logs with the map. Nothing is changed. Raises as `local.reconcile_local`."""
    refuse_delivery(flow)
    told.step("reading the offset map")
    place = place_of_map(flow)
    chains = {
        pair.source: MapChain(pair.source_copied_end, scope.since_ms, pair.target_origin, pair.source_origin)
        for pair in snapshot.pairs
    }
    read = read_sections(flow, place, own_sections(snapshot.pairs, chains))
    told.step("reading the target", sum(_length(pair.target_range) for pair in snapshot.pairs))
    found: list[VerifiedPartition] = []
    not_compared = list(snapshot.not_compared)
    for pair in snapshot.pairs:
        try:
            found.append(_partition(flow, pair, chains[pair.source], scope, told))
        except Incident as incident:
            not_compared.append(incident)
    return Verified(
        flow=flow.name,
        snapshot_ms=snapshot.taken_ms,
        finished_ms=time.time_ns() // 1_000_000,
        partitions=tuple(found),
        not_compared=tuple(not_compared),
        waiting=tuple(item.source for item in snapshot.waiting if item.offsets[0] < item.offsets[1]),
        sample=scope.sample,
        since_ms=scope.since_ms,
        source_asked=snapshot.source_asked,
        notes=(*read.notes(place.topic), *snapshot.notes, *(() if snapshot.source_asked else (WITHOUT_SOURCE,))),
    )


def _partition(
    flow: Flow, pair: Pair, chain: MapChain, scope: VerifyScope, told: ComparisonProgress
) -> VerifiedPartition:
    firsts, ends = _sampled(chain, scope, pair)
    with PartitionSide(flow, flow.target, pair.target, pair.target_id) as target:
        places, records = _places(target, pair, (firsts, ends), scope, told)
        start = target.start()  # once more: what retention took meanwhile is no loss
        empty, emptied, expired = _empty(places, pair, target, start)
        block = last_block(pair, target)
    foreign, uncovered = OffsetSpans(), 0
    if scope.whole:
        foreign, uncovered = _unclaimed(places, _windows(pair, chain))
    return VerifiedPartition(
        source=pair.source,
        target=pair.target,
        source_span=_span(pair, chain),
        sections=chain.sections,
        copies=sum(ends) - sum(firsts) + chain.pruned,
        standing=places.standing,
        expired=places.expired + expired + chain.pruned,
        empty=tuple(empty.spans),
        empty_offsets=empty.offsets,
        emptied=emptied,
        foreign=tuple(foreign.spans),
        foreign_records=foreign.offsets,
        uncovered=uncovered,
        contradictions=tuple(_contradictions(pair, chain)),
        gaps=tuple(_gaps(pair, chain)),
        digests=chain.digests,
        last_block=block,
        voided=chain.voided,
        restarts=chain.restarts,
        records_read=records,
        notes=pair.notes,
    )


def _span(pair: Pair, chain: MapChain) -> Span | None:
    """Return the source offsets of which the map tells: none need be told of where nothing was copied since the flow
    began.
    """
    if chain.sections:
        return chain.begun, chain.after
    copied_end = pair.source_copied_end
    return (copied_end, copied_end) if _left_out(pair, pair.source_range[0], copied_end) else None


def _left_out(pair: Pair, first: int, end: int) -> bool:
    """Tell whether decisions have left out all of these source offsets: the map need not tell of them. `position set`
    leaves them out without a block."""
    for gap in pair.signed_gaps:  # ascending
        if gap.first <= first:
            first = max(first, gap.end)
    return first >= end


def _sampled(chain: MapChain, scope: VerifyScope, pair: Pair) -> tuple[array[int], array[int]]:
    """Return the claimed target offsets that are looked at, from where the flow begins."""
    draw = random.Random(f"{scope.seed} {pair.target}")
    firsts, ends = array("q"), array("q")
    for first, end in zip(chain.firsts, chain.ends, strict=True):
        if end > pair.target_origin and (scope.sample >= 1 or draw.random() < scope.sample):
            firsts.append(max(first, pair.target_origin))
            ends.append(end)
    return firsts, ends


def _places(
    target: PartitionSide,
    pair: Pair,
    claimed: tuple[array[int], array[int]],
    scope: VerifyScope,
    told: ComparisonProgress,
) -> tuple[ClaimedPlaces, int]:
    """Find what stands on the target, and how many records were read."""
    places = ClaimedPlaces(*claimed, pair.target_start)
    records, at = 0, pair.target_range[0]

    def passed(offset: int) -> None:
        nonlocal at
        told.passed(max(0, offset - at))
        at = max(at, offset)

    for first, end in _read_spans(pair, claimed, scope):
        for begin, until in target.occupied((first, end), passed):
            places.add(begin, until)
            records += until - begin
    places.finish()
    passed(pair.target_range[1])
    return places, records


def _read_spans(pair: Pair, claimed: tuple[array[int], array[int]], scope: VerifyScope) -> Iterator[Span]:
    """Yield ranges of target offsets to read. Of a sample those that are near one another are read in one go."""
    low, high = pair.target_range
    if scope.whole:
        yield low, high
        return
    first = last = -1
    for begin, end in zip(*claimed, strict=True):
        if end <= low:
            continue
        if first >= 0 and (begin - last > NEAR if scope.sample >= 1 else begin > last):
            yield max(first, low), last
            first = -1
        first, last = (begin if first < 0 else first), end
    if first >= 0:
        yield max(first, low), last


def _empty(places: ClaimedPlaces, pair: Pair, target: PartitionSide, start: int) -> tuple[OffsetSpans, int, int]:
    """Find claimed offsets without a record; how many of them log compaction, and retention meanwhile, may have
    taken.
    """
    left, emptied, expired = OffsetSpans(), 0, 0
    kept = places.empty.offsets - sum(end - first for first, end in places.empty.spans)
    left.offsets += kept
    looked_at = 0
    for first, end in places.empty.spans:
        below = max(0, min(end, start) - first)
        expired, first = expired + below, first + below
        if not pair.target_compacted:
            left.add(first, end)
            continue
        for offset in range(first, end):
            looked_at += 1
            if looked_at > COMPACTION_LOOKED_AT_MAX or target.emptied(offset) or target.untold(offset):
                emptied += 1
            else:
                left.add(offset, offset + 1)
    return left, emptied, expired


def _windows(pair: Pair, chain: MapChain) -> list[Span]:
    """Return target offsets in which records may stand that the map doesn't cover, ascending."""
    if not chain.sections:
        return [pair.target_range] if _span(pair, chain) is None else []
    found = [one.target for one in chain.breaks if not _left_out(pair, one.first, one.end)]
    if not _left_out(pair, pair.source_range[0], chain.begun):
        found.append((0, chain.firsts[0] if chain.firsts else pair.target_range[1]))
    if not _left_out(pair, chain.after, pair.source_copied_end):
        found.append((chain.next_target, pair.target_range[1]))
    return sorted(found)


def _unclaimed(places: ClaimedPlaces, windows: list[Span]) -> tuple[OffsetSpans, int]:
    """Return the records that nobody claims: nobody's, and how many stand where the map doesn't cover all."""
    foreign, uncovered = OffsetSpans(), 0
    foreign.offsets = places.unclaimed.offsets - sum(end - first for first, end in places.unclaimed.spans)
    for first, end in places.unclaimed.spans:
        at = first
        for low, high in windows:
            begin, until = max(at, low), min(end, high)
            if begin < until:
                foreign.add(at, begin)
                uncovered += until - begin
                at = until
        foreign.add(at, end)
    return foreign, uncovered


def _contradictions(pair: Pair, chain: MapChain) -> Iterator[str]:
    yield from chain.wrong
    if chain.wrong_in_all > len(chain.wrong):
        yield f"and {chain.wrong_in_all - len(chain.wrong)} more"
    if not chain.sections or chain.after != pair.source_copied_end:
        return
    if pair.count is not None and chain.count != pair.count:
        yield f"the map counts {chain.count} records up to the position, and the position {pair.count}"
    if chain.next_target > pair.covered_end >= 0:
        yield (
            f"the map's copies end at target offset {chain.next_target}, and the position covers those below "
            f"{pair.covered_end}"
        )


def _gaps(pair: Pair, chain: MapChain) -> Iterator[str]:
    if not chain.sections:
        if _span(pair, chain) is None:
            first, end = pair.source_range[0], pair.source_copied_end
            yield f"the map has nothing of source offsets {first} to {end - 1}, which the position has passed"
        return
    if not _left_out(pair, pair.source_range[0], chain.begun):
        yield f"the map begins at source offset {chain.begun}, and the flow at {pair.source_range[0]}"
    for one in chain.breaks:
        if _left_out(pair, one.first, one.end):
            continue
        how = "says that it begins again" if one.said else "has lost what was"
        more = ""
        if pair.generations.former and not one.said:
            how, more = "doesn't say which target topic has what was", ": rename was changed"
        yield f"the map {how} between source offsets {one.first} and {one.end}{more}"
    if not _left_out(pair, chain.after, pair.source_copied_end):
        yield f"the map ends at source offset {chain.after}, and the position is {pair.source_copied_end}"


def _length(span: Span) -> int:
    return max(0, span[1] - span[0])

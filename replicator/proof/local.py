"""Compares both sides of a flow in this process, by its offset map: `reconcile --local`.

1 snapshot  which offsets of both sides correspond: `snapshot`, the same as for Spark
2 map       its committed sections up to the positions, then the target's stable offsets           (map_reader, map_cut)
3 compare   both sides of a partition read side by side, in the order of offsets    (pair_comparison, partition_side)
4 explain   what compaction may have taken; the fields of altered records                (pair_rows, altered_fields)
5 sum up    every record of both sides has exactly one verdict                           (local_findings, summed_up)

What the map doesn't cover is counted and left unproven: contents are compared on Spark only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from replicator.config import Flow
from replicator.model.errors import Incident
from replicator.model.partition import Partition, Span
from replicator.offset_map.repair_rule import RepairChoice
from replicator.offset_map.section import topic_id_bytes
from replicator.proof.last_block import with_last_block
from replicator.proof.local_findings import Reported, ReportedRecord
from replicator.proof.map_cut import MapUpTo
from replicator.proof.map_place import place_of_map, refuse_delivery, stable_offsets
from replicator.proof.map_reader import read_sections
from replicator.proof.outcome import ClusterFacts, Outcome, PartitionOutcome
from replicator.proof.pair_comparison import compare_pair
from replicator.proof.pair_report import pair_report
from replicator.proof.pairs import Pair, own_sections
from replicator.proof.partition_side import both_sides
from replicator.proof.snapshot import Snapshot


class ComparisonProgress(Protocol):
    """Progress of a comparison."""

    def step(self, text: str, offsets: int = 0, /) -> object:
        """Note that a step begins, which passes so many offsets of both sides."""

    def passed(self, offsets: int, /) -> object:
        """Note that so many more of them are done."""


@dataclass(frozen=True, slots=True)
class LocalResult:
    """The outcome, and by source partition every record that isn't the same on both sides; what a repair would copy,
    if that was asked for."""

    outcome: Outcome
    records: dict[Partition, list[ReportedRecord]]
    choices: dict[Partition, RepairChoice]


def reconcile_local(
    flow: Flow, snapshot: Snapshot, told: ComparisonProgress, *, values: bool = True, for_repair: bool = False
) -> LocalResult:
    """Compare both sides of `snapshot` by the flow's offset map. Nothing is changed.

    Args:
        values: whether the outcome may hold parts of the fields of altered records.
        for_repair: whether `choices` are wanted: a target with losses is read twice.

    Raises:
        ConfigError: the flow's delivery has no map.
        Incident: map_lost, map_topic_unfit, newer_format, batch_corrupt, topic_gone.
        Unsupported: a cluster's login isn't spoken here, or a log has messages before format v2.
        Unreachable, NotAllowed, Retriable: as for other clients.
    """
    refuse_delivery(flow)
    told.step("reading the offset map")
    place = place_of_map(flow)
    maps = {
        pair.source: MapUpTo(topic_id_bytes(pair.source_id), topic_id_bytes(pair.target_id), pair.source_copied_end)
        for pair in snapshot.pairs
    }
    read = read_sections(flow, place, own_sections(snapshot.pairs, maps))
    stable = stable_offsets(flow, [pair.target for pair in snapshot.pairs])
    offsets = sum(_length(pair.source_range) + _length(pair.target_range) for pair in snapshot.pairs)
    told.step("comparing both sides", offsets)
    outcomes: list[PartitionOutcome] = []
    records: dict[Partition, list[ReportedRecord]] = {}
    choices: dict[Partition, RepairChoice] = {}
    not_compared = list(snapshot.not_compared)
    for pair in snapshot.pairs:
        try:
            found = _partition(
                flow, pair, maps[pair.source], stable[pair.target], told, values=values, for_repair=for_repair
            )
        except Incident as incident:
            not_compared.append(incident)
            continue
        outcomes.append(found[0])
        records[pair.source], choices[pair.source] = found[1].records, found[2]
    outcome = Outcome(
        flow=flow.name,
        source=ClusterFacts(flow.source.name, snapshot.cluster_ids[0], flow.source.bootstrap_servers),
        target=ClusterFacts(flow.target.name, snapshot.cluster_ids[1], flow.target.bootstrap_servers),
        mode="local",
        snapshot_ms=snapshot.taken_ms,
        finished_ms=time.time_ns() // 1_000_000,
        partitions=tuple(outcomes),
        waiting=snapshot.waiting,
        not_compared=tuple(not_compared),
        values=values,
        notes=(*read.notes(place.topic), *snapshot.notes),
    )
    return LocalResult(outcome, records, choices)


def _partition(
    flow: Flow,
    pair: Pair,
    taken: MapUpTo,
    stable: int,
    told: ComparisonProgress,
    *,
    values: bool,
    for_repair: bool,
) -> tuple[PartitionOutcome, Reported, RepairChoice]:
    with both_sides(flow, pair) as sides:
        one = compare_pair(pair, taken, stable, sides, told.passed, for_repair=for_repair)
        outcome, said = pair_report(pair, taken, one, sides, values=values)
        outcome = with_last_block(outcome, pair, sides[1])
    return outcome, said, one.choice() if for_repair and one.mapped is not None else RepairChoice()


def _length(span: Span) -> int:
    return max(0, span[1] - span[0])

"""A few records that were altered, by content, read once more from both sides to show their fields side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from replicator.config import Flow
from replicator.model.errors import Unsupported
from replicator.model.partition import Partition
from replicator.proof import verdicts
from replicator.proof.altered_fields import AlteredFields
from replicator.proof.outcome import PartitionOutcome
from replicator.proof.pairs import Pair
from replicator.proof.partition_side import both_sides

OF_PARTITION, OF_ALL = 3, 30
"""Altered records that are shown: of each partition, and together."""


def with_fields(
    flow: Flow, pairs: Mapping[Partition, Pair], outcomes: Iterable[PartitionOutcome]
) -> tuple[PartitionOutcome, ...]:
    """Return the outcomes, with the fields of the first record of some of the ranges that were altered: not of those
    that retention has removed meanwhile, and of none where a cluster's login isn't spoken here."""
    found, left = list[PartitionOutcome](), OF_ALL
    for outcome in outcomes:
        places = {
            item.source_offsets[0]: item.target_offsets[0]
            for item in outcome.ranges
            if item.verdict == verdicts.ALTERED and item.source_offsets and item.target_offsets
        }
        wanted = dict(list(places.items())[: min(OF_PARTITION, left)])
        left -= len(wanted)
        try:
            found.append(_shown(flow, pairs[outcome.source], outcome, wanted) if wanted else outcome)
        except Unsupported:  # which fields differ is said all the same
            found.append(outcome)
    return tuple(found)


def _shown(flow: Flow, pair: Pair, outcome: PartitionOutcome, wanted: Mapping[int, int]) -> PartitionOutcome:
    with both_sides(flow, pair) as (source, target):
        here = {record.offset: record for record in source.records(sorted(wanted))}
        there = {record.offset: record for record in target.records(sorted(wanted.values()))}
    both = {at: (here[at], there[place]) for at, place in wanted.items() if at in here and place in there}
    return replace(outcome, ranges=AlteredFields({}, both).shown(outcome.ranges))

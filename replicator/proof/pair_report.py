"""Reports what a comparison of one pair by the map has found. Used by `local`, and in Spark's tasks."""

from __future__ import annotations

from dataclasses import replace

from replicator.proof.altered_fields import altered_fields
from replicator.proof.local_findings import Reported, reported
from replicator.proof.map_cut import MapUpTo
from replicator.proof.outcome import PartitionOutcome
from replicator.proof.pair_comparison import PairComparison
from replicator.proof.pairs import Pair
from replicator.proof.partition_side import PartitionSide
from replicator.proof.summed_up import summed_up


def pair_report(
    pair: Pair, taken: MapUpTo, one: PairComparison, sides: tuple[PartitionSide, PartitionSide], *, values: bool
) -> tuple[PartitionOutcome, Reported]:
    """Return the outcome, and each record that isn't the same on both sides.

    Args:
        sides: altered records are read again.
        values: whether the outcome may hold parts of their fields.
    """
    # Asked again: where retention has begun since the snapshot, the position counts records that are gone.
    pair = pair.beginning_at(*(side.start() for side in sides))
    notes = [f"the map's sections are out of order from here on: {taken.unordered}"] if taken.unordered else []
    if one.mapped is None:
        return summed_up(pair, None, one.found, Reported(), one.coverage, notes), Reported()
    altered = altered_fields(one.found, *sides)
    said = reported(one.mapped, one.found, altered.differing, one.unproven)
    outcome = summed_up(pair, one.mapped, one.found, said, one.coverage, notes, taken.since)
    return (replace(outcome, ranges=altered.shown(outcome.ranges)) if values else outcome), said

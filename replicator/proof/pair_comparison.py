"""Compares one pair by the map, and says what a repair copies by that. Used by `local`, and by `map_repair` after a
repair's fence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from replicator.model.errors import Incident
from replicator.offset_map.compare import compare
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.places import TooManyLeft
from replicator.offset_map.repair_rule import RepairChoice, records_to_copy
from replicator.offset_map.verdicts import MapComparison, MapVerdict
from replicator.proof.coverage import BROKEN, Coverage, compared_map
from replicator.proof.map_cut import MapUpTo
from replicator.proof.pair_rows import PairRows
from replicator.proof.pairs import Pair
from replicator.proof.partition_side import PartitionSide

LEFT_MAX = 500_000
"""Records of a partition that may be kept in memory because they don't stand where the map says: some 200 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairComparison:
    """What was found. `mapped`: None where the map has nothing of the pair; then its records were only counted.
    `unproven`: why it can't be told of missing records that they are lost, by source offset."""

    coverage: Coverage
    mapped: PartitionMap | None = None
    found: MapComparison = field(default_factory=MapComparison)
    unproven: dict[int, str] = field(default_factory=dict)

    def choice(self) -> RepairChoice:
        """Return what a repair copies, if this was compared for one and nothing has changed since."""
        untold = {
            one.source: BROKEN
            for one in self.found.findings
            if one.verdict is MapVerdict.MISSING and one.by_content and one.source is not None
        }
        choice = records_to_copy(self.found, unproven=untold | self.unproven)
        choice.untold = sum(max(0, one.source.records - one.target.records) for one in self.coverage.uncovered)
        return choice


def compare_pair(
    pair: Pair,
    taken: MapUpTo,
    stable: int,
    sides: tuple[PartitionSide, PartitionSide],
    tell: Callable[[int], object],
    *,
    for_repair: bool = False,
) -> PairComparison:
    """Compare the pair's source and target.

    Args:
        taken: the map's sections of it.
        stable: see `map_place.stable_offsets`.
        tell: told how many more offsets of either side were read for the first time.

    Raises Incident `too_many_differences`, and as `PartitionSide`.
    """
    mapped = taken.finished(stable)
    if mapped is not None:
        mapped = compared_map(pair, mapped)
    coverage = Coverage(pair, mapped)
    rows = PairRows(pair, *sides, coverage, tell)
    if mapped is None:
        rows.count()
        return PairComparison(coverage=coverage)
    return compare_rows(pair, mapped, rows, coverage, for_repair=for_repair)


def compare_rows(
    pair: Pair, mapped: PartitionMap, rows: PairRows, coverage: Coverage, *, for_repair: bool = False
) -> PairComparison:
    """Compare what `rows` gives of both sides, and count it in `coverage` if `rows` does.

    Args:
        mapped: see `compared_map`.

    Raises as `compare_pair`.
    """
    rows.mapped = mapped
    whole = not coverage.uncovered and not mapped.others.spans and not mapped.ahead.spans
    try:
        found = compare(
            mapped, rows.source, rows.target, rows.evidence, for_repair=for_repair or not whole, left_max=LEFT_MAX
        )
    except TooManyLeft:
        why = f"more than {LEFT_MAX:,} records don't stand where the offset map says"
        at = pair.source
        raise Incident("too_many_differences", why, topic=at.topic, partition=at.partition) from None
    return PairComparison(coverage=coverage, mapped=mapped, found=found, unproven=rows.unproven(found))

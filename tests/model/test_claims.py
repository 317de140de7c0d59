"""Invariants 4 and 7: where a partition without a position starts, and when it must not start at all."""

from __future__ import annotations

import pytest

from tests.model.claims import ClaimRules, Partition, first, settled, steps
from tests.model.explore import Explored, explore

BROKEN = (
    (ClaimRules(no_claim=True), False, "stopped without a reason"),
    (ClaimRules(no_claim=True, ignore_target_data=True), False, "lost"),
    (ClaimRules(ignore_claim=True, ignore_target_data=True), False, "lost"),
    (ClaimRules(ignore_claim=True, ignore_target_data=True), True, "doubled"),
    (ClaimRules(ignore_claim=True), False, "lost"),
    (ClaimRules(latest_for_late_partitions=True), True, "lost"),
)


def _explore(rules: ClaimRules, late: bool) -> Explored[Partition]:
    return explore(first(late=late), lambda world: steps(world, rules, late=late), states_max=10_000, keep_edges=True)


@pytest.mark.parametrize("late", [False, True])
def test_as_designed_nothing_is_lost_or_doubled(late: bool) -> None:
    explored = _explore(ClaimRules(), late)
    assert explored.found is None, str(explored.found)
    stuck = explored.stuck(settled)
    assert stuck is None, str(stuck)


@pytest.mark.parametrize(("rules", "late", "kind"), BROKEN, ids=str)
def test_each_part_is_needed(rules: ClaimRules, late: bool, kind: str) -> None:
    found = _explore(rules, late).found
    assert found is not None
    assert found.kind == kind, str(found)

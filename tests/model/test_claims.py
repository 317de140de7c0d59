"""Invariants 4 and 7: where a partition without a position starts, and when it must not start at all."""

from __future__ import annotations

import pytest

from tests.model.claims import ClaimRules, Partition, first, settled, steps
from tests.model.explore import Explored, explore

BROKEN = (
    (ClaimRules(no_claim=True), False, "stopped without a reason"),
    (ClaimRules(ignore_claim=True, ignore_target_data=True), False, "doubled"),
    (ClaimRules(ignore_claim=True, ignore_target_data=True), True, "doubled"),
    (ClaimRules(latest_for_late_partitions=True), True, "lost"),
    (ClaimRules(resolve_at_admission=True), False, "lost"),
    (ClaimRules(store_after_open=True), False, "lost"),
)
SECOND_LINES = (ClaimRules(ignore_claim=True), ClaimRules(ignore_target_data=True))
"""Each stands in for the other: without both, records are doubled."""


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


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("rules", SECOND_LINES, ids=str)
def test_claim_and_target_data_stand_in_for_each_other(rules: ClaimRules, late: bool) -> None:
    found = _explore(rules, late).found
    assert found is None, str(found)

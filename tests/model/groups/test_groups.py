"""Group sync never moves a live group, nor what somebody else has committed, and knows its own offsets again."""

from __future__ import annotations

import pytest

from replicator.groups.ownership import GroupOffset
from tests.model.explore import Explored, explore
from tests.model.groups.steps import GroupModel, settled
from tests.model.groups.world import OPERATOR, GroupRules, World

pytestmark = pytest.mark.tier("extended")  # all states of the model

STATES_MAX = 400_000
EXISTING = World(value=GroupOffset(2), by=OPERATOR, left_alone=True, starts=2, joins=1)
SCENARIOS = {
    "existing": EXISTING,
    "one worker, members": World(moves=2, resets=1, joins=1),
    "one worker, resets": World(moves=2, resets=2),
    "answers are lost": World(moves=2, losses=1, waits=1),
    "answers are lost before members come": World(moves=1, resets=0, joins=1, losses=1, waits=1),
    "a worker dies": World(moves=1, starts=2, kills=1, waits=1),
    "a worker is replaced and goes on": World(moves=1, starts=2, losses=1),
    "two workers take turns": World(moves=1, resets=1, starts=3, waits=1),
}
LARGE = {"answers are lost", "a worker dies", "a worker is replaced and goes on", "two workers take turns"}
BROKEN = {
    "source_epoch_copied": ("one worker, members", "stands still"),
    "every_value_once_written_is_ours": ("one worker, resets", "somebody else's is overwritten"),
    "any_value_is_ours": ("existing", "somebody else's is overwritten"),
    "answer_not_noted": ("one worker, resets", "somebody else's is overwritten"),
    "noted_after_commit": ("a worker dies", "the flow's own is left alone"),
    "writer_not_fenced": ("two workers take turns", "the flow's own is left alone"),
    "transactional_commit": ("one worker, members", "a live group is moved"),
    "unanswered_forgotten": ("answers are lost", "the flow's own is left alone"),
    "unanswered_for_ever": ("answers are lost", "somebody else's is overwritten"),
    "somebody_elses_not_noted": ("one worker, resets", "somebody else's is overwritten"),
    "read_beyond_the_copy": ("one worker, resets", "records are skipped"),
}
"""What is left out, and what comes of it."""


def _explore(first: World, rules: GroupRules, *, edges: bool = False) -> Explored[World]:
    return explore(first, GroupModel(rules).steps, states_max=STATES_MAX, keep_edges=edges)


@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=pytest.mark.tier("full")) if name in LARGE else name for name in SCENARIOS]
)
def test_as_designed_nothing_is_moved_that_is_not_the_flows(scenario: str) -> None:
    explored = _explore(SCENARIOS[scenario], GroupRules(), edges=True)
    assert explored.found is None, str(explored.found)
    stuck = explored.stuck(settled)
    assert stuck is None, str(stuck)


@pytest.mark.parametrize("name", BROKEN)
def test_each_part_is_needed(name: str) -> None:
    scenario, kind = BROKEN[name]
    found = _explore(SCENARIOS[scenario], GroupRules(**{name: True})).found
    assert found is not None
    assert found.kind == kind, str(found)

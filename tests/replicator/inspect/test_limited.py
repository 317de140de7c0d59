"""What a rate limit holds back isn't stalled, as long as anything under the same limit is copied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.commands.status_check import WELL
from replicator.inspect.flow_status import PartitionStatus, State
from replicator.inspect.limited import with_limits
from replicator.model.checkpoint import Evidence
from replicator.model.partition import Partition
from replicator.state.run_settings import FLOW, RateLimit
from tests.replicator.inspect.test_status_describe import committed

A, B, U = Partition("t", 0), Partition("t", 1), Partition("u", 0)
SLOW = RateLimit(records_per_s=5, by="ann")
SINCE_MS = 1_000


def evidence(moved_ms: int) -> Evidence:
    return replace(committed(10).evidence, moved_ms=moved_ms)


def shown(limited: str, moved: Partition | None, state: State = "stalled") -> PartitionStatus:
    """The status of A, of which another partition, or none, has moved lately."""
    row = PartitionStatus(source_topic="t", partition=0, target_topic="t.copy", state=state, detail="as it was")
    positions = {at: evidence(SINCE_MS + 1 if at == moved else SINCE_MS) for at in (A, B, U)}
    (found,) = with_limits([row], {limited: SLOW}, positions, SINCE_MS)
    return found


@pytest.mark.parametrize(("limited", "moved"), [(FLOW, B), (FLOW, U), ("t", B)])
def test_what_waits_for_its_turn_is_limited(limited: str, moved: Partition) -> None:
    found = shown(limited, moved)
    assert found.state == "limited"
    assert found.detail == f"{limited or 'the flow'} is copied with at most 5 records/s, set by ann"
    assert found.state in WELL


@pytest.mark.parametrize(("limited", "moved"), [(FLOW, None), ("t", None), ("t", U), ("u", B)])
def test_a_limit_under_which_nothing_moves_explains_nothing(limited: str, moved: Partition | None) -> None:
    assert shown(limited, moved).state == "stalled"


def test_other_states_stay_as_they_are() -> None:
    for state in ("behind", "records_lost", "in_sync"):
        assert shown(FLOW, B, state).state == state

"""A task of a range without any cluster: how it ends where its lane can't reach the range's end."""

from __future__ import annotations

from typing import Any

import pytest

from replicator.jobs import range_copy
from replicator.jobs.bounded_lane import LaneProgress
from replicator.jobs.range_copy import RangeTask, copy_range
from replicator.jobs.range_policy import RangePolicy
from replicator.model.errors import Retriable
from tests.replicator.jobs.test_range_policy import AT, plan, ranged


class EndsEarly:
    """Stands in for a lane whose source ends at 7 now."""

    position = 7

    def __init__(self, plan: object, policy: RangePolicy, *others: Any) -> None:
        self.policy, self.progress = policy, LaneProgress()

    def run(self, until_s: float) -> None:
        self.policy.ended_early[AT] = "the source now ends at 7"


class Unasked:
    """Stands in for a watch of the generation."""

    def __init__(self, *given: Any) -> None:
        pass

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("end", "planned_again"), [(9, True), (7, False)])
def test_a_range_that_its_source_cannot_fill_is_planned_again(
    end: int, planned_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_copy, "BoundedLane", EndsEarly)
    monkeypatch.setattr(range_copy, "GenerationWatch", Unasked)
    done = copy_range(RangeTask(plan(ranged()), AT, 0, end, decides=True))
    assert done.position == 7
    assert isinstance(done.error, Retriable) is planned_again

"""What people are told to do about findings."""

from __future__ import annotations

from typing import Any

import pytest

from replicator.proof import verdicts
from replicator.proof.next_steps import next_steps
from tests.replicator.spark.reconcile.sample_outcomes import outcome, partition

CAUTION = "into a compacted topic only those that no later record of their key has superseded"
HALF = {"applied": True, "partitions": [{"copied": 1, "copied_before": 0, "standing": 0, "superseded": 0}]}


@pytest.mark.parametrize(
    "how", [{}, {"mode": "local"}, {"window": (0, None)}, {"repair": {"applied": False}}, {"repair": HALF}]
)
def test_who_is_told_to_repair_is_told_what_it_does_in_compacted_topics(how: dict[str, Any]) -> None:
    found = outcome(partition(verdicts={verdicts.SAME: 5, verdicts.MISSING: 4}), **how)
    (step,) = (step for step in next_steps(found) if step.kind == verdicts.MISSING)
    assert step.action == "repair"
    assert CAUTION in step.text

"""What a reader should know of the snapshot stands with the comparison."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from replicator.proof.snapshot import Snapshot
from replicator.spark.reconcile import reconcile
from replicator.spark.reconcile.by_map.compare import ByMap
from tests.replicator.spark.reconcile.read_lists import FLOW


def test_topics_that_were_not_looked_at_are_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "compare_by_map", lambda *_, **__: ByMap())
    taken = Snapshot((), (), 0, notes=("topic u isn't part of the flow any more",))
    made = reconcile.reconcile(spark, FLOW, taken, "full", lambda *_: None, values=False)
    assert made.outcome.notes == taken.notes

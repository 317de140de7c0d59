"""Partitions of all shapes, drawn at random: no verdict is wrong, by an oracle that knows what was done to them.

The clusters are replaced by lists, which Spark reads as it reads Kafka: in order, a range of one partition in a task.
"""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from replicator.model.partition import Partition
from replicator.proof import verdicts
from replicator.proof.by_content import alignment, cutting
from replicator.spark.reconcile import explain, reconcile
from tests.budget import budget
from tests.replicator.spark.reconcile.drawn import drawn_partition
from tests.replicator.spark.reconcile.read_lists import reconciled

SEEDS, AT_ONCE = budget(20, 1_000), 100


@pytest.mark.tier("full")
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
@pytest.mark.parametrize(
    ("mean", "prefix", "on_driver"),
    [
        pytest.param(cutting.MEAN_MIN, reconcile.PREFIX_RECORDS, explain.ON_DRIVER_MAX, marks=pytest.mark.tier("long")),
        (32, 40, 0),
        (32, 40, 1 << 30),
    ],
)
def test_no_verdict_is_wrong(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, mean: int, prefix: int, on_driver: int, first: int
) -> None:
    """With chunks as they are, and small ones, so that records are left out whose copies retention is known to have
    removed; with
    findings on the driver, and shuffled."""
    monkeypatch.setattr(explain, "ON_DRIVER_MAX", on_driver)
    drawn = {Partition("t", seed): drawn_partition(seed) for seed in range(first, min(first + AT_ONCE, SEEDS))}
    monkeypatch.setattr(reconcile, "PREFIX_RECORDS", prefix)
    monkeypatch.setattr(alignment, "MEAN_MIN", mean)
    outcome = reconciled(spark, monkeypatch, drawn.values())
    wrong = {}
    for found in outcome.partitions:
        expected = drawn[found.source].expected
        got = +Counter({name: records for name, records in found.verdicts.items() if name != verdicts.SAME})
        if drawn[found.source].pair.source_cut:  # whether what a record in front equals was ever on the source is lost
            got[verdicts.EXTRA] = got.get(verdicts.EXTRA, 0) + got.pop(verdicts.DOUBLED, 0)
            expected[verdicts.EXTRA] += expected.pop(verdicts.DOUBLED, 0)
            got, expected = +Counter(got), +expected
        if got != expected:
            wrong[found.source.partition] = (dict(got), dict(expected), found.notes)
    assert not wrong, "\n".join(f"{seed}: {text}" for seed, text in wrong.items())

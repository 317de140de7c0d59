"""Partitions of all shapes, drawn at random: no verdict is wrong, by an oracle that knows what was done to them.

The clusters are replaced by lists, which Spark reads as it reads Kafka: in order, a stretch of one partition in a task.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from replicator.config import load_text
from replicator.model.partition import Partition
from replicator.spark.reconcile import alignment, cutting, kafka, reconcile, verdicts
from replicator.spark.reconcile.pairs import Offsets
from replicator.spark.reconcile.snapshot import Snapshot
from tests.budget import budget
from tests.replicator.spark.frames import KAFKA, record
from tests.replicator.spark.reconcile.drawn import Drawn, Entry, drawn_partition

FLOW = load_text(
    """\
clusters: {a: {properties: {bootstrap.servers: "a:1"}}, b: {properties: {bootstrap.servers: "b:1"}}}
flows: {f: {source: a, target: b, topics: [t]}}
""",
    env={},
).flows["f"]
SEEDS = budget(20, 1_000)


def reader(spark: SparkSession, drawn: Mapping[Partition, Drawn]) -> Callable[..., DataFrame | None]:
    """Stands in for `kafka.read`."""

    def read(
        _: SparkSession, flow: Any, cluster: Any, ranges: Mapping[Partition, Offsets], *, tasks: int = 0
    ) -> DataFrame | None:
        slices: list[list[tuple[object, ...]]] = []
        for at, (first, end) in ranges.items():
            side: list[Entry] = drawn[at].source if cluster is FLOW.source else drawn[at].target
            rows = [
                record(
                    entry.offset,
                    entry.content.value,
                    key=entry.content.key,
                    ms=entry.content.ms,
                    partition=at.partition,
                )
                for entry in side
                if first <= entry.offset < end
            ]
            cut = random.Random(at.partition).randrange(len(rows) + 1) if tasks else len(rows)
            slices += [part for part in (rows[:cut], rows[cut:]) if part]
        if not slices:
            return None
        parts = spark.sparkContext.parallelize(slices, len(slices)).flatMap(lambda rows: rows)
        return spark.createDataFrame(parts, KAFKA)

    return read


@pytest.mark.parametrize(("mean", "heads"), [(cutting.MEAN_MIN, reconcile.HEAD_RECORDS), (32, 40)])
def test_no_verdict_is_wrong(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, mean: int, heads: int) -> None:
    """With chunks as they are, and small ones, so that heads are left out that retention is known to have removed."""
    drawn = {Partition("t", seed): drawn_partition(seed) for seed in range(SEEDS)}
    monkeypatch.setattr(kafka, "read", reader(spark, drawn))
    monkeypatch.setattr(reconcile, "after_reading", lambda flow, pairs: list(pairs))
    monkeypatch.setattr(reconcile, "HEAD_RECORDS", heads)
    monkeypatch.setattr(alignment, "MEAN_MIN", mean)
    taken = Snapshot(tuple(each.pair for each in drawn.values()), (), 0)
    outcome, _ = reconcile.reconcile(spark, FLOW, taken, "full", lambda *_: None)
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

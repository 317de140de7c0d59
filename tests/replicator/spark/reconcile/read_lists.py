"""Lists in place of clusters, which Spark reads as it reads Kafka: in order, a range of one partition in a task."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from replicator.config import load_text
from replicator.model.partition import Partition, Span
from replicator.proof.outcome import Outcome
from replicator.proof.snapshot import Snapshot
from replicator.spark.reconcile import kafka, reconcile
from replicator.spark.reconcile.by_map.compare import ByMap
from tests.replicator.spark.frames import KAFKA, record
from tests.replicator.spark.reconcile.drawn import Drawn, Entry

FLOW = load_text(
    """\
clusters: {a: {properties: {bootstrap.servers: "a:1"}}, b: {properties: {bootstrap.servers: "b:1"}}}
flows: {f: {source: a, target: b, topics: [t]}}
""",
    env={},
).flows["f"]


def reconciled(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, drawn: Iterable[Drawn]) -> Outcome:
    """Compares the lists of these partitions."""
    return found(spark, monkeypatch, drawn)[0]


def found(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, drawn: Iterable[Drawn]) -> tuple[Outcome, DataFrame]:
    """The same, with all findings."""
    by_partition = {each.pair.source: each for each in drawn}
    monkeypatch.setattr(kafka, "read", reader(spark, by_partition))
    monkeypatch.setattr(reconcile, "after_reading", lambda flow, pairs: list(pairs))
    taken = Snapshot(tuple(each.pair for each in by_partition.values()), (), 0)
    monkeypatch.setattr(reconcile, "compare_by_map", lambda *_, **__: ByMap(by_content=dict.fromkeys(by_partition, "")))
    made = reconcile.reconcile(spark, FLOW, taken, "full", lambda *_: None, values=False)  # no cluster has these
    return made.outcome, made.findings


def reader(spark: SparkSession, drawn: Mapping[Partition, Drawn]) -> Callable[..., DataFrame | None]:
    """Stands in for `kafka.read`."""

    def read(
        _: SparkSession, flow: Any, cluster: Any, ranges: Mapping[Partition, Span], *, tasks: int = 0
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

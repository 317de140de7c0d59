"""Runs a reconciliation in the tests' Spark."""

from __future__ import annotations

from pyspark.sql import SparkSession

from replicator.config import Flow
from replicator.proof import snapshot
from replicator.proof.outcome import Mode, Outcome
from replicator.proof.snapshot import Window
from replicator.spark.reconcile.reconcile import reconcile

PATIENCE_MS = 20_000
COLUMNS = ("verdict", "partition", "source_offset", "target_offset", "fields")


def run(spark: SparkSession, flow: Flow, mode: Mode = "full", window: Window = Window()) -> tuple[Outcome, set[tuple]]:  # type: ignore[type-arg]  # noqa: B008
    """Reconciles; findings as (verdict, partition, source offset, target offset, fields)."""
    taken = snapshot.take(flow, (), window, connect_timeout_ms=PATIENCE_MS)
    found = reconcile(spark, flow, taken, mode, print)
    return found.outcome, {tuple(row[name] for name in COLUMNS) for row in found.findings.collect()}

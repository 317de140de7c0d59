"""On a standalone cluster: executors get the connector from the driver, and a team's own settings hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.spark_cluster import SparkCluster
from integration_tests.spark.conftest import Start
from replicator.spark import defaults

RECORDS = 2_000


def test_both_sides_are_compared_on_executors(
    make_copying: MakeCopying, start: Start, cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying = make_copying(partitions=2)
    copying.load.mixed(RECORDS)
    copying.finish(copying.running())
    events, team = tmp_path / "events", tmp_path / "team"
    for directory in (events, team):
        directory.mkdir()
    (team / defaults.NAME).write_text(f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(team))
    done = start("reconcile", copying.file, *cluster.options(), "--json").succeeded()
    assert done["agrees"]
    assert sum(row["source_records"] for row in done["partitions"]) == copying.load.committed
    assert list(events.iterdir()), "the team's event log is empty"

"""On a standalone cluster whose workers share no disk with the driver and have an environment of their own: each job.

What comes from the driver's machine comes over the network: records' digests, the Kafka connector, secrets.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.compare import CopyVerdict, compare, wait_key
from integration_tests.harness.copying import Copying
from integration_tests.harness.environments import ROOT
from integration_tests.harness.processes import wait_until
from integration_tests.harness.secured import USERS, Secured
from integration_tests.harness.spark_cluster import LEAN, OLD, OLD_VERSION, UNEQUAL, WHOLE, SparkCluster, conf_options
from integration_tests.spark.conftest import Plant, Start, wait_rounds
from integration_tests.spark.planted import EPOCH_MS, Content
from replicator.spark import defaults

RECORDS = 2_000
VERSION = ".".join(map(str, sys.version_info[:2]))
pytestmark = [pytest.mark.timeout(600), pytest.mark.tier("long")]


def test_workers_have_nothing_of_the_driver(cluster: SparkCluster, tmp_path: Path) -> None:
    one, other = cluster.workers
    for place in (ROOT, Path(sys.prefix), tmp_path):
        assert place.exists()
        assert one.run("ls", str(place)).returncode != 0, place
    one.here("/tmp/mark").touch()
    assert [machine.run("ls", "/tmp/mark").returncode == 0 for machine in (one, other)] == [True, False]
    said = one.run(f"{WHOLE}/bin/python", "-c", "import pyarrow, replicator; print(replicator.__file__)").stdout
    assert said.startswith(f"{WHOLE}/lib/")
    assert "No module named 'pyarrow'" in one.run(f"{LEAN}/bin/python", "-c", "import pyarrow").stderr


def test_a_flow_is_copied_and_compared_on_executors(
    make_copying: MakeCopying, start: Start, cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backfill, then rounds while the source is written, then a reconciliation; a team's own settings hold."""
    copying = make_copying(partitions=2)
    copying.load.mixed(RECORDS)
    ranges, events, team = tmp_path / "ranges", tmp_path / "events", tmp_path / "team"
    done = start(
        "backfill", copying.file, *cluster.options(), "--json", "--range", "500", "--out", ranges.as_uri()
    ).succeeded()
    assert done["done"]
    assert done["records"] == copying.load.committed
    rows = [row for path in ranges.glob("*.parquet") for row in parquet.read_table(path).to_pylist()]
    assert sum(row["records"] for row in rows) == copying.load.committed
    assert {row["host"] for row in rows} <= {machine.name for machine in cluster.workers}
    copying.assert_exact()

    rounds = start(
        "run", copying.file, *cluster.options(), "--runner", "spark", "--log-format", "json", "--log-level", "debug"
    )
    with copying.writing(step=10):
        wait_rounds(rounds, 2)
    copying.load.finish()
    wait_key(copying.target, copying.copy, copying.partitions, copying.load.last)
    rounds.signal(signal.SIGTERM)
    assert rounds.wait_exit() == 0, rounds.said()
    copying.assert_exact()

    for directory in (events, team):
        directory.mkdir()
    (team / defaults.NAME).write_text(f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(team))
    agreed = start("reconcile", copying.file, *cluster.options(), "--json").succeeded()
    assert agreed["agrees"]
    assert sum(row["source_records"] for row in agreed["partitions"]) == copying.load.committed
    assert list(events.iterdir()), "the team's event log is empty"


def test_damage_is_found_reported_and_repaired(
    plant: Plant, start: Start, cluster: SparkCluster, tmp_path: Path
) -> None:
    """Records are missing in the middle of one partition and at the end of another; the report is the driver's."""
    records = [Content(b"record %08d" % number, b"v" * (number % 50), EPOCH_MS + number) for number in range(RECORDS)]
    copies = [[*records[:100], *records[150:]], records[:-100]]
    planted = plant([records, records], copies)
    planted.commit([RECORDS] * 2, [len(copy) for copy in copies])
    out = tmp_path / "report"
    job = start("reconcile", planted.file, *cluster.options(), "--repair", "apply", "--out", str(out))
    assert job.wait_exit() == 1, job.said()
    assert sorted(path.name for path in out.iterdir()) == ["findings.parquet", "report.html", "report.json"]
    found = {
        (row["verdict"], row["partition"], row["source_offset"])
        for row in parquet.read_table(out / "findings.parquet").to_pylist()
    }
    missing = [("missing", 0, offset) for offset in range(100, 150)]
    missing += [("missing", 1, offset) for offset in range(RECORDS - 100, RECORDS)]
    assert found == set(missing)
    repaired = json.loads((out / "report.json").read_text())["repair"]
    assert [row["copied"] for row in repaired["partitions"]] == [50, 100]
    verdicts = compare(planted.source, planted.topic, planted.target, planted.copy, 2)
    assert verdicts[0] == CopyVerdict(RECORDS, RECORDS, lost=0, doubled=0, reordered=50, altered=0)
    assert verdicts[1].exact


def test_what_executors_lack_is_named_before_anything_is_read_or_changed(
    make_copying: MakeCopying, start: Start, cluster: SparkCluster
) -> None:
    """Another version is there; a package isn't, on one worker of two."""
    copying = make_copying(partitions=1)
    copying.load.mixed(10)
    before = clients.topics(copying.target)
    older = start("backfill", copying.file, *cluster.options(OLD))
    assert older.wait_exit() == 2, older.said()
    assert f"here and {OLD_VERSION} on Python {VERSION} on executor worker" in older.said()
    assert "spark.pyspark.python" in older.said()
    assert clients.topics(copying.target) == before

    assert start("backfill", copying.file, *cluster.options(LEAN), "--json").succeeded()["done"]
    # Executors that register later aren't looked at: so Spark is told to wait for both.
    both = conf_options({"spark.cores.max": "4", "spark.scheduler.minRegisteredResourcesRatio": "1"})
    lacking = start("reconcile", copying.file, *cluster.options(UNEQUAL), *both)
    assert lacking.wait_exit() == 2, lacking.said()
    assert "No module named 'numpy' (on 127.0.0.2 executor" in lacking.said()
    assert "install the same eos-replicate[spark]" in lacking.said()
    assert "reading both sides" not in lacking.said()


def test_secrets_go_with_the_tasks_and_files_do_not(
    secured: Secured,
    target: BrokerHandle,
    start: Start,
    cluster: SparkCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A password from the driver's environment, a certificate in a file that only the driver has."""
    monkeypatch.setenv("EOS_TEST_PASSWORD", USERS["admin"])
    login = {name: str(value) for name, value in secured.config("admin", "SCRAM-SHA-256", tls=True).items()}
    if secured.kind == "kafka":
        login["sasl.mechanism"] = "PLAIN"  # the users of its SCRAM would have to be made first
    login |= {"sasl.password": "${EOS_TEST_PASSWORD}"}
    copying = Copying(secured, target, tmp_path, source_via=login, partitions=1)
    try:
        copying.load.mixed(200)
        refused = start("backfill", copying.file, *cluster.options())
        assert refused.wait_exit() == 2, refused.said()
        assert f"has no {login['ssl.ca.location']}" in refused.said()
        del login["ssl.ca.location"]
        login["ssl.ca.pem"] = f"file:{secured.authority.certificate}"
        copying.file.log_in(source=login)
        assert start("backfill", copying.file, *cluster.options(), "--json").succeeded()["done"]
        copying.assert_exact()
        assert start("reconcile", copying.file, *cluster.options(), "--json").succeeded()["agrees"]
    finally:
        copying.close()


def test_a_cluster_without_room_is_told_and_a_signal_ends_the_wait(
    make_copying: MakeCopying, start: Start, cluster: SparkCluster
) -> None:
    copying = make_copying(partitions=1)
    copying.load.mixed(10)
    too_much = conf_options({"spark.executor.memory": "4g"})
    waiting = start("backfill", copying.file, *cluster.options(), *too_much)
    wait_until(lambda: "no executor for 15 s" in waiting.said(), "it says what it waits for", waiting.said)
    assert "has 2 cores and 4g of memory free" in waiting.said()
    assert "spark.driver.host" in waiting.said()
    waiting.signal_all(signal.SIGTERM)
    assert waiting.wait_exit() == 130, waiting.said()
    assert "Traceback" not in waiting.said()

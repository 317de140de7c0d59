"""Reconciliation end to end: damage of every kind is planted by hand and found as what it is, and nothing else is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cli import main
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.spark.planted import EPOCH_MS, Content, Planted, mixed, produce
from replicator import config
from replicator.config import Flow
from replicator.errors import ConfigError, Incident
from replicator.spark import failures, java, report, snapshot
from replicator.spark.outcome import Mode, Outcome
from replicator.spark.reconcile import reconcile
from replicator.spark.session import SparkSettings, session
from replicator.spark.snapshot import Window

RECORDS = 20_000
PATIENCE_MS = 20_000
Plant = Callable[..., Planted]
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Spark with its Kafka connector. Without Java these tests are skipped; EOS_REQUIRE_JAVA=1 makes that fail."""
    try:
        java.check(os.environ)
    except ConfigError as error:
        if os.environ.get("EOS_REQUIRE_JAVA") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # short runs: compiling well takes longer than it saves
    }
    with session(SparkSettings("local[2,4]", conf)) as running:
        yield running


@pytest.fixture
def plant(source: BrokerHandle, target: BrokerHandle, tmp_path: Path) -> Plant:
    """Makes a flow's topic on both sides: records, and what stands where its copy should."""
    return lambda records, copies, **how: Planted(source, target, tmp_path, records, copies, **how)


def run(spark: SparkSession, flow: Flow, mode: Mode = "full", window: Window = Window()) -> tuple[Outcome, set[tuple]]:  # type: ignore[type-arg]  # noqa: B008
    """Reconciles; findings as (verdict, partition, source offset, target offset, fields)."""
    taken = snapshot.take(flow, (), window, connect_timeout_ms=PATIENCE_MS)
    outcome, found = reconcile(spark, flow, taken, mode, print)
    columns = ("verdict", "partition", "source_offset", "target_offset", "fields")
    return outcome, {tuple(row[name] for name in columns) for row in found.collect()}


def damaged(records: list[Content]) -> list[Content]:
    """One difference of every kind, from the end to the beginning so that places stay true."""
    copy = list(records)
    copy[18_000] = copy[18_000]._replace(timestamp_ms=copy[18_000].timestamp_ms + 1)
    copy[16_000] = copy[16_000]._replace(headers=(("h", b"2"),))
    copy[14_000] = copy[14_000]._replace(value=b"changed")
    copy[12_000] = copy[12_000]._replace(key=None)
    copy[10_000], copy[10_001] = copy[10_001], copy[10_000]
    copy.insert(8_000, Content(b"foreign", b"foreign", EPOCH_MS + 5))
    copy.insert(6_000, copy[5_999])
    del copy[4_000]
    return copy


def test_damage_of_every_kind_is_found_and_nothing_else(spark: SparkSession, plant: Plant) -> None:
    records = [mixed(RECORDS), mixed(RECORDS, "other")]
    planted = plant(records, [damaged(records[0]), records[1]])
    outcome, found = run(spark, planted.flow)
    reordered = {item for item in found if item[0] == "reordered"}
    doubled = {item for item in found if item[0] == "doubled"}
    assert found - reordered - doubled == {
        ("missing", 0, 4_000, None, ""),
        ("extra", 0, None, 8_000, ""),
        ("altered", 0, 12_000, 12_001, "key"),
        ("altered", 0, 14_000, 14_001, "value"),
        ("altered", 0, 16_000, 16_001, "headers"),
        ("altered", 0, 18_000, 18_001, "timestamp"),
    }
    assert doubled in ({("doubled", 0, None, 5_999, "")}, {("doubled", 0, None, 5_998, "")})
    assert reordered in ({("reordered", 0, 10_000, 10_002, "")}, {("reordered", 0, 10_001, 10_001, "")})
    first, second = outcome.partitions
    assert (first.agrees, second.agrees, outcome.agrees) == (False, True, False)
    assert first.same == RECORDS - 6
    assert (first.source_records, first.target_records, first.position_records) == (RECORDS, RECORDS + 1, RECORDS)
    assert (first.source_counts_agree, first.target_counts_agree) == (True, False)
    assert (second.same, second.differences, second.chunks_differing) == (RECORDS, 0, 0)
    assert sum(map(sum, first.places.values())) == 8


def test_the_other_passes_agree_with_it(spark: SparkSession, plant: Plant) -> None:
    records = mixed(RECORDS)
    planted = plant([records], [damaged(records)])
    deep, found = run(spark, planted.flow, "deep")
    assert {item[0] for item in found} == {"missing", "extra", "altered", "reordered", "doubled"}
    assert deep.partitions[0].same == RECORDS - 6
    quick, found = run(spark, planted.flow, "quick")
    assert not quick.agrees
    assert not found
    assert quick.totals()["same"] + quick.totals()["differs"] >= RECORDS
    assert quick.partitions[0].chunks_differing == deep.partitions[0].chunks_differing > 0


def test_a_real_flow_agrees_and_so_it_does_while_it_runs(
    spark: SparkSession, source: BrokerHandle, target: BrokerHandle, tmp_path: Path
) -> None:
    copying = Copying(source, target, tmp_path)
    try:
        copying.load.mixed(2000)
        worker = copying.running()
        flow = config.load(copying.file.path).flows[copying.file.flow]
        with copying.writing():
            before = 0
            for _ in range(3):
                outcome, found = run(spark, flow)
                assert outcome.agrees, outcome
                assert not found
                assert outcome.totals()["same"] >= before
                before = outcome.totals()["same"]
        copying.finish(worker)
        outcome, found = run(spark, flow)
        assert outcome.agrees, outcome
        assert not found
        assert outcome.totals() == {"same": copying.load.committed}
        assert outcome.totals()["same"] > before > 0
        assert not any(partition.notes for partition in outcome.partitions)
        # Somebody else writes one of the records once more, behind the flow's last.
        last = clients.read(copying.target, copying.copy, 1)[-1]
        put = clients.put(
            clients.producer(copying.target),
            copying.copy,
            last.value(),
            partition=1,
            key=last.key(),
            timestamp=last.timestamp()[1],
            headers=last.headers(),
        )
        outcome, found = run(spark, flow)
        assert found == {("doubled", 1, None, put[0].offset(), "")}
        assert "were not written by this flow" in outcome.partitions[1].notes[0]
    finally:
        copying.close()


def test_what_retention_removed_is_no_loss(spark: SparkSession, plant: Plant) -> None:
    records = [mixed(RECORDS), mixed(RECORDS, "other")]
    lossy = [*records[1][:15_000], *records[1][15_001:]]
    planted = plant(records, [records[0], lossy])
    clients.delete_records(planted.target, planted.copy, 0, 10_123)
    clients.delete_records(planted.source, planted.topic, 1, 777)
    outcome, found = run(spark, planted.flow)
    first, second = outcome.partitions
    assert dict(first.verdicts) == {"same": RECORDS - 10_123, "expired_on_target": 10_123}
    assert dict(second.verdicts) == {"same": RECORDS - 777 - 1, "missing": 1, "expired_on_source": 777}
    assert (first.agrees, second.agrees) == (True, False)
    assert {item for item in found if item[0] == "missing"} == {("missing", 1, 15_000, None, "")}


def test_what_compaction_removed_is_no_loss(spark: SparkSession, plant: Plant) -> None:
    records = [record._replace(key=record.key or b"none") for record in mixed(2_000)]
    latest = {record.key: number for number, record in enumerate(records)}
    old = [number for number in range(100, 1_000) if number % 3 == 0]
    lost = max(latest.values())
    gone = {*old, lost}
    planted = plant(
        [records], [[record for number, record in enumerate(records) if number not in gone]], target_policy="compact"
    )
    outcome, found = run(spark, planted.flow)
    assert dict(outcome.partitions[0].verdicts) == {
        "same": 2_000 - len(gone),
        "compacted_on_target": len(old),
        "missing": 1,
    }
    assert ("missing", 0, lost, None, "") in found


def test_a_record_that_moved_far_and_a_large_gap(spark: SparkSession, plant: Plant) -> None:
    records = mixed(60_000)
    copy = [*records[:20_000], *records[45_000:]]
    copy.insert(200, copy.pop(30_000))
    planted = plant([records], [copy])
    outcome, found = run(spark, planted.flow)
    assert dict(outcome.partitions[0].verdicts) == {"same": 34_999, "missing": 25_000, "reordered": 1}
    assert ("reordered", 0, 55_000, 200, "") in found


def test_only_a_window_of_time(spark: SparkSession, plant: Plant) -> None:
    records = mixed(RECORDS)
    planted = plant([records], [[*records[:100], *records[101:9_000], *records[9_001:]]])
    outcome, found = run(spark, planted.flow, window=Window(EPOCH_MS + 5_000, EPOCH_MS + 15_000))
    assert found == {("missing", 0, 9_000, None, "")}
    assert outcome.partitions[0].source_offsets == (5_000, 15_000)
    assert outcome.partitions[0].same == 9_999


def test_a_target_that_is_empty_or_was_never_begun(spark: SparkSession, plant: Plant) -> None:
    planted = plant([mixed(300), [], mixed(5)], [[], [], mixed(5)])
    outcome, found = run(spark, planted.flow)
    assert len(found) == 300
    assert outcome.totals() == {"missing": 300, "same": 5}
    clients.grow_topic(planted.source, planted.topic, 4)
    produce(planted.source, planted.topic, [[], [], [], mixed(7)])
    outcome, _ = run(spark, planted.flow)
    assert [str(at) for at in outcome.waiting] == [f"{planted.topic}[3]"]


def test_what_goes_while_it_is_read_is_named(spark: SparkSession, plant: Plant) -> None:
    planted = plant([mixed(500)], [mixed(500)])
    flow = planted.flow
    taken = snapshot.take(flow, (), Window(), connect_timeout_ms=PATIENCE_MS)
    clients.delete_records(planted.source, planted.topic, 0, 100)
    with pytest.raises(Incident, match=r"range_gone.*removed offsets 0 to 99"), _explained(flow, taken):
        reconcile(spark, flow, taken, "full", print)
    planted = plant([mixed(500)], [mixed(500)])
    flow = planted.flow
    taken = snapshot.take(flow, (), Window(), connect_timeout_ms=PATIENCE_MS)
    clients.delete_topic(planted.target, planted.copy)
    with pytest.raises(Incident, match=f"topic_gone.*has no topic {planted.copy}"), _explained(flow, taken):
        reconcile(spark, flow, taken, "full", print)


def _explained(flow: Flow, taken: snapshot.Snapshot):  # type: ignore[no-untyped-def]
    return failures.explained(flow, taken, connect_timeout_ms=PATIENCE_MS)


def test_a_flow_that_never_ran_has_nothing_to_compare(
    source: BrokerHandle, target: BrokerHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copying = Copying(source, target, tmp_path)
    assert main.invoke(["reconcile", "-c", str(copying.file.path)]) == 4
    assert "nothing_to_reconcile" in capsys.readouterr().err
    assert main.invoke(["reconcile", "-c", str(copying.file.path), "--topics", "other"]) == 2
    assert "does not copy topic other" in capsys.readouterr().err


def test_the_report_is_whole(spark: SparkSession, plant: Plant, tmp_path: Path) -> None:
    records = mixed(2_000)
    planted = plant([records], [[*records[:500], *records[501:]]])
    flow, out = planted.flow, tmp_path / "out"
    taken = snapshot.take(flow, (), Window(), connect_timeout_ms=PATIENCE_MS)
    outcome, found = reconcile(spark, flow, taken, "full", print)
    report.write(outcome, found, out)
    assert sorted(path.name for path in out.iterdir()) == ["findings.parquet", "report.html", "report.json"]
    rows = spark.read.parquet(f"file://{out / 'findings.parquet'}").collect()
    assert [(row["verdict"], row["source_offset"]) for row in rows] == [("missing", 500)]
    machine = json.loads((out / "report.json").read_text())
    assert (machine["agrees"], machine["totals"]) == (False, {"same": 1_999, "missing": 1})
    page = (out / "report.html").read_text()
    assert "The sides differ" in page
    assert "<script" not in page
    assert "http" not in page
    with pytest.raises(ConfigError, match="exists already"):
        report.write(outcome, found, out)
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []

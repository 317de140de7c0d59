"""Reconciliation end to end: damage of every kind is planted by hand and found as what it is, and nothing else is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from cli import main
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.spark.conftest import Command, Plant
from integration_tests.spark.planted import EPOCH_MS, Content, mixed, produce
from integration_tests.spark.reconciling import COLUMNS, run
from replicator import config
from replicator.proof.snapshot import Window
from replicator.spark.reconcile.passes import Passes, ToOpen
from replicator.spark.reconcile.reconcile import reconcile

RECORDS = 20_000
pytestmark = pytest.mark.timeout(600)


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


def few(count: int) -> list[Content]:
    """Records of which there are only three."""
    return [Content(b"k", str(number % 3 * (number % 7) % 3).encode(), EPOCH_MS) for number in range(count)]


class Case(NamedTuple):
    """A partition's records, what the target has of them, and the verdicts on those that are not the same."""

    records: list[Content]
    copy: list[Content]
    verdicts: dict[str, int]


def cases() -> list[Case]:
    """Differences that are easily called something else, and none; a partition each."""
    many, other = mixed(RECORDS), mixed(RECORDS, "other")
    equal = [*many[:300], *[many[0]] * 1_000, *many[300:]]
    block = [*many[:2_000], *many[5_000:15_000], *many[2_000:5_000], *many[15_000:]]
    huge = [record._replace(value=bytes([number]) * 900_000) for number, record in enumerate(many[:6])]
    gone = [*many[:200], many[19_000], *many[200:5_000], *many[14_000:19_000], *many[19_001:]]
    unlike = [one.key is not None for one, two in zip(many[:5_000], other[:5_000], strict=True) if one != two]
    related, apart = sum(unlike), len(unlike) - sum(unlike)  # by their key; a time alone makes no record another's
    return [
        Case(many, damaged(many), {"missing": 1, "extra": 1, "altered": 4, "doubled": 1, "reordered": 1}),
        Case(other, other, {}),
        Case(equal, [*equal[:700], *equal[701:]], {"missing": 1}),
        Case(many, many[1:-1], {"missing": 2}),
        Case(many, block, {"reordered": 3_000}),
        Case(many, [*many[:8_192], *many[4_096:]], {"doubled": 4_096}),
        Case(many, gone, {"missing": 9_000, "reordered": 1}),
        Case(few(RECORDS), [*few(RECORDS)[:7], *few(RECORDS)[8:]], {"missing": 1}),
        Case(many[:5_000], other[:5_000], {"altered": related, "missing": apart, "extra": apart}),
        Case(huge, [*huge[:3], huge[3]._replace(value=huge[2].value), *huge[4:]], {"altered": 1}),
        Case(many[:300], [], {"missing": 300}),
        Case([], many[:5], {"extra": 5}),
        Case([], [], {}),
    ]


@pytest.mark.tier("default", kafka="long")
def test_damage_of_every_kind_is_found_and_nothing_else(
    spark: SparkSession, plant: Plant, command: Command, tmp_path: Path
) -> None:
    wanted = cases()
    planted = plant([case.records for case in wanted], [case.copy for case in wanted])
    clients.grow_topic(planted.source, planted.topic, len(wanted) + 1)
    out = tmp_path / "out"
    code, said = command(planted, "--out", str(out))
    assert code == 1, said
    assert "The sides differ: " in said
    assert sorted(path.name for path in out.iterdir()) == ["findings.parquet", "report.html", "report.json"]
    machine = json.loads((out / "report.json").read_text())
    for case, row in zip(wanted, machine["partitions"], strict=True):
        lacking = len(case.records) - sum(case.verdicts.get(name, 0) for name in ("missing", "altered", "reordered"))
        assert row["verdicts"] == {"same": lacking, **case.verdicts}, row["source"]
        assert row["agrees"] == (not case.verdicts)
        assert row["source_records"] == row["position_records"] == len(case.records)
        assert row["target_records"] == len(case.copy)
        assert (row["source_counts_agree"], row["target_counts_agree"]) == (True, len(case.records) == len(case.copy))
        assert sum(sum(bucket.values()) for bucket in row["places"].values()) == sum(case.verdicts.values())
        guessed = [["several", "records"]] if "altered" in case.verdicts and case.verdicts.get("missing", 0) > 1 else []
        assert [note.split()[:2] for note in row["notes"]] == [["no", "claim"], *guessed]
    assert machine["partitions"][1]["chunks_differing"] == 0
    assert machine["waiting"] == [{"topic": planted.topic, "partition": len(wanted), "source_offsets": [0, 0]}]
    found = {
        tuple(row[name] for name in COLUMNS) for row in spark.read.parquet(f"file://{out}/findings.parquet").collect()
    }
    assert {("missing", 2, None)} == {(*item[:2], item[3]) for item in found if item[1] == 2}
    assert {item for item in found if item[1] == 3} == {("missing", 3, 0, None, ""), ("missing", 3, 19_999, None, "")}
    assert ("reordered", 6, 19_000, 200, "") in found
    assert ("altered", 9, 3, 3, "value") in found
    page = (out / "report.html").read_text()
    missing = sum(case.verdicts.get("missing", 0) for case in wanted)
    assert f"The sides differ: {missing:,} missing, " in page
    assert "<script" not in page
    assert "http" not in page
    first = {item for item in found if item[1] == 0}
    assert {item for item in first if item[0] not in ("reordered", "doubled")} == {
        ("missing", 0, 4_000, None, ""),
        ("extra", 0, None, 8_000, ""),
        ("altered", 0, 12_000, 12_001, "key"),
        ("altered", 0, 14_000, 14_001, "value"),
        ("altered", 0, 16_000, 16_001, "headers"),
        ("altered", 0, 18_000, 18_001, "timestamp"),
    }
    assert first & {("doubled", 0, None, 5_999, ""), ("doubled", 0, None, 5_998, "")}
    assert first & {("reordered", 0, 10_000, 10_002, ""), ("reordered", 0, 10_001, 10_001, "")}


@pytest.mark.tier("long")
def test_what_is_missing_is_planned_and_copied_again(plant: Plant, command: Command, tmp_path: Path) -> None:
    records = mixed(2_000)
    planted = plant([records, records], [[*records[:100], *records[150:1_000], *records[1_001:]], records[:1_900]])
    planted.commit([2_000] * 2, [1_949, 1_900])
    code, said = command(planted, "--repair", "plan", "--json")
    assert code == 1, said
    plan = json.loads(said[said.index("{\n") : said.rindex("}") + 1])["repair"]
    assert [row["spans"] for row in plan["partitions"]] == [
        [{"first": 100, "end": 150, "records": 50}, {"first": 1_000, "end": 1_001, "records": 1}],
        [{"first": 1_900, "end": 2_000, "records": 100}],
    ]
    assert [(row["to_copy"], row["standing"]) for row in plan["partitions"]] == [(51, 0), (100, 0)]
    assert len(clients.read(planted.target, planted.copy, 1)) == 1_900, "a plan changes nothing"
    out = tmp_path / "out"
    code, said = command(planted, "--repair", "apply", "--out", str(out))
    assert code == 1, said
    assert "51 copied again" in said
    assert [row["copied"] for row in json.loads((out / "report.json").read_text())["repair"]["partitions"]] == [51, 100]
    assert "<h2>Repair</h2>" in (out / "report.html").read_text()
    code, said = command(planted, "--repair", "apply", "--json")
    after = json.loads(said[said.index("{\n") : said.rindex("}") + 1])
    assert [row["verdicts"] for row in after["partitions"]] == [{"same": 1_949, "reordered": 51}, {"same": 2_000}]
    assert all(row["source_counts_agree"] and row["target_counts_agree"] for row in after["partitions"])
    assert after["repair"]["applied"] is False


@pytest.mark.tier("long")
def test_what_was_copied_again_is_known_when_retention_has_taken_its_place(plant: Plant, command: Command) -> None:
    records = mixed(2_000)
    planted = plant([records], [[*records[:100], *records[110:]]])
    planted.commit([2_000], [1_990])
    assert command(planted, "--repair", "apply")[0] == 1
    clients.delete_records(planted.target, planted.copy, 0, 1_490)

    def found() -> dict[str, int]:
        code, said = command(planted, "--repair", "plan", "--json")
        assert code in (0, 1), said
        result = json.loads(said[said.index("{\n") : said.rindex("}") + 1])
        assert not any(row["missing"] for row in result["repair"]["partitions"]), "nothing is copied once more"
        return dict(result["partitions"][0]["verdicts"])

    assert found() == {"same": 500, "reordered": 10, "expired_on_target": 1_490}
    clients.delete_records(planted.source, planted.topic, 0, 1_000)
    assert found() == {"same": 500, "expired_on_source": 10, "expired_on_target": 500}


@pytest.mark.tier("long")
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


def test_a_topic_that_was_created_again_hides_no_other(
    spark: SparkSession, command: Command, source: BrokerHandle, target: BrokerHandle, tmp_path: Path
) -> None:
    """What was copied before is still compared, but for the topic whose records are gone with it."""
    copying = Copying(source, target, tmp_path)
    try:
        copying.file.write(topics=[f"^{copying.name}\\..*"])
        other = f"{copying.name}.other"
        clients.create_topic(copying.source, other)
        clients.put(clients.producer(copying.source), other, b"a", b"b")
        copying.load.mixed(500)
        worker = copying.running()
        clients.wait_value(copying.target, f"{other}.copy", 0, b"b")
        copying.wait_copied()
        clients.recreate_topic(copying.source, other)
        worker.wait_incident("source_topic_recreated")
        worker.stop()
        flow = config.load(copying.file.path).flows[copying.file.flow]
        outcome, found = run(spark, flow)
        assert (outcome.agrees, outcome.differs, outcome.unproven) == (False, False, True), outcome
        assert not found
        assert outcome.totals() == {"same": copying.load.committed}
        assert [(it.name, it.topic, it.partition) for it in outcome.not_compared] == [
            ("source_topic_recreated", other, 0)
        ]
        code, said = command(copying)
        assert code == 4, said
        assert f"{other}[0]" in said
        assert f"not compared: {other}[0], source_topic_recreated: " in said
        assert "both sides agree" not in said
        assert command(copying, "--accept", "unproven")[0] == 0
    finally:
        copying.close()


@pytest.mark.tier("long", kafka="full")
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
            for _ in range(2):
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
    finally:
        copying.close()


def test_what_retention_removed_is_no_loss(spark: SparkSession, plant: Plant) -> None:
    records = [mixed(RECORDS), mixed(RECORDS, "other"), [mixed(2)[1]] * 5_000]
    lossy = [*records[1][:15_000], *records[1][15_001:]]
    planted = plant(records, [records[0], lossy, records[2]])
    clients.delete_records(planted.target, planted.copy, 0, 10_123)
    clients.delete_records(planted.source, planted.topic, 1, 777)
    clients.delete_records(planted.target, planted.copy, 2, 4_500)
    outcome, found = run(spark, planted.flow)
    first, second, third = outcome.partitions
    assert dict(first.verdicts) == {"same": RECORDS - 10_123, "expired_on_target": 10_123}
    assert dict(second.verdicts) == {"same": RECORDS - 777 - 1, "missing": 1, "expired_on_source": 777}
    assert dict(third.verdicts) == {"same": 500, "expired_on_target": 4_500}
    assert (first.agrees, second.agrees, third.agrees) == (True, False, True)
    assert {item for item in found if item[0] == "missing"} == {("missing", 1, 15_000, None, "")}
    outcome, _ = run(spark, planted.flow, "quick")
    assert [partition.verdicts.keys() for partition in outcome.partitions] == [
        {"same", "expired_on_target"},
        {"same", "expired_on_source", "differs"},
        {"same", "expired_on_target"},
    ]
    assert dict(outcome.partitions[0].verdicts) == dict(first.verdicts)


@pytest.mark.tier("long")
def test_only_a_window_of_time(spark: SparkSession, plant: Plant) -> None:
    """Just before it, the source has an aborted record with a later time than those that follow."""
    records = mixed(RECORDS)
    copy = [*records[:100], *records[101:9_000], *records[9_001:]]
    planted = plant([records[:4_900]], [copy[:4_899]])
    writer = clients.transactional(planted.source, f"{planted.topic}-aborted")
    writer.begin_transaction()
    clients.put(writer, planted.topic, b"aborted", timestamp=EPOCH_MS + 5_500)
    writer.abort_transaction()
    produce(planted.source, planted.topic, [records[4_900:]])
    produce(planted.target, planted.copy, [copy[4_899:]])
    planted.commit([RECORDS + 2], [len(copy)])
    outcome, found = run(spark, planted.flow, window=Window(EPOCH_MS + 5_000, EPOCH_MS + 15_000))
    assert found == {("missing", 0, 9_002, None, "")}
    assert outcome.partitions[0].source_offsets == (5_002, 15_002)
    assert outcome.partitions[0].same == 9_999


def test_what_goes_while_it_is_read_is_bounded_or_named(
    plant: Plant, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steady retention takes records from the beginning of either log all the time."""
    planted = plant([mixed(500), mixed(500)], [mixed(500), mixed(500)])

    def first(act: Callable[[], object]) -> None:
        def acting(*arguments: Any, **how: Any) -> Any:
            act()
            return reconcile(*arguments, **how)

        monkeypatch.setattr("replicator.spark.reconcile.reconcile.reconcile", acting)

    def clean() -> None:
        clients.delete_records(planted.source, planted.topic, 0, 100)
        clients.delete_records(planted.target, planted.copy, 1, 30)

    first(clean)
    code, said = command(planted, "--json")
    assert code == 0, said
    found = [row["verdicts"] for row in json.loads(said[said.index("{\n") : said.rindex("}") + 1])["partitions"]]
    assert found == [{"same": 400, "expired_on_source": 100}, {"same": 470, "expired_on_target": 30}]

    first(lambda: clients.delete_topic(planted.target, planted.copy))
    before = set(tmp_path.iterdir())
    code, said = command(planted, "--out", str(tmp_path / "never"))
    assert code == 4, said
    assert re.search(f"topic_gone.*has no topic {planted.copy}", said)
    assert set(tmp_path.iterdir()) == before
    code, said = command(planted)
    assert (code, "nothing_to_reconcile" in said) == (4, True), said


@pytest.mark.parametrize("side", ["source", "target"])
def test_what_goes_between_two_reads_is_not_called_a_difference(
    spark: SparkSession, plant: Plant, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """A range is opened because of one record; when it is read again, one side has nothing of it any more."""
    records = mixed(2_000)
    planted = plant([records], [[*records[:50], *records[51:]]])
    bootstrap, topic = (planted.source, planted.topic) if side == "source" else (planted.target, planted.copy)
    opened = Passes.opened

    def open_after(passes: Passes, wanted: Sequence[ToOpen]) -> DataFrame:
        clients.delete_records(bootstrap, topic, 0, 1_000)
        return opened(passes, wanted)

    monkeypatch.setattr(Passes, "opened", open_after)
    outcome, found = run(spark, planted.flow)
    assert {item[0] for item in found} == {"unproven"}
    assert "the log changed while it was read" in outcome.partitions[0].notes[-1]
    assert not outcome.agrees


def test_a_flow_that_never_ran_has_nothing_to_compare(
    source: BrokerHandle, target: BrokerHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copying = Copying(source, target, tmp_path)
    assert main.invoke(["reconcile", "-c", str(copying.file.path)]) == 4
    assert "nothing_to_reconcile" in capsys.readouterr().err
    assert main.invoke(["reconcile", "-c", str(copying.file.path), "--topics", "other"]) == 2
    assert "does not copy topic other" in capsys.readouterr().err

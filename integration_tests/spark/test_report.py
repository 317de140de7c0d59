"""The report of real runs: every kind of finding in it, shown as what it is, and a clean one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness import clients
from integration_tests.spark.conftest import Command, Plant
from integration_tests.spark.planted import EPOCH_MS, Content, Planted, mixed, produce
from integration_tests.spark.test_compaction import COMPACTED, keyed, later, wait_cleaned

RECORDS = 5_000
SCRIPT = b'<script>alert("key")</script>\x1b[31m\x00'
LONG = b"long-key-" * 500
pytestmark = pytest.mark.timeout(600)


def orders() -> list[Content]:
    """Records such as people have, and some with keys that a page or a terminal must not obey."""
    records = mixed(RECORDS)
    for number in range(100, RECORDS, 100):
        order = {"id": number, "customer": f"Zoë {number % 7}", "lines": [{"sku": n, "n": n % 3} for n in range(60)]}
        value = json.dumps({**order, "total": number * 3, "currency": "EUR"}, ensure_ascii=False).encode()
        records[number] = Content(b"order-%d" % number, value, EPOCH_MS + number, (("trace", b"%d" % number),))
    records[1_000] = records[1_000]._replace(key=SCRIPT)
    records[1_100] = records[1_100]._replace(key=LONG)
    return records


def careless(records: list[Content]) -> list[Content]:
    """A copy with damage of every kind, made from its end to its beginning so that places stay true."""
    copy = list(records)
    altered = copy[4_800].value
    assert altered is not None
    copy[4_800] = copy[4_800]._replace(value=altered.replace(b'"total": 14400', b'"total": 14399'))
    copy[4_700] = copy[4_700]._replace(headers=(("trace", None), ("via", SCRIPT)), timestamp_ms=EPOCH_MS)
    copy[4_600] = copy[4_600]._replace(value=bytes(range(256)))
    copy[3_000], copy[3_001] = copy[3_001], copy[3_000]
    copy.insert(2_500, Content(b"foreign", b"somebody else's", EPOCH_MS + 5))
    copy[2_000:2_000] = copy[1_990:2_000]
    del copy[900:1_150]
    return copy


def machine(out: Path) -> dict[str, Any]:
    return json.loads((out / "report.json").read_text())  # type: ignore[no-any-return]


def damaged_flow(plant: Plant) -> Planted:
    """Differences of all kinds, a beginning that retention took, a partition that can't be compared, one to begin, one
    that is the same."""
    same = mixed(RECORDS, "same")
    planted = plant([orders(), same, same], [careless(orders()), same, same])
    clients.delete_records(planted.target, planted.copy, 1, 1_234)
    clients.grow_topic(planted.source, planted.topic, 5)
    clients.grow_topic(planted.target, planted.copy, 4)
    for bootstrap, topic in ((planted.source, planted.topic), (planted.target, planted.copy)):
        clients.put(clients.producer(bootstrap), topic, b"from before", partition=3)
    clients.put(clients.producer(planted.source), planted.topic, b"new", b"newer", partition=4)
    clients.put(clients.producer(planted.source), planted.topic, b"behind the position", partition=2)
    return planted


def test_every_kind_of_finding_is_shown_as_what_it_is(plant: Plant, command: Command, tmp_path: Path) -> None:
    out = tmp_path / "damaged"
    code, said = command(damaged_flow(plant), "--out", str(out))
    assert code == 1, said
    found = machine(out)
    assert found["totals"] == {
        "same": found["totals"]["same"],
        **{"missing": 250, "extra": 1, "doubled": 10, "altered": 3, "reordered": 1, "expired_on_target": 1_234},
    }
    assert found["headline"] == (
        "The sides differ: 250 missing, 3 altered, 1 extra, 10 doubled, 1 reordered. No evidence decides on "
        "1 partition that can't be compared. The flow has not begun to copy 1 partition. 1 source offset after the "
        "positions is not copied yet."
    )
    first, expired, same = found["partitions"]
    assert [row["verdict"] for row in found["partitions"]] == ["differs", "no_difference", "agrees"]
    missing = [item for item in first["ranges"] if item["verdict"] == "missing"]
    assert [(item["source_offsets"], item["records"]) for item in missing] == [([900, 1_149], 250)]
    assert [(row["position"], row["lag"]) for row in (first, expired, same)] == [(5_000, 0), (5_000, 0), (5_000, 1)]
    altered = {item["source_offsets"][0]: item for item in first["ranges"] if item["verdict"] == "altered"}
    value = altered[4_800]["fields_of_first"][1]
    assert [value[side]["differing"] for side in ("source", "target")] == ["400", "399"]
    assert value["source"]["before"].endswith('"total": 14')
    assert altered[4_700]["fields"] == ["headers", "timestamp"]
    assert altered[4_600]["fields_of_first"][1]["target"]["differing"].startswith("0x000102")
    assert [(row["name"], row["partition"]) for row in found["not_compared"]] == [("target_not_empty", 3)]
    assert [(row["partition"], row["source_offsets"]) for row in found["waiting"]] == [(4, [0, 2])]
    assert found["spark_version"]
    assert found["source"]["id"] != found["target"]["id"]
    page = (out / "report.html").read_text()
    assert found["headline"].split(".")[0] in page
    assert "<script" not in page
    assert "\x1b" not in page + said
    assert "\x00" not in page + said
    assert "repair: 250 records missing" in said
    assert f"{found['headline']}\n" in said


@pytest.mark.tier("long")
def test_values_are_left_out_on_request(plant: Plant, command: Command) -> None:
    planted = plant([orders()], [careless(orders())])
    code, said = command(planted, "--no-values", "--json")
    assert code == 1, said
    assert "14399" not in said
    assert '"altered": 3' in said


@pytest.mark.tier("long")
def test_compaction_and_what_it_leaves_open(plant: Plant, command: Command, tmp_path: Path) -> None:
    """In one partition compaction explains all, in the other a record is lost, and nothing tells which."""
    records = keyed(2_000)
    planted = plant([records, records], [records, [*records[:1_500], *records[1_501:]]], target_configs=COMPACTED)
    for bootstrap, topic in ((planted.source, planted.topic), (planted.target, planted.copy)):
        produce(bootstrap, topic, [later(records, b"end")] * 2)
    planted.commit([2_001, 2_001], [2_001, 2_000])
    for number in (0, 1):
        wait_cleaned(planted.target, planted.copy, number)
    out = tmp_path / "compacted"
    code, said = command(planted, "--out", str(out))
    assert code == 4, said
    found = machine(out)
    assert [row["verdict"] for row in found["partitions"]] == ["no_difference", "unproven"]
    assert found["headline"].startswith("Not proven: ")
    ((reason, records_open),) = found["partitions"][1]["unproven_reasons"].items()
    assert reason.startswith("compaction emptied ")
    assert records_open == found["totals"]["unproven"] > 0
    assert reason in (out / "report.html").read_text()
    assert "agree" not in found["headline"]


@pytest.mark.tier("long")
def test_a_clean_run_says_that_both_sides_agree(plant: Plant, command: Command, tmp_path: Path) -> None:
    began_ms = time.time() * 1_000
    out = tmp_path / "clean"
    code, said = command(plant([orders(), mixed(50)], [orders(), mixed(50)]), "--out", str(out))
    assert code == 0, said
    found = machine(out)
    assert (found["verdict"], found["headline"]) == ("agrees", "Both sides agree: 5,050 records.")
    assert (found["records_read"], found["records_opened"], found["next_steps"]) == (10_100, 0, [])
    assert began_ms - 1 <= found["snapshot_ms"] <= found["finished_ms"]
    assert "Both sides agree: 5,050 records." in (out / "report.html").read_text()

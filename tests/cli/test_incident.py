"""`incident list` and `incident show`: exit codes, what is printed, and that it fits 80 columns."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli import main
from replicator.inspect import status as statuses
from replicator.inspect.flow_status import FlowStatus, PartitionStatus
from replicator.model.errors import ReplicatorError, Unreachable
from replicator.model.incident_kinds import KINDS, advice_for

FILE = """\
clusters: {east: {properties: {bootstrap.servers: "e:1"}}, west: {properties: {bootstrap.servers: "w:1"}}}
flows:
  orders: {source: east, target: west, topics: [t]}
  audit: {source: east, target: west, topics: [u], rename: "a.{topic}"}
"""
LONGEST = max(KINDS, key=len)


def stopped(partition: int, name: str = "source_records_gone", topic: str = "t") -> PartitionStatus:
    return PartitionStatus(
        source_topic=topic,
        partition=partition,
        target_topic=f"west.{topic}",
        position=9_999_999_999,
        source_end=9_999_999_999,
        lag_records=99,
        last_commit_ms=1_800_000_000_000,
        state="stopped",
        incident=name,
        detail="offsets 40 to 59 were removed from the source before they were copied, which is of some length",
    )


def flow(name: str, *rows: PartitionStatus, incident: str = "") -> FlowStatus:
    return FlowStatus(name, "east", "west", "exactly_once", rows, incident)


class Cluster:
    """What `status` finds of each flow."""

    def __init__(self) -> None:
        self.found: dict[str, FlowStatus | ReplicatorError] = {"orders": flow("orders"), "audit": flow("audit")}

    def status(self, asked: Any, *_: object, **__: object) -> FlowStatus:
        found = self.found[asked.name]
        if isinstance(found, ReplicatorError):
            raise found
        return found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(statuses, "status", made.status)
    return made


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "flows.yaml").write_text(FILE)
    return str(tmp_path / "flows.yaml")


def listed(path: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    main.invoke(["incident", "list", "-c", path, "--json"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["incidents"]
    return found


def test_without_any_the_list_says_so(cluster: Cluster, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["incident", "list", "-c", path]) == 0
    assert capsys.readouterr().out == "orders: none\naudit: none\n"


def test_the_list_has_each_with_its_id_and_the_exit_code_says_so(
    cluster: Cluster, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.found["orders"] = flow("orders", stopped(3), stopped(-1, "unknown_source_topic"), incident=LONGEST)
    ids = [it["id"] for it in listed(path, capsys)]
    assert main.invoke(["incident", "list", "-c", path]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "orders:"
    assert [line.split() for line in lines[1:4]] == [
        [ids[0], LONGEST, "the", "flow"],
        [ids[1], "unknown_source_topic", "t", "at", "9999999999"],
        [ids[2], "source_records_gone", "t[3]", "at", "9999999999"],
    ]
    assert lines[4:] == ["audit: none"]
    assert max(map(len, lines)) <= 80


def bare(text: str) -> str:
    """Without what ends a sentence or clause."""
    return " ".join(text.translate(dict.fromkeys(map(ord, ".,;:"), " ")).split())


@pytest.mark.tier("default")
def test_an_incident_is_shown_within_80_columns_with_what_to_do(
    cluster: Cluster, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in KINDS:
        cluster.found["orders"] = flow("orders", stopped(3, name))
        (it,) = listed(path, capsys)
        assert main.invoke(["incident", "show", it["id"][:6], "-c", path]) == 0
        said = capsys.readouterr().out
        lines = [line.strip() for line in said.splitlines() if len(line) > 80 and path not in line]
        assert lines == []
        words = " ".join(said.replace("\\\n", " ").replace(path, "FILE").split())
        advice = advice_for(name, it["id"], "orders")
        assert bare(advice) in bare(words)
        typed = {" ".join(line.split()) for line in said.replace("\\\n", " ").splitlines()}
        assert typed >= {
            " ".join(it[0].split()).replace("FILE", path)
            for it in re.finditer(r"eos-replicate (?:incident|reconcile|rebuild-control) .*? -c FILE", advice)
        }, "each in lines of its own, to be copied as it stands"
        assert "offsets 40 to 59 were removed" in words
        assert "position 9999999999 of 9999999999, 99 not copied" in words
        assert main.invoke(["incident", "show", it["id"], "-c", path, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown == it
        assert shown["advice"] == advice_for(name, it["id"], "orders")
        assert shown["last_commit"] == "2027-01-15T08:00:00Z"


@pytest.mark.parametrize(
    ("occurrence", "name", "told"),
    [("", "source_records_gone", True), ("ab12", "source_records_gone", False), ("", "unknown_source_topic", False)],
)
def test_an_incident_that_no_worker_has_found_says_that_the_flow_has_to_run_first(
    cluster: Cluster, path: str, capsys: pytest.CaptureFixture[str], *, occurrence: str, name: str, told: bool
) -> None:
    cluster.found["orders"] = flow("orders", replace(stopped(3, name), occurrence=occurrence))
    (it,) = listed(path, capsys)
    assert main.invoke(["incident", "show", it["id"], "-c", path]) == 0
    assert ("Run the flow before you decide" in " ".join(capsys.readouterr().out.split())) is told


def test_a_decision_that_was_not_acted_on_is_in_the_list(
    cluster: Cluster, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = replace(stopped(3, "source_topic_recreated"), occurrence="ab12", decided="ann has decided --restart-topic")
    cluster.found["orders"] = flow("orders", replace(row, decided_waits="the flow is paused by bob"))
    main.invoke(["incident", "list", "-c", path])
    said = "ann has decided --restart-topic; the flow acts on it after eos-replicate resume: the flow is paused by bob"
    assert f"      decided: {said}" in capsys.readouterr().out.splitlines()


def test_an_id_that_is_not_open_or_fits_several_is_refused_with_those_there_are(
    cluster: Cluster, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(["incident", "show", "abcd", "-c", path]) == 1
    assert capsys.readouterr().err == "error: no open incident has the id abcd; open: none\n"
    cluster.found["audit"] = flow("audit", *(stopped(number) for number in range(20)))
    ids = [it["id"] for it in listed(path, capsys)]
    several = next(start for start in "0123456789abcdef" if sum(each.startswith(start) for each in ids) > 1)
    fitting = [each for each in ids if each.startswith(several)]
    assert main.invoke(["incident", "show", several, "-c", path]) == 1
    assert capsys.readouterr().err == f"error: several ids begin with {several}: {', '.join(fitting)}\n"


def test_of_a_flow_that_cannot_be_asked_nothing_is_known_and_the_others_are_shown(
    cluster: Cluster, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.found = {"orders": Unreachable("cluster 'east': away"), "audit": flow("audit", stopped(3))}
    assert main.invoke(["incident", "list", "-c", path]) == 3
    said = capsys.readouterr()
    assert "audit:" in said.out
    assert "orders" not in said.out
    assert said.err == "error: flow orders: cluster 'east': away\n"
    (it,) = listed(path, capsys)
    assert main.invoke(["incident", "show", it["id"], "-c", path]) == 0
    assert main.invoke(["incident", "show", "abcd", "-c", path]) == 3, "it may be of that flow"


def test_while_the_source_is_away_what_workers_have_written_down_is_listed(
    cluster: Cluster, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    away = "cluster 'east': away"
    orders = flow("orders", replace(stopped(3), occurrence="3f2a9c1d8e70", source_end=None, lag_records=None))
    cluster.found = {
        "orders": replace(orders, source_error=away),
        "audit": replace(flow("audit"), source_error=away),
    }
    assert main.invoke(["incident", "list", "-c", path]) == 3
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == "audit: none is written down at the target"
    assert "3f2a9c1d8e70" in said.out
    assert said.err == f"error: flow orders: {away}\nerror: flow audit: {away}\n"
    assert main.invoke(["incident", "show", "3f2a", "-c", path]) == 0
    assert main.invoke(["incident", "show", "abcd", "-c", path]) == 3


def test_only_the_flows_that_were_named_are_asked(
    cluster: Cluster, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.found = {"orders": flow("orders", stopped(3)), "audit": Unreachable("away")}
    assert main.invoke(["incident", "list", "-c", path, "--flow", "orders"]) == 4
    assert main.invoke(["incident", "list", "-c", path, "--flow", "order"]) == 2
    assert "orders" in capsys.readouterr().err

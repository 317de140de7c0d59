"""`incident resolve`: what it takes on the command line, and what it says of what came of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli import main
from replicator.flow import deciding
from replicator.flow.deciding import DecisionWanted, Resolved
from replicator.inspect import status as statuses
from replicator.inspect.flow_status import FlowStatus, PartitionStatus
from replicator.model.commands import Command
from replicator.model.errors import Incident, ReplicatorError, Unreachable
from replicator.model.partition import Partition
from replicator.state.decisions import NotDecided, Objection, decide
from replicator.state.occurrences import Closing, Ending, Occurrence, found
from replicator.state.run_settings import NO_SETTINGS, Paused

FILE = """\
clusters: {east: {properties: {bootstrap.servers: "e:1"}}, west: {properties: {bootstrap.servers: "w:1"}}}
flows:
  orders: {source: east, target: west, topics: [t]}
  audit: {source: east, target: west, topics: [u], rename: "a.{topic}"}
"""
GONE = Incident("source_records_gone", "10 to 19", topic="t", partition=3, offset=10, end=20)
EXPIRED = Incident("position_expired", "it has gone", topic="t", partition=3)
REFUSED = Incident("record_refused", "no key", topic="t", partition=3, offset=10)


def occurrence(incident: Incident, id_: str) -> Occurrence:
    return replace(found(incident, Partition("west.t", 3), Partition("t", 3), "me", 1, 1), id=id_)


class Flows:
    """What the flows' own topics say, and what their lanes make of a decision."""

    def __init__(self) -> None:
        self.occurrences: dict[str, Sequence[Occurrence] | ReplicatorError] = {
            "orders": [occurrence(GONE, "aa11"), occurrence(REFUSED, "ab22")],
            "audit": [occurrence(GONE, "bb33")],
        }
        self.closing: dict[str, Any] | None = None
        self.found_then: list[Occurrence] = []  # in the transaction in which the lane acts
        self.wanted: list[tuple[str, DecisionWanted, float]] = []
        self.paused = ""
        self.others: tuple[Occurrence, ...] = ()  # that are decided about with the one that is named

    def occurrences_of(self, flow: Any, connect_timeout_ms: int) -> Sequence[Occurrence]:
        found_ = self.occurrences[flow.name]
        if isinstance(found_, ReplicatorError):
            raise found_
        return found_

    def resolve(self, flow: Any, wanted: DecisionWanted, *, connect_timeout_ms: int, wait_s: float) -> Resolved:
        self.wanted.append((flow.name, wanted, wait_s))
        of = self.occurrences_of(flow, connect_timeout_ms)
        decision = decide(wanted.start, wanted.command, of, {}, by=wanted.by, why=wanted.why, now_ms=5)
        it = next(each for each in of if each.id == decision.occurrence)
        if self.closing is not None:
            it = it.closed(Closing(by="lane", at_ms=6, decision=decision, **self.closing), 1)
        return Resolved(decision, it, deciding.still_stopped(decision, it, self.found_then), self.paused, self.others)

    def status(self, flow: Any, *_: object, **__: object) -> FlowStatus:
        row = PartitionStatus(
            source_topic="s", partition=-1, target_topic="x", state="topic_missing", incident="unknown_source_topic"
        )
        return FlowStatus(flow.name, "east", "west", "exactly_once", (row,) if flow.name == "orders" else ())


@pytest.fixture
def flows(monkeypatch: pytest.MonkeyPatch) -> Flows:
    made = Flows()
    monkeypatch.setattr(deciding, "occurrences_of", made.occurrences_of)
    monkeypatch.setattr(deciding, "resolve", made.resolve)
    monkeypatch.setattr(statuses, "status", made.status)
    return made


@pytest.fixture
def path(tmp_path: Path) -> str:
    at = tmp_path / "flows.yaml"
    at.write_text(FILE)
    return str(at)


def resolve(path: str, *words: str) -> int:
    return main.invoke(["incident", "resolve", *words, "-c", path])


def test_the_flow_is_found_by_the_id_and_the_decision_says_who_and_why(
    flows: Flows, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flows.closing = {"effect": Ending.SKIPPED, "moved": (10, 20)}
    assert resolve(path, "aa", "--skip", "--why", "old", "--by", "ann", "--wait", "3") == 0
    assert flows.wanted == [("orders", DecisionWanted("aa", Command.SKIP, "ann", "old"), 3.0)]
    assert capsys.readouterr().out == (
        "aa11  source_records_gone of t[3]: ann has decided --skip (old)\n"
        "The position went from source offset 10 to 20.\n"
    )
    assert resolve(path, "bb33", "--retry") == 0
    name, wanted, _ = flows.wanted[-1]
    assert (name, "@" in wanted.by, wanted.why) == ("audit", True, "")


@pytest.mark.parametrize(
    ("closing", "said"),
    [
        (None, "The flow has not acted on it yet"),
        ({"effect": Ending.RETRIED}, "The facts had changed before the flow acted: nothing was done"),
        (
            {"effect": Ending.SET_ASIDE, "moved": (10, 11), "kept": "whole"},
            "The record is in __eos.orders.aside: whole.",
        ),
        ({"effect": Ending.SET_ASIDE, "moved": (10, 11), "kept": "stub"}, "The record's key and value were not kept"),
    ],
)
def test_what_came_of_it_is_said(
    flows: Flows, path: str, capsys: pytest.CaptureFixture[str], closing: dict[str, Any] | None, said: str
) -> None:
    flows.closing = closing
    code = int(closing is not None and closing["effect"] is Ending.RETRIED)
    assert resolve(path, "ab22", "--set-aside", "--why", "x") == code
    assert said in capsys.readouterr().out
    assert resolve(path, "ab22", "--set-aside", "--why", "x", "--json") == code
    shown = json.loads(capsys.readouterr().out)
    assert shown["flow"] == "orders"
    assert shown["decision"]["command"] == "set-aside"
    assert shown["acted"] == (None if closing is None else closing["effect"].value)


def test_all_partitions_that_one_id_decides_about_are_named(
    flows: Flows, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    again = Incident("source_topic_recreated", "another id", topic="t", partition=3, offset=10, end=20)
    flows.occurrences["orders"] = [occurrence(again, "ee55")]
    flows.others = (replace(occurrence(again, "ff66"), source=Partition("t", 4)),)
    flows.closing = {"effect": Ending.RESTARTED, "moved": (10, 0)}
    assert resolve(path, "ee", "--restart-topic", "--why", "x", "--by", "ann") == 0
    assert capsys.readouterr().out.splitlines() == [
        "ee55  source_topic_recreated of t[3], [4]: ann has decided --restart-topic (x)",
        "t[3] is copied from source offset 0 on, after what the target had.",
        "The others follow, each from the beginning of its own log: status shows them.",
    ]
    assert resolve(path, "ee", "--restart-topic", "--why", "x", "--json") == 0
    assert json.loads(capsys.readouterr().out)["also_decided"] == [{"id": "ff66", "topic": "t", "partition": 4}]


def test_what_waits_for_the_end_of_a_pause_is_said(flows: Flows, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    again = Incident("source_topic_recreated", "another id", topic="t", partition=3, offset=10, end=20)
    flows.occurrences["orders"] = [occurrence(again, "ee55")]
    flows.paused = "topic t is paused by ann (moved)"
    assert resolve(path, "ee", "--restart-topic", "--why", "x") == 0
    (_, said) = capsys.readouterr().out.splitlines()
    assert said == "The flow acts on it after eos-replicate resume: topic t is paused by ann (moved)."
    assert resolve(path, "ee", "--restart-topic", "--why", "x", "--json") == 0
    assert json.loads(capsys.readouterr().out)["paused"] == flows.paused


def test_only_what_begins_elsewhere_waits_for_the_end_of_a_pause() -> None:
    it = occurrence(Incident("source_topic_recreated", "another id", topic="t", partition=3, offset=10, end=20), "ee55")
    restart, retry = (
        decide("ee55", command, [it], {}, by="bob", why="x", now_ms=5)
        for command in (Command.RESTART_TOPIC, Command.RETRY)
    )
    ann = Paused(by="ann", at_ms=1, why="moved")
    for paused, said in (
        (NO_SETTINGS, ""),
        (NO_SETTINGS.pause(["u"], ann), ""),
        (NO_SETTINGS.pause(["t"], ann), "topic t is paused by ann (moved)"),
        (NO_SETTINGS.pause([], ann), "the flow is paused by ann (moved)"),
    ):
        assert deciding.pause_before(restart, it, paused) == said
        assert deciding.pause_before(retry, it, paused) == ""


def test_what_still_stops_a_partition_after_a_retry_is_said_with_its_id(
    flows: Flows, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flows.occurrences = {"orders": [occurrence(GONE, "aa11")], "audit": []}
    elsewhere = replace(occurrence(GONE, "cc44"), target=Partition("west.t", 4))
    flows.found_then = [elsewhere, occurrence(GONE, "dd55")]
    assert resolve(path, "aa11", "--retry") == 0, "not acted on: what stops it is what was decided about"
    assert "dd55" not in capsys.readouterr().out
    flows.closing = {"effect": Ending.RETRIED}
    assert resolve(path, "aa11", "--retry") == 1
    assert capsys.readouterr().out.splitlines()[1] == (
        "The partition was checked again, and source_records_gone still stops it: the incident is dd55 now."
    )
    assert resolve(path, "aa11", "--retry", "--json") == 1
    assert json.loads(capsys.readouterr().out)["still_stopped"] == {"id": "dd55", "name": "source_records_gone"}
    flows.found_then = [elsewhere]
    assert resolve(path, "aa11", "--retry") == 0
    assert "incident list shows whether" in capsys.readouterr().out


def test_the_offset_of_what_is_adopted_is_said(flows: Flows, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    flows.occurrences["audit"] = [occurrence(EXPIRED, "cc44")]
    flows.closing = {"effect": Ending.ADOPTED, "moved": (-1, 7)}
    assert resolve(path, "cc", "--adopt", "7", "--why", "reconciled", "--by", "ann") == 0
    assert flows.wanted[-1][1] == DecisionWanted("cc", Command.ADOPT, "ann", "reconciled", 7)
    assert capsys.readouterr().out == (
        "cc44  position_expired of t[3]: ann has decided --adopt (reconciled)\nIt is copied from source offset 7 on.\n"
    )
    assert resolve(path, "cc", "--adopt", "map", "--why", "expired") == 0
    assert flows.wanted[-1][1].adopted is None
    assert resolve(path, "aa", "--adopt", "7", "--why", "x") == 1
    assert "--adopt doesn't apply to source_records_gone (aa11): use --retry or --skip" in capsys.readouterr().err


@pytest.mark.parametrize("words", [(), ("--skip",), ("--set-aside",), ("--adopt", "7")])
def test_a_decision_needs_a_command_and_what_leaves_records_out_a_reason(
    flows: Flows, path: str, words: Sequence[str]
) -> None:
    assert resolve(path, "aa11", *words) == 2
    assert flows.wanted == []


def test_what_no_lane_has_written_down_is_refused_with_what_to_do(
    flows: Flows, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(["incident", "list", "-c", path, "--json"]) == 4
    (listed,) = json.loads(capsys.readouterr().out)["incidents"]
    assert listed["commands"] == []
    assert resolve(path, listed["id"], "--retry") == 1
    assert capsys.readouterr().err == (
        f"error: wrong_command: no command applies to unknown_source_topic of s now. {listed['advice']}\n"
    )


def test_an_id_that_nothing_has_or_that_two_flows_have_is_refused(
    flows: Flows, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resolve(path, "cc", "--retry") == 1
    assert capsys.readouterr().err == (
        "error: unknown: no incident of a partition has the id cc; open: aa11, ab22, bb33\n"
    )
    flows.occurrences["audit"] = [occurrence(GONE, "aa99")]
    assert resolve(path, "aa", "--retry") == 1
    assert "ambiguous: ids of several flows begin with aa: audit, orders" in capsys.readouterr().err
    assert resolve(path, "aa", "--retry", "--flow", "audit") == 0


def test_a_flow_that_can_not_be_asked_may_have_it(flows: Flows, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    flows.occurrences["audit"] = Unreachable("cluster 'west': away")
    assert resolve(path, "aa", "--retry") == 0, "another one has it"
    assert resolve(path, "cc", "--retry") == 3
    assert "error: flow audit: cluster 'west': away" in capsys.readouterr().err


def test_a_refusal_says_why_and_nothing_else(
    flows: Flows, path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotDecided(Objection.ALREADY_DECIDED, "aa11: ann has decided --skip")

    monkeypatch.setattr(deciding, "resolve", refuse)
    assert resolve(path, "aa11", "--retry") == 1
    assert capsys.readouterr().err == "error: already_decided: aa11: ann has decided --skip\n"

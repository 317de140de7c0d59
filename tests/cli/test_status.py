"""What `status` shows on a terminal of 80 columns."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console

from cli import main
from cli.commands.status import _show, said_of
from cli.commands.status_check import WELL, LagBounds, problems
from replicator.inspect import status as statuses
from replicator.inspect.flow_runs import EndedFlow, Runner
from replicator.inspect.flow_status import FlowStatus, PartitionStatus, State
from replicator.state.kept_positions import KeptPositions
from replicator.state.run_settings import RateLimit
from replicator.state.signed_gaps import Adoption, SignedGap

NOW_MS = 1_800_000_000_000
LARGE = 9_999_999_999


def row(topic: str, partition: int, **facts: object) -> PartitionStatus:
    return PartitionStatus(source_topic=topic, partition=partition, target_topic=f"west.{topic}", **facts)  # type: ignore[arg-type]


def shown(*rows: PartitionStatus, incident: str = "", terminal: bool = False, **facts: object) -> list[str]:
    said = io.StringIO()
    flow = FlowStatus("orders", "east", "west", "exactly_once", rows, incident, **facts)  # type: ignore[arg-type]
    console = Console(width=80, file=said, force_terminal=terminal, color_system=None, highlight=False)
    _show(console, flow, NOW_MS)
    return said.getvalue().splitlines()


def gap(partition: int) -> SignedGap:
    return SignedGap(
        occurrence="ab12",
        topic="t",
        partition=partition,
        target_topic="west.t",
        first=4,
        end=5,
        incident="record_refused",
        command="skip",
        by="ann",
        why="old",
        decided_ms=1,
        acted_ms=2,
    )


def test_the_state_is_whole_however_large_the_numbers_are() -> None:
    large = {"position": LARGE, "source_end": LARGE, "lag_records": 99_999_999, "lag_seconds": 99_999.9}
    lines = shown(
        row("payments.card-transactions", 0, **large, last_commit_ms=NOW_MS - 3 * 3_600_000, state="source_truncated"),
        row("payments.card-transactions", 999, last_commit_ms=NOW_MS, state="in_sync"),
        row("gone", -1, state="topic_missing"),
    )
    assert max(map(len, lines)) <= 80, lines
    assert lines[2] == "payments.card-transactions → west.payments.card-transactions"
    assert lines[3].split() == ["0", str(LARGE), str(LARGE), "99999999", "99999.9", "3", "h", "ago", "source_truncated"]
    assert lines[4].split() == ["999", "-", "-", "-", "-", "0", "s", "ago", "in_sync"]
    assert lines[6].split()[-1] == "topic_missing"


def test_an_incident_of_the_whole_flow_is_told_with_its_advice() -> None:
    lines = shown(row("t", 0, state="in_sync"), incident="control_topic_lost")
    assert "the flow can't start: control_topic_lost" in " ".join(lines)
    assert "rebuild-control" in " ".join(lines)


def test_who_runs_the_flow_and_how_it_has_ended_is_told() -> None:
    synced = row("t", 0, state="in_sync")
    one, other = Runner("host:1:a", NOW_MS, 2, (0, 3)), Runner("host:2:[b]", None, 1, (1,))
    assert shown(synced, run_by=(one,))[-1] == "  run by host:1:a since 2027-01-15T08:00:00Z"
    assert shown(synced, run_by=(one, other))[-2:] == [
        "  run by host:1:a since 2027-01-15T08:00:00Z: lanes 0, 3, 2 partitions",
        "  run by host:2:[b]: lane 1, 1 partitions",
    ]
    released = shown(synced, released_ms=NOW_MS)
    assert released[-1] == "  no process runs it: its positions were released at 2027-01-15T08:00:00Z"
    gaps = tuple(replace(gap(number), end=5 + number) for number in range(7))
    assert shown(synced, signed_gaps=gaps)[-6:] == [
        *(f"  t[{number}]: {gaps[number].said}" for number in range(5)),
        "  and 2 more that were left out; --json has all of them",
    ]
    ended = EndedFlow("Incident", "control_topic_lost: it is gone", 4, "host:1:a", NOW_MS)
    told = shown(synced, released_ms=NOW_MS, ended=ended)[-1]
    assert told.startswith("  it has ended at 2027-01-15T08:00:00Z with 4, in the process host:1:a, which goes on")
    assert told.endswith("control_topic_lost: it is gone")


def test_a_decision_that_waits_for_resume_is_told_in_place_of_the_advice() -> None:
    stopped = row("t", 0, state="source_recreated", incident="source_topic_recreated", occurrence="ab12", detail="x")
    assert "incident resolve ab12 --restart-topic" in " ".join(shown(stopped))
    decided = replace(stopped, decided="ann has decided --restart-topic (meant)", decided_waits="topic t is paused")
    told = shown(decided)
    waits = "the flow acts on it after eos-replicate resume: topic t is paused"
    assert told[-1] == f"    decided: ann has decided --restart-topic (meant); {waits}"
    assert "incident resolve" not in " ".join(told), "a second decision is refused"
    assert shown(replace(decided, decided_waits=""))[-1].endswith("(meant); the flow has not acted on it yet")


def test_one_id_is_in_the_advice_where_one_command_decides_about_all_partitions_of_the_topic() -> None:
    again = row("t", 0, state="target_recreated", incident="target_topic_recreated", occurrence="ab12", detail="x")
    decided = replace(again, decided="ann has decided --restart-topic (meant)")
    later = replace(again, partition=1, occurrence="cd34")
    told = " ".join(shown(decided, later, replace(later, partition=2, occurrence="ef56")))
    assert "incident resolve cd34 --restart-topic" in told
    lost = [replace(it, incident="source_records_gone") for it in (again, later)]
    assert "incident resolve ID --skip" in " ".join(shown(*lost)), "each is decided about by itself"


def test_who_keeps_the_positions_of_a_flow_that_was_failed_over_is_told() -> None:
    over = row("t", 0, state="failed_over")
    kept = KeptPositions(owner="host:1:a", at_ms=NOW_MS, partitions=1, generation=2)
    assert shown(over, failed_over=True, released_ms=NOW_MS, kept_by=kept)[-1] == (
        "  its positions are kept by host:1:a, which has committed them last at 2027-01-15T08:00:00Z"
    )
    assert "no process that runs it" in shown(over, failed_over=True, released_ms=NOW_MS)[-1]


def test_one_decision_about_several_partitions_of_a_topic_is_one_line() -> None:
    synced, told = row("t", 0, state="in_sync"), gap(0).said
    others = (replace(gap(0), topic="u"), replace(gap(9), end=6))
    assert shown(synced, signed_gaps=(gap(0), gap(2), others[1], gap(1), others[0]))[-3:] == [
        f"  t[0], [2], [1]: {told}",
        f"  t[9]: {others[1].said}",
        f"  u[0]: {told}",
    ]
    many = tuple(gap(number) for number in range(64))
    assert shown(synced, signed_gaps=many)[-1] == f"  t[0], [1], [2] and 61 more: {told}"
    adopted = Adoption(
        occurrence="ab12",
        topic="t",
        partition=0,
        target_topic="west.t",
        offset=4,
        incident="target_not_empty",
        by="ann",
        why="ours",
        decided_ms=1,
        acted_ms=2,
    )
    both = (adopted, replace(adopted, partition=1))
    assert shown(synced, adoptions=both)[-1] == f"  t[0], [1]: {adopted.said}"


def test_on_a_terminal_sentences_are_wrapped_and_names_and_commands_stay_whole() -> None:
    name, command = "payments." + "x" * 100, "eos-replicate incident resolve ab12cd34ef56 --skip --why TEXT -c FILE"
    gone = "offsets 40 to 59 were removed from the source before they were copied, by retention or by DeleteRecords"
    rows = [
        row("t", 3, state="records_lost", incident="source_records_gone", occurrence="ab12cd34ef56", detail=gone),
        row(name, 0, state="waiting", detail=f"not_allowed: {gone}"),
        row("u", 0, state="in_sync", held_back_records=9, held_back_since_ms=NOW_MS),
    ]
    notes = ("the offset map is off, " * 8,)
    facts: dict[str, Any] = {"notes": notes, "signed_gaps": (gap(1),), "other_settings": "other settings " * 9}
    lines = shown(*rows, incident="control_topic_lost", terminal=True, **facts)
    long = [line for line in lines if len(line) > 80]
    assert all(name in line or "eos-replicate " in line for line in long), long
    assert any(command in line for line in lines), lines
    assert "      the source before they were copied, by retention or by DeleteRecords" in lines
    piped = shown(*rows, incident="control_topic_lost", **facts)
    told = [line for line in piped if gone in line]
    assert len(told) == 2, "a line each in a file or pipe"


def test_while_the_source_is_away_what_the_target_has_is_shown_and_nothing_is_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = row("t", 0, position=40, last_commit_ms=NOW_MS, owner="host:1:a", state="waiting")
    away = FlowStatus("f", "a", "b", "exactly_once", (held,), notes=("as the target has it",), source_error="a is away")
    monkeypatch.setattr(statuses, "status", lambda *_, **__: away)
    (tmp_path / "flows.yaml").write_text(
        'clusters: {a: {properties: {bootstrap.servers: "a:1"}}, b: {properties: {bootstrap.servers: "b:1"}}}\n'
        "flows: {f: {source: a, target: b, topics: [t], groups: {include: [g]}}}\n"
    )
    words = ["status", "-c", str(tmp_path / "flows.yaml")]
    assert main.invoke(words) == 3
    said = capsys.readouterr()
    assert ["0", "40", "-", "-", "-"] in [line.split()[:5] for line in said.out.splitlines()]
    assert "as the target has it" in said.out
    assert said.err == "error: flow f: a is away\n"
    assert main.invoke([*words, "--check"]) == 3
    assert capsys.readouterr().err == "error: flow f: a is away\n"
    assert main.invoke([*words, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["errors"], document["flows"][0]["lag_records"]) == ({"f": "a is away"}, None)


def test_a_limit_that_was_taken_away_is_told_as_none() -> None:
    lines = said_of({}, {"": RateLimit(by="ann"), "t": RateLimit(records_per_s=500, by="ann")})
    assert [line.partition(", set")[0] for line in lines] == [
        "the flow is copied with no limit",
        "t is copied with at most 500 records/s",
    ]


@pytest.mark.parametrize("state", sorted(get_args(State)))
def test_only_partitions_that_are_copied_are_well(state: State) -> None:
    flow = FlowStatus("orders", "east", "west", "exactly_once", (row("t", 3, state=state),))
    found = problems(flow, LagBounds())
    assert found == ([] if state in WELL else [f"flow orders: t[3] is {state}"])


def test_a_failover_of_the_whole_flow_is_said_once() -> None:
    rows = (*(row("t", number, state="failed_over") for number in range(3)), row("u", 0, state="records_lost"))
    flow = FlowStatus("orders", "east", "west", "exactly_once", rows, failed_over=True)
    assert problems(flow, LagBounds()) == [
        "flow orders was failed over: nothing is copied",
        "flow orders: u[0] is records_lost",
    ]


def test_lag_beyond_a_bound_is_named_with_both() -> None:
    behind = row("t", 0, state="behind", lag_records=7, lag_seconds=61.2)
    flow = FlowStatus("orders", "east", "west", "exactly_once", (behind, row("u", 0, state="not_started")))
    assert problems(flow, LagBounds(7, 61.2)) == []
    assert problems(flow, LagBounds(6, 60)) == [
        "flow orders: t[0] is 7 records behind, more than 6",
        "flow orders: t[0] is 61 s behind, more than 60",
    ]


def test_a_flow_that_cannot_start_has_ended_or_has_no_partition_is_not_well() -> None:
    ended = EndedFlow("Incident", "it is gone", 4, "host:1:a", NOW_MS)
    flow = FlowStatus("orders", "east", "west", "exactly_once", (), "control_topic_lost", ended=ended)
    assert problems(flow, LagBounds()) == [
        "flow orders can't start: control_topic_lost",
        "flow orders has ended with 4: it is gone",
        "flow orders has no partition",
    ]


def test_a_flow_that_nobody_copies_is_not_well() -> None:
    behind = row("t", 0, state="behind", lag_records=7), row("u", 0, state="in_sync", lag_records=1)
    flow = FlowStatus("orders", "east", "west", "exactly_once", behind)
    assert problems(flow, LagBounds()) == []
    released = replace(flow, released_ms=NOW_MS)
    assert problems(released, LagBounds()) == ["flow orders is run by no process, with 7 records to copy"]
    assert problems(released, LagBounds(lag_records_max=7)) == [], "so many are well"
    assert problems(replace(released, partitions=behind[1:]), LagBounds()) == [], "all is copied"
    assert problems(replace(flow, failed_over=True), LagBounds()) == ["flow orders was failed over: nothing is copied"]
    half = replace(flow, being_failed_over="it is being failed over (generation 3): workers may still copy")
    assert problems(half, LagBounds()) == [
        "flow orders: it is being failed over (generation 3): workers may still copy"
    ]
    other = replace(flow, other_settings="workers run those of generation 3")
    [said] = problems(other, LagBounds())
    assert said.endswith("than the flow file has: workers run those of generation 3")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--lag-seconds-max", "5"], "go with --check"),
        (["--watch", "1", "--json"], "--watch is for people"),
        (["--watch", "1", "--check"], "--watch is for people"),
        (["--watch", "0"], "0.5"),
        (["--check", "--lag-records-max", "-1"], "x>=0"),
    ],
)
def test_options_that_do_not_go_together(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["status", "-c", "/nowhere.yaml", *options]) == 2
    assert said in capsys.readouterr().err


TOLD = """\
clusters:
  a: {properties: {bootstrap.servers: "127.0.0.1:1", log_level: "6"}}
  b: {properties: {bootstrap.servers: "127.0.0.1:1"}}
flows: {f: {source: a, target: b, topics: [t], limits: {connect_timeout_ms: 1000}}}
"""


@pytest.mark.tier("default")
@pytest.mark.parametrize("command", [["status"], ["incident", "list"]], ids=" ".join)
def test_lines_of_the_client_are_no_output(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flows.yaml").write_text(TOLD)
    assert main.invoke([*command, "-c", str(tmp_path / "flows.yaml"), "--json"]) == 3
    said = capfd.readouterr()
    json.loads(said.out)
    assert "Connection refused" in said.err
    # A line that librdkafka writes by itself begins with %. The word CONFWARN is no sign of it: a refused connection
    # that makes the cluster's client bootstrap again while it starts makes it warn of missing servers (KIP-899).
    assert not [line for line in said.err.splitlines() if line.startswith("%")], "of a client that checks properties"

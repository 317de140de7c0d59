"""Commands that the program advises are taken as they are printed, once ID, FLOW, TEXT and FILE are filled in."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from cli import main
from cli.commands.incident_resolve import why_undecided
from cli.options import ask_each
from replicator.config import load
from replicator.incidents import tell_incident
from replicator.inspect.incidents import OpenIncident
from replicator.model.errors import ConfigError, Incident
from replicator.model.incident_kinds import KINDS, advice_for

pytestmark = pytest.mark.tier("default")

ROOT = Path(__file__).parents[2]
TYPED = re.compile(r"eos-replicate [a-z].*?-c FILE\b")
FILE = "no-such-file.yaml"
FILLED_IN = {"FLOW": "orders", "ID": "3f2a9c1d8e70", "TEXT": "'the disk was lost'", "FILE": FILE, "OFFSET": "48210"}
WITH_OPTIONS = re.compile(r"\b(?:incident resolve|position set|rebuild-control|reconcile --repair)\b(?= ID| -)")
"""A command with what belongs to it, not only its name."""

OPEN = OpenIncident(
    id="3f2a9c1d8e70",
    first_id="",
    flow="orders",
    name="",
    topic="t",
    partition=3,
    position=40,
    detail="",
    occurrence=True,
)

FLOWS = """
clusters:
  a: { properties: { bootstrap.servers: "127.0.0.1:1" } }
  b: { properties: { bootstrap.servers: "127.0.0.1:2" } }
flows:
  orders: { source: a, target: b, topics: [orders] }
  audit: { source: a, target: b, topics: [audit] }
"""


def of_the_code() -> set[str]:
    """What stands as a command in the program's texts; what they fill in is a word."""
    found: set[str] = set()
    for path in [*(ROOT / "replicator").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        code = path.read_text()
        for node in ast.walk(ast.parse(code)) if "eos-replicate" in code else ():
            text = ""
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            elif isinstance(node, ast.JoinedStr):
                text = "".join(str(it.value) if isinstance(it, ast.Constant) else "word" for it in node.values)
            found |= set(TYPED.findall(text))
    return found


def advised() -> set[str]:
    return {command for name in KINDS for command in TYPED.findall(advice_for(name))} | of_the_code()


def offered() -> set[str]:
    """What `incident show` prints below what to do."""
    incidents = (replace(OPEN, name=name) for name in KINDS)
    return {f"eos-replicate {command} -c FILE" for it in incidents for command in it.typed}


def take(command: str) -> None:
    """Type it, of a file that isn't there: that is found after the command line was taken."""
    words = re.sub(r"\b(ID|FLOW|TEXT|FILE|OFFSET)\b", lambda found: FILLED_IN[found[0]], command)
    _, *arguments = shlex.split(words)
    with pytest.raises(ConfigError, match=FILE):  # a UsageError says what is wrong with the line
        main.group.main(args=arguments, prog_name="eos-replicate", standalone_mode=False)


def test_advised_commands_are_taken_as_they_are_printed(java: None) -> None:
    commands = sorted(advised() | offered())
    assert len(commands) > 10
    for command in commands:
        take(command)


def test_commands_in_advice_are_whole_lines() -> None:
    for name in KINDS:
        advice = advice_for(name)
        assert len(WITH_OPTIONS.findall(advice)) == len(WITH_OPTIONS.findall(" ".join(TYPED.findall(advice)))), advice


def test_advice_leaves_only_what_the_reader_alone_knows() -> None:
    told = logged(Incident("source_records_gone", "gone"), flow="orders")
    assert "resolve ID " in told
    assert told.endswith(". The ID is shown by eos-replicate incident list --flow orders -c FILE")
    for name in KINDS:
        for said in (logged(Incident(name, "x"), flow="orders"), replace(OPEN, name=name).advice):
            assert "FLOW" not in said, said
            assert "resolve ID " not in said or "incident list --flow orders -c FILE" in said, said
        assert Incident(name, "x").of_flow("orders").of_flow("orders") == Incident(name, "x").of_flow("orders")


def logged(incident: Incident, flow: str) -> str:
    """The advice in the log line of a flow."""
    with structlog.testing.capture_logs() as lines:
        tell_incident(structlog.get_logger().bind(flow=flow), incident)
    (line,) = lines
    return str(line["advice"])


def test_of_several_flows_the_one_that_can_not_be_run_is_in_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flows.yaml"
    file.write_text(FLOWS)

    def lost(*_: object) -> None:
        raise Incident("control_topic_lost", "it is gone")

    monkeypatch.setattr("replicator.flow.controlling.change_settings", lost)
    assert main.invoke(["rate", "--flow", "audit", "-c", str(file)]) == Incident.exit_code
    assert "eos-replicate rebuild-control --flow audit -c FILE" in capsys.readouterr().err
    _, failed = ask_each(load(file, {}).flows.values(), lost)
    assert ["--flow audit -c FILE" in str(failed[name]) for name in ("orders", "audit")] == [False, True]


def test_an_incident_that_workers_with_another_file_can_not_find_is_not_waited_for() -> None:
    it = replace(OPEN, name="source_records_gone", occurrence=False)
    other = "workers run the settings of generation 3. To go back to this file: eos-replicate apply --flow f -c FILE"
    assert "Run the flow, and type the same again" in why_undecided(it, "")
    told = why_undecided(it, other)
    assert "Run the flow" not in told
    assert told.index(other) < told.index("type the same again")
    assert "no command applies" in why_undecided(replace(it, name="control_topic_lost"), other)


def test_a_deleted_topic_is_told_of_in_one_way() -> None:
    """A flow that names a topic has both incidents: creating it again would stop it for good."""
    for name in ("source_topic_deleted", "unknown_source_topic"):
        advice = advice_for(name)
        assert "(topics, exclude)" in advice
        assert "that is source_topic_recreated" in advice

"""Commands that the program advises are taken as they are printed, once ID, TEXT and FILE are filled in."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from cli import main
from replicator.inspect.incidents import OpenIncident
from replicator.model.errors import ConfigError
from replicator.model.incident_kinds import KINDS, advice_for

pytestmark = pytest.mark.tier("default")

ROOT = Path(__file__).parents[2]
TYPED = re.compile(r"eos-replicate [a-z].*?-c FILE\b")
FILE = "no-such-file.yaml"
FILLED_IN = {"ID": "3f2a9c1d8e70", "TEXT": "'the disk was lost'", "FILE": FILE, "OFFSET": "48210"}
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


def of_the_code() -> set[str]:
    """What stands as a command in the program's texts; what they fill in is a word."""
    found: set[str] = set()
    for path in [*(ROOT / "replicator").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
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
    words = re.sub(r"\b(ID|TEXT|FILE|OFFSET)\b", lambda found: FILLED_IN[found[0]], command)
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

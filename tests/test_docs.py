"""The documents are true: commands exist, examples load, links lead somewhere, tables are complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli import main
from replicator import config, errors

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (path.name, body) for path in DOCUMENTS for found, body in BLOCK.findall(path.read_text()) if found == language
    ]


def shell_lines() -> list[tuple[str, str]]:
    lines = [
        (name, line.partition(" #")[0].strip().removeprefix("$ "))
        for name, body in blocks("sh")
        for line in body.splitlines()
    ]
    return [(name, line) for name, line in lines if line and not line.startswith("#")]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize(("document", "line"), shell_lines())
def test_every_command_exists_and_takes_its_options(document: str, line: str) -> None:
    program, *arguments = shlex.split(line)
    if program == "make":
        assert {word for word in arguments if "=" not in word} <= make_targets(), document
        return
    assert program == "eos-replicate", f"{document}: {line}"
    command = main.LazyGroup(name="eos-replicate").get_command(None, arguments[0])  # type: ignore[arg-type]
    if isinstance(command, click.Group):
        arguments = arguments[1:]
        command = command.get_command(None, arguments[0])  # type: ignore[arg-type]
    assert command is not None, f"{document}: no command {arguments[0]}"
    known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
    used = {word.partition("=")[0] for word in arguments[1:] if word.startswith("-")}
    assert used <= known, f"{document}: {line}"


@pytest.mark.parametrize(("document", "text"), blocks("yaml"))
def test_every_flow_file_in_the_documents_is_valid(document: str, text: str) -> None:
    loaded = config.load_text(text, env={}, name=document)
    assert loaded.flows


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_relative_link_leads_to_a_file(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert not missing


def test_every_command_is_named_in_the_readme_or_the_changelog() -> None:
    text = (ROOT / "README.md").read_text() + (ROOT / "CHANGELOG.md").read_text()
    assert [name for name in main.LAZY if name not in text] == []


def test_every_incident_of_the_code_is_explained() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "replicator").rglob("*.py"))
    named = set(re.findall(r'Incident\(\s*"([a-z_]+)"', code))
    named |= set(re.findall(r'_stop\(\s*\w+,\s*"([a-z_]+)"', code))
    named |= set(re.findall(r'KafkaError\.\w+: \(\s*"([a-z_]+)"', code))
    checks = (ROOT / "replicator/checkpoint.py").read_text().partition("checks = (")[2]
    named |= set(re.findall(r'^\s+"([a-z_]+_[a-z_]+)",$', checks, re.MULTILINE))
    assert len(named) > 15
    documented = (ROOT / "docs/operations.md").read_text()
    assert sorted(name for name in named if f"`{name}`" not in documented) == []


def test_exit_codes_of_the_documents_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    codes = {kind.exit_code for kind in kinds if hasattr(kind, "exit_code")}
    assert {int(row) for row in rows} == codes | {0}


def test_help_of_every_command_is_reachable() -> None:
    group = main.LazyGroup(name="eos-replicate")
    for name in main.LAZY:
        command = group.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert CliRunner().invoke(command, ["--help"]).exit_code == 0

"""The command line: one place for exit codes, errors in one line, modules imported only when used."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from cli import main
from cli.suggesting import SuggestingGroup
from replicator.model.errors import ConfigError, Fatal, Fenced, Incident, NotAllowed, TakenOver, Unreachable

ROOT = Path(__file__).parents[2]
GOOD = """\
clusters:
  a: {properties: {bootstrap.servers: "a:1"}}
  b: {properties: {bootstrap.servers: "b:1", sasl.password: "${PW}"}}
flows:
  f: {source: a, target: b, topics: [t]}
"""


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PW", "s3cret")
    path = tmp_path / "flows.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace("topics", "topcs").replace("target: b", "target: c").replace("${PW}", "x"))
    return path


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Makes `schema` a command that raises."""

    @click.command()
    def command() -> None:
        raise error

    monkeypatch.setattr("cli.commands.schema.schema", command)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("why"), 2),
        (Unreachable("why"), 3),
        (NotAllowed("why"), 3),
        (Incident("name", "why"), 4),
        (TakenOver("why"), 5),
        (Fenced("why"), 5),
    ],
)
def test_errors_raised_on_purpose_are_one_line_and_an_exit_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, error)
    assert main.invoke(["schema"]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [f"error: {error}"]


@pytest.mark.parametrize("error", [Fatal("why"), ZeroDivisionError("why")])
def test_a_bug_shows_its_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, error)
    assert main.invoke(["schema"]) == 70
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert printed.splitlines()[-1].startswith("error: this is a bug")


def test_an_interrupt_is_not_a_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    assert main.invoke(["schema"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nope"], ["validate"], ["validate", "--nope"], ["validate", "-c"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(arguments) == 2
    assert "Error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rum"], "Error: No such command 'rum'. Did you mean 'run'?"),
        (["demo-compare"], "Error: No such command 'demo-compare'. Did you mean 'demo"),
        (["xyzzy"], "Error: No such command 'xyzzy'.\n"),
        (["incident", "lst"], "Error: No such command 'lst'. Did you mean 'list'?"),
        (["incident", "resolv", "3f2a", "--retry"], "Error: No such command 'resolv'. Did you mean 'resolve'?"),
        (["position", "sett"], "Error: No such command 'sett'. Did you mean 'set'?"),
        (["evidence", "chek"], "Error: No such command 'chek'. Did you mean 'check'?"),
        (["log", "dmup"], "Error: No such command 'dmup'. Did you mean 'dump'?"),
        (["position", "xyzzy"], "Error: No such command 'xyzzy'.\n"),
        (["broker", "--data-dir", "x", "--listen", "0.0.0.0:1"], "or allow plain text (--allow-plain-text)\n"),
        (["broker", "--data-dir", "x", "--config", "offset.retention.minutes=1"], "mean offsets.retention.minutes?\n"),
    ],
)
def test_wrong_usage_is_told_with_what_would_be_right(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(arguments) == 2
    assert said in capsys.readouterr().err


def test_every_group_of_commands_suggests_what_was_meant() -> None:
    context = click.Context(main.group)
    found = [main.group.get_command(context, name) for name in main.LAZY]
    groups = [it for it in found if isinstance(it, click.Group)]
    assert len(groups) >= 4
    assert [it.name for it in groups if not isinstance(it, SuggestingGroup)] == []


def test_a_misspelt_flow_is_told_with_the_one_that_was_meant(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good.write_text(GOOD.replace("  f:", "  orders:"))
    for command in ("status", "backfill"):
        assert main.invoke([command, "-c", str(good), "--flow", "order"]) == 2
        assert capsys.readouterr().err == f"error: {good}: no flow order; did you mean 'orders'?\n"


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and group, those within groups too."""
    context = click.Context(group)
    yield before
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name)


def command_of(words: Sequence[str]) -> tuple[click.Command, Sequence[str]]:
    """The command that these words begin with, and the words after it."""
    command: click.Command = main.group
    while words and isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        command, words = found, words[1:]
    return command, words


@pytest.mark.parametrize("words", list(commands(main.group)), ids=lambda words: " ".join(words) or "eos-replicate")
def test_help_fits_80_columns_and_explains_every_option_and_has_examples(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke([*words, "--help"]) == 0
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if len(line) > 80] == []
    assert "..." not in printed.partition("Commands:")[2]  # a summary that was cut
    assert f"\n    {' '.join(('eos-replicate', *words))}" in printed.partition("Examples:")[2]
    command = command_of(words)[0]
    assert [each.name for each in command.params if isinstance(each, click.Option) and not each.help] == []


@pytest.mark.parametrize("words", list(commands(main.group)), ids=lambda words: " ".join(words) or "eos-replicate")
def test_examples_in_help_have_options_that_exist(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke([*words, "--help"]) == 0
    printed = capsys.readouterr().out.partition("Examples:")[2].replace("\\\n", " ")
    lines = [line for line in printed.splitlines() if line.startswith("    eos-replicate ")]
    assert lines
    for line in lines:
        used = shlex.split(re.split(" [|>] ", line)[0])[1:]
        command, arguments = command_of(used)
        known = {option for each in command.params for option in [*each.opts, *each.secondary_opts]}
        assert {word for word in arguments if word.startswith("-")} <= known, line


def test_help_lists_every_summary_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [name for name, (_, summary) in main.LAZY.items() if not any(line.endswith(summary) for line in lines)] == []


def test_help_lists_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["--help"]) == 0
    printed = capsys.readouterr().out
    for name, (_, summary) in main.LAZY.items():
        assert name in printed
        assert summary in printed
    for code in ("0 ", "2 ", "3 ", "4 ", "5 ", "70 "):
        assert f"\n    {code}" in printed


@pytest.mark.tier("default")
@pytest.mark.parametrize("arguments", [["--help"], ["schema"], ["validate", "-c", "/nonexistent"]])
def test_no_kafka_client_is_loaded_for_commands_that_do_not_connect(arguments: list[str]) -> None:
    code = (
        "import sys; from cli.main import invoke; invoke(sys.argv[1:]); "
        "sys.exit(any(name in sys.modules for name in ('confluent_kafka', 'kio', 'embedded_broker')))"
    )
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, cwd=ROOT)


@pytest.mark.tier("default")
def test_output_into_a_closed_pipe_makes_no_noise() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "cli.main", "schema"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (120, b"")


@pytest.mark.tier("default")
def test_a_crash_in_a_library_shows_where_each_thread_was(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "cli.main",
        "broker",
        "--data-dir",
        str(tmp_path / "kafka"),
        "--listen",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert "listening" in broker.stdout.readline()
        broker.send_signal(signal.SIGSEGV)
        _, errors = broker.communicate(timeout=30)
    assert broker.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in errors
    assert "in serve" in errors or "in run" in errors


def test_validate_says_what_it_read(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["validate", "-c", str(good)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{good}: valid", "  f: a → b, exactly_once: t"]


def test_validate_as_json_has_every_setting_and_no_secret(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["validate", "-c", str(good), "--json"]) == 0
    printed = capsys.readouterr().out
    answer = json.loads(printed)
    assert answer["valid"] is True
    assert answer["flows"]["f"]["limits"]["transaction_timeout_ms"] == 60_000
    assert (answer["flows"]["f"]["source"], answer["flows"]["f"]["target"]) == ("a", "b")
    assert "s3cret" not in printed


def test_validate_shows_every_fault(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["validate", "-c", str(bad)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"error: {bad}: 3 errors"
    assert lines[1].startswith("  line 3: clusters.b.properties.sasl.password: a secret written in the file")
    assert "  line 5: flows.f.topcs: unknown key; did you mean 'topics'?" in lines


def test_validate_as_json_has_every_fault(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["validate", "-c", str(bad), "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["valid"] is False
    assert {"line": 5, "path": "flows.f.topcs", "message": "unknown key; did you mean 'topics'?"} in answer["errors"]


@pytest.mark.parametrize("command", ["plan", "status", "run"])
def test_an_unknown_flow_is_named_before_anything_connects(
    command: str, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke([command, "-c", str(good), "--flow", "g"]) == 2
    assert capsys.readouterr().err == f"error: {good}: no flow g; it has f\n"


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"].startswith("https://json-schema.org/")

"""docs/reference/commands.md: every command with its options, examples and exit codes, from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from cli import main
from cli.reference.markdown import cell, table

INTRODUCTION = """\
# Commands

Generated from the commands by `python -m cli.reference`; a test checks that it is up to date. Each command prints the
same with `--help`.
"""
PROGRAM = "eos-replicate"
_NAMES = re.compile(
    r"(?<![`\w\[-])"
    r"(--[a-z][a-z-]+|\$[A-Z_]+|[a-z]+-[a-z]+\[[a-z]+\]|[a-z]+(?:_[a-z]+)+)"  # option, variable, package, name
    r"(?![`\w])"
)
_CODE = re.compile(r" *(\d+) +(.+)")


def page() -> str:
    """Write the whole page."""
    return INTRODUCTION + "".join(_section(words, command) for words, command in walk(main.group))


def walk(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield the group and its commands with their words, groups within it too, in the order of --help."""
    yield words, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from walk(command, (*words, name))
        elif command is not None:
            yield (*words, name), command


def _section(words: tuple[str, ...], command: click.Command) -> str:
    name = " ".join((PROGRAM, *words))
    context = click.Context(command, info_name=name)
    usage = " ".join((name, *command.collect_usage_pieces(context)))
    said = inspect.cleandoc(command.help or "")
    parts = [f"\n## {name}\n\n{_quoted(said)}\n\n```text\n{usage}\n```\n"]
    if isinstance(command, click.Group):
        parts.append(_commands(words, command, context))
    parts.append(_options(command))
    parts += [_paragraph(text) for text in (command.epilog or "").strip().split("\n\n")]
    return "\n".join(part for part in parts if part)


def _commands(words: tuple[str, ...], group: click.Group, context: click.Context) -> str:
    rows = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        summary = main.LAZY[name][1] if not words else command.get_short_help_str(200)
        anchor = "-".join((PROGRAM, *words, name))
        rows.append((f"[`{name}`](#{anchor})", summary))
    return table(("command", "what it does"), rows)


def _options(command: click.Command) -> str:
    rows = []
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        context = click.Context(command)
        record = option.get_help_record(context)
        assert record is not None
        rows.append((f"`{cell(record[0])}`", cell(_quoted(record[1]))))
    return table(("option", "meaning"), rows) if rows else ""


def _paragraph(text: str) -> str:
    """Write a paragraph of an epilog: wrapped text, or lines that stand as they are after a heading."""
    if not text.startswith("\b\n"):
        return f"{_quoted(text)}\n"
    heading, *lines = text.removeprefix("\b\n").splitlines()
    if heading == "Exit codes:":
        return table(("exit code", "meaning"), _codes(lines))
    plain = [line.removeprefix("  ") for line in lines]
    return f"{heading}\n\n```text\n" + "\n".join(plain) + "\n```\n"


def _codes(lines: list[str]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for line in lines:
        match = _CODE.fullmatch(line)
        if match:
            rows.append((match[1], cell(_quoted(match[2]))))
        else:
            code, meaning = rows.pop()
            rows.append((code, f"{meaning} {cell(_quoted(line.strip()))}"))
    return rows


def _quoted(text: str) -> str:
    """Write options and names with underscores or brackets as code, so that Markdown leaves them alone."""
    return _NAMES.sub(r"`\1`", text)

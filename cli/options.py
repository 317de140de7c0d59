"""Options and output that commands share."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from replicator.config import Config, Flow
    from replicator.model.errors import ReplicatorError
    from replicator.proof.signing import Seal

Command = TypeVar("Command", bound=Callable[..., Any])
Found = TypeVar("Found")

PATIENCE_MS_MAX = 5_000
"""How long commands for people wait for a cluster; the daemon waits limits.connect_timeout_ms."""
FLOW = "cli.options.flow"
"""Of click's context: the one flow that a command is about."""
WIDTH = 80
"""Columns of a terminal that doesn't tell how many it has."""


_COPIED = re.compile(r"eos-replicate [a-z][^.,;:]*? -c \S+|kafka-transactions\.sh --.*? --start-offset \d+")
_NO_BREAK = "\0"
"""Commands within a text, and what stands for a space in them while it is wrapped."""

config_option = click.option(
    "-c", "--config", "path", required=True, type=click.Path(path_type=Path), help="Flow file (YAML)."
)
flow_option = click.option(
    "--flow", "names", multiple=True, metavar="NAME", help="Only this flow; may be given again. Default: all."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
by_option = click.option("--by", default=None, metavar="NAME", help="Who decides. Default: the user and host.")
meant_option = click.option("--yes-i-mean", "meant", metavar="FLOW", help="The flow's name again: don't ask for it.")
sign_option = click.option(
    "--sign",
    "key",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY",
    help="With --out: sign the report's files with this Ed25519 private key (PEM); see evidence check.",
)
"""Of commands that write a report with --out."""


def flow_options(*between: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Add -c FILE, --flow NAME, which may be given again, and --json, for commands about any number of flows; with what
    stands between the last two in --help."""

    def with_options(command: Command) -> Command:
        options: list[Callable[[Any], Any]] = [config_option, flow_option, *between, json_option]
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


def signed_by(key: Path | None, out: str | None, command: str, flow: str) -> Seal:
    """Return what seals a report of `flow` that this `command` writes to `out`. Raises ConfigError for a key that is
    none.
    """
    from cli import __version__
    from replicator.model.errors import ConfigError
    from replicator.proof.signing import Signer, unsealed

    if key is None:
        return unsealed
    if out is None:
        raise ConfigError("--sign: there is nothing to sign without --out")
    return Signer(key, command, flow, __version__)


def spark_options(command: Command) -> Command:
    """Add --master and --conf, for commands that use Spark."""
    conf = click.option(
        "--conf",
        multiple=True,
        metavar="NAME=VALUE",
        help="A property of Spark; may be given again. Wins over spark.conf of the file.",
    )
    master = click.option("--master", metavar="URL", help="Spark's master. Default: spark.master of the file.")
    return master(conf(command))


def chosen(config: Config, path: Path, names: Sequence[str]) -> list[Flow]:
    """Return the flows named on the command line, or all. Raises ConfigError for an unknown name."""
    from replicator.model.errors import ConfigError

    for name in names:
        if name not in config.flows:
            raise ConfigError(f"{path}: {_no_flow(config, name)}")
    return [flow for name, flow in config.flows.items() if not names or name in names]


def asked_flows(path: Path, names: Sequence[str]) -> list[Flow]:
    """Return the flows of a file that a command of `flow_options` is to ask about; what is logged meanwhile goes to
    stderr. Raises ConfigError."""
    from replicator import config

    log_to_stderr()
    return chosen(config.load(path, os.environ), path, names)


def ask_each(
    flows: Iterable[Flow], ask: Callable[[Flow], Found]
) -> tuple[dict[str, Found], dict[str, ReplicatorError]]:
    """Return what is found of each flow, by its name, or why nothing is known of it. Several are asked side by side."""
    from cli.side_by_side import side_by_side
    from replicator.model.errors import Incident, ReplicatorError

    asked = list(flows)
    found: dict[str, Found] = {}
    failed: dict[str, ReplicatorError] = {}
    for flow, answer in zip(asked, side_by_side(asked, ask), strict=True):
        if isinstance(answer, ReplicatorError):
            failed[flow.name] = answer.of_flow(flow.name) if isinstance(answer, Incident) else answer
        elif isinstance(answer, Exception):
            raise answer
        else:
            found[flow.name] = answer
    return found, failed


def show_failed(failed: Mapping[str, ReplicatorError]) -> None:
    """Say why nothing is known of flows, on stderr."""
    for name, failure in failed.items():
        say(f"error: flow {name}: {failure}", err=True)


def print_found(flows: Sequence[object], failed: Mapping[str, ReplicatorError], **more: object) -> None:
    """Print what `ask_each` gave, as a JSON document on stdout."""
    print_json({"flows": flows, "errors": {name: str(error) for name, error in failed.items()}, **more})


def topics_option(command: Command) -> Command:
    """Add --topics NAME[,NAME], repeatable; see `split`. An empty name is refused: without --topics all are meant."""
    return click.option(
        "--topics",
        multiple=True,
        metavar="NAME[,NAME]",
        callback=named,
        help="Only these source topics; may be given again.",
    )(command)


def named(ctx: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of a repeatable option that takes several names at once. Raises BadParameter for an empty
    name, as a variable of a shell that isn't set leaves it."""
    for text in texts:
        if not all(name.strip() for name in text.split(",")):
            raise click.BadParameter(
                f"{text!r} has an empty name. To mean all, leave {option.opts[0]} out", ctx, option
            )
    return texts


def split(texts: Sequence[str]) -> frozenset[str]:
    """Return the names in values of a repeatable option that takes several at once."""
    return frozenset(name for text in texts for name in text.split(",") if name)


def one(config: Config, path: Path, name: str | None) -> Flow:
    """Return the flow of this name, or the file's only one: errors of the command are told as its. Raises
    ConfigError.
    """
    flow = _one(config, path, name)
    if (command := click.get_current_context(silent=True)) is not None:
        command.meta[FLOW] = flow.name
    return flow


def told_of_flow(error: Exception, command: click.Context) -> Exception:
    """Return an incident with the flow that the command is about in its advice, if it is about one; any other error as
    it is."""
    from replicator.model.errors import Incident

    return error.of_flow(command.meta[FLOW]) if isinstance(error, Incident) and FLOW in command.meta else error


def _one(config: Config, path: Path, name: str | None) -> Flow:
    from replicator.model.errors import ConfigError

    known = ", ".join(sorted(config.flows))
    if name is None and len(config.flows) == 1:
        return next(iter(config.flows.values()))
    if name is None:
        raise ConfigError(f"{path}: --flow is needed; it has {known}")
    if name not in config.flows:
        raise ConfigError(f"{path}: {_no_flow(config, name)}")
    return config.flows[name]


def _no_flow(config: Config, name: str) -> str:
    from replicator.config.messages import suggestion

    return f"no flow {name}" + (suggestion(name, config.flows) or f"; it has {', '.join(sorted(config.flows))}")


def time_ms(option: str, text: str | None) -> int | None:
    """Read a time with zone in ms since 1970. Raises ConfigError that names the option."""
    from replicator.model.errors import ConfigError

    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{option} {text}: expected a time such as 2026-01-31T12:00:00Z") from None
    if when.tzinfo is None:
        raise ConfigError(f"{option} {text}: the time needs a zone, such as 2026-01-31T12:00:00Z")
    return round(when.timestamp() * 1000)


def patience_ms(flow: Flow) -> int:
    """Return the time to wait for each cluster of the flow."""
    return min(flow.limits.connect_timeout_ms, PATIENCE_MS_MAX)


def log_to_stderr() -> None:
    """Log to stderr: what is logged by the way, such as lines of the Kafka client that properties of the file ask for,
    is none of the command's output."""
    from replicator import logs

    logs.configure("text")


def console_for_people() -> Console:
    """Make rich's console; wide enough for a table when the output goes into a file or pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 160
    return Console(highlight=False, width=width)


def print_wrapped(console: Console, text: str, style: str = "", *, bold: str = "") -> None:
    """Print a line for people: on a terminal broken between words and indented, in a file or pipe one line. `bold`: the
    word that it begins with and that stands out."""
    from rich.text import Text

    if console.is_terminal:
        text = wrapped(text, console.width - 1, indent=6)
    line = Text(text, style=style)
    line.stylize("bold", 0, len(bold))
    console.print(line, soft_wrap=True)


def say(text: str, *, err: bool = False, indent: int = 6) -> None:
    """Print lines for people on stdout, or stderr: each is broken as `print_wrapped` does it where the stream is a
    terminal. Loads nothing, so that an error is said at once."""
    stream = sys.stderr if err else sys.stdout
    columns = _columns(stream)
    lines = text.split("\n")
    if columns is not None:
        lines = [wrapped(line, columns - 1, indent=indent) if len(line) >= columns else line for line in lines]
    click.echo("\n".join(lines), file=stream)


def _columns(stream: TextIO) -> int | None:
    """Return the width of a terminal; None of what is none."""
    if not stream.isatty():
        return None
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except OSError:
        return WIDTH


def wrapped(text: str, width: int, *, indent: int) -> str:
    """Return text in lines of at most `width`, all but the first indented. A name or a command that is longer stays
    whole, so that it can be copied: breaking it is left to the terminal."""
    kept = _COPIED.sub(lambda found: found[0].replace(" ", _NO_BREAK), text.lstrip())
    lines = textwrap.fill(
        kept,
        width,
        initial_indent=" " * (len(text) - len(text.lstrip())),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(_NO_BREAK, " ")


def apart(text: str) -> list[str]:
    """Return text, and each command in it by itself, in their order, without the sign that ends the sentence or clause
    there: it would be copied with the command."""
    found, end = [], 0
    for command in _COPIED.finditer(text):
        found += [text[end : command.start()], command[0].rstrip(".,;:")]
        end = command.end()
    found.append(text[end:])
    return [part for it in found if (part := it.strip().lstrip(".,;: "))]


def print_json(value: object) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(value, indent=2))

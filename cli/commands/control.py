"""`eos-replicate pause`, `resume` and `rate`: what an operator sets of a flow while it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import (
    by_option,
    config_option,
    json_option,
    log_to_stderr,
    one,
    patience_ms,
    print_json,
    say,
    split,
    topics_option,
)

if TYPE_CHECKING:
    from replicator.config import Flow
    from replicator.flow.controlling import Change, ChangedSettings
    from replicator.state.run_settings import RunSettings

Said = Callable[["Flow", "ChangedSettings"], str]
"""What is said of a change, by what has changed."""
EXIT_CODES = """
\b
Exit codes:
  0  set, or it was so before
  2  the flow file or the command line is wrong, there is no such flow or
     topic, or the flow has never run
  3  a cluster cannot be reached, or a right is missing
  4  the flow's own topics are lost or unreadable
  5  somebody else writes the flow's control topic all the time
"""


def _flow_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--flow", "name", default=None, metavar="NAME", help="The flow; needed where there are several."
    )(command)


def _record_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--by", default=None, metavar="NAME", help="Who decides. Default: the user and host.")(
        command
    )
    return click.option("--why", default="", metavar="TEXT", help="The reason, for the record.")(command)


@click.command(
    epilog=f"""\b
Examples:
  eos-replicate pause -c flows.yaml --flow orders
  eos-replicate pause -c flows.yaml --flow orders --topics payments \\
      --why "the target is being moved"
{EXIT_CODES}""",
    short_help="Pause a flow that runs, or some of its topics.",
)
@config_option
@_flow_option
@topics_option
@_record_options
@json_option
def pause(path: Path, name: str | None, topics: tuple[str, ...], why: str, by: str | None, as_json: bool) -> int:
    """Pause a flow, or some of its topics: nothing more of them is read until `resume`.

    The pause is written to the target and outlives restarts. A process that runs the flow finishes its transaction, and
    stops copying within about two seconds; it keeps the flow, and commits its positions again so that they don't
    expire. Records that are written meanwhile are copied afterwards. Mind the source's retention. A process that
    doesn't run finds the pause at its next start.
    """
    from cli.commands.incident_resolve import decider
    from replicator.model.printable import printable
    from replicator.state.decisions import WHY_CHARACTERS_MAX
    from replicator.state.run_settings import Paused

    paused = Paused(by=decider(by), at_ms=_now_ms(), why=printable(why)[:WHY_CHARACTERS_MAX])
    chosen = split(topics)
    return _change(path, name, chosen, lambda settings: settings.pause(chosen, paused), as_json, "paused")


@click.command(
    epilog=f"""\b
Examples:
  eos-replicate resume -c flows.yaml --flow orders
  eos-replicate resume -c flows.yaml --flow orders --topics payments
{EXIT_CODES}""",
    short_help="Resume what was paused.",
)
@config_option
@_flow_option
@topics_option
@json_option
def resume(path: Path, name: str | None, topics: tuple[str, ...], as_json: bool) -> int:
    """Resume a flow with all its topics, or only some topics that were paused by name.

    A process that runs the flow goes on within about two seconds, from its positions. While the whole flow is
    paused, none of its topics can be resumed alone.
    """
    chosen = split(topics)

    def change(settings: RunSettings) -> RunSettings:
        from replicator.model.errors import ConfigError
        from replicator.state.run_settings import FLOW

        if chosen and FLOW in settings.paused:
            raise ConfigError("the whole flow is paused: resume it without --topics")
        return settings.resume(chosen)

    return _change(path, name, chosen, change, as_json, _resumed_said)


def _resumed_said(flow: Flow, changed: ChangedSettings) -> str:
    """Say what `resume` has done: of topics that are no longer in the flow file nothing goes on."""
    from replicator.config.routing import taken_out

    let_go = changed.before.paused.keys() - changed.after.paused.keys()
    return "no longer paused" if let_go <= set(taken_out(flow, changed.before.topics)) else "resumed"


@click.command(
    epilog=f"""\b
Examples:
  eos-replicate rate -c flows.yaml --flow orders --bytes-per-s 10MiB
  eos-replicate rate -c flows.yaml --flow orders --records-per-s 500 \\
      --topics payments
  eos-replicate rate -c flows.yaml --flow orders --reset
  eos-replicate rate -c flows.yaml --flow orders
{EXIT_CODES}""",
    short_help="Limit how fast a flow that runs copies.",
)
@config_option
@_flow_option
@topics_option
@click.option("--records-per-s", type=click.IntRange(0, 10**9), default=None, help="At most so many; 0: any number.")
@click.option("--bytes-per-s", default=None, metavar="BYTES", help="At most so many, such as 10MiB; 0: any number.")
@click.option("--reset", is_flag=True, help="As the flow file says, and for topics no limit of their own.")
@by_option
@json_option
def rate(
    path: Path,
    name: str | None,
    topics: tuple[str, ...],
    records_per_s: int | None,
    bytes_per_s: str | None,
    reset: bool,
    by: str | None,
    as_json: bool,
) -> int:
    """Limit how fast a flow copies, all of it or some of its topics; without a limit, show what is set.

    A limit replaces the one before it, and the `rate` of the flow file. Bytes are those of keys, values and headers. It
    holds on average: one second of it is saved up, and a transaction that was larger is made up for. For topics it is
    the limit of each. It is written to the target, stands over restarts, and holds within about two seconds.
    """
    from cli.commands.incident_resolve import decider
    from replicator.state.run_settings import RateLimit

    chosen = split(topics)
    if reset and (records_per_s is not None or bytes_per_s is not None):
        raise click.UsageError("--reset takes no limit")
    if not reset and records_per_s is None and bytes_per_s is None:
        return _change(path, name, chosen, lambda settings: settings, as_json, "")
    limit = RateLimit(
        records_per_s=records_per_s or None, bytes_per_s=_bytes(bytes_per_s) or None, by=decider(by), at_ms=_now_ms()
    )
    if reset:
        return _change(path, name, chosen, lambda it: it.limit(chosen, None), as_json, _reset_said)
    return _change(path, name, chosen, lambda it: it.limit(chosen, limit), as_json, "set")


def _reset_said(flow: Flow, changed: ChangedSettings) -> str:
    """Say what `--reset` has done: an operator's "no limit" may have been all that there was to take away."""
    before, after = changed.before.rates, changed.after.rates
    gone = any(limit.limits for at, limit in before.items() if at not in after)
    return "the limit was taken away" if gone else "there is no limit by an operator any more"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _bytes(text: str | None) -> int:
    """Read a number of bytes, with a unit or without. Raises UsageError."""
    from replicator.config.units import BYTES

    if text is None:
        return 0
    try:
        found = BYTES.read(int(text) if text.isdecimal() else text)
    except ValueError as error:
        raise click.UsageError(f"--bytes-per-s {text}: {error}") from None
    if not isinstance(found, int) or found < 0:
        raise click.UsageError(f"--bytes-per-s {text}: expected a number of bytes, such as 10MiB")
    return found


def _change(
    path: Path,
    name: str | None,
    topics: frozenset[str],
    change: Change,
    as_json: bool,
    done: str | Said,
) -> int:
    """Change the settings, and show them. `done`: what is said of a change, by what has changed or whatever has."""
    from replicator import config
    from replicator.flow.controlling import change_settings

    log_to_stderr()
    flow = one(config.load(path, os.environ), path, name)
    changed = change_settings(flow, topics, change, patience_ms(flow))
    if as_json:
        print_json(_as_json(flow, changed))
    else:
        _show(flow, topics, changed, done)
    return 0


def _as_json(flow: Flow, changed: ChangedSettings) -> Mapping[str, object]:
    from replicator.config.routing import taken_out
    from replicator.state.run_settings import rate_of

    after = changed.after
    return {
        "flow": flow.name,
        "changed": not after.same(changed.before),
        "paused": {at: asdict(it) for at, it in after.paused.items()},
        "rates": {at: asdict(it) for at, it in after.told(rate_of(flow)).items()},
        "taken_out": taken_out(flow, after.topics),
    }


def _show(flow: Flow, topics: frozenset[str], changed: ChangedSettings, done: str | Said) -> None:
    from cli.commands.status import TAKEN_OUT, said_of
    from replicator.config.routing import taken_out
    from replicator.state.run_settings import FLOW, rate_of

    after = changed.after
    rates = after.told(rate_of(flow))
    said = "nothing is changed"
    if not after.same(changed.before):
        said = done if isinstance(done, str) else done(flow, changed)
    say(f"{flow.name}: {said}")
    lines = said_of(after.paused, rates, taken_out(flow, after.topics))
    if not rates:
        lines.append("nothing is limited" if lines else "nothing is paused, and nothing is limited")
    elif FLOW not in rates:
        lines.append("the flow as a whole has no limit")
    let_go = (topics | changed.before.topics) - after.topics
    lines += [f"{topic} is {TAKEN_OUT}: nothing of it is copied" for topic in taken_out(flow, let_go)]
    for line in lines:
        say(f"  {line}")

"""`eos-replicate incident resolve`: what an operator decides about one incident."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import by_option, chosen, flow_options, log_to_stderr, patience_ms, print_json, say, show_failed

if TYPE_CHECKING:
    from replicator.config import Config, Flow
    from replicator.flow.deciding import Resolved
    from replicator.inspect.incidents import OpenIncident
    from replicator.model.errors import ReplicatorError
    from replicator.state.decisions import OperatorDecision
    from replicator.state.occurrences import Occurrence

WAIT_S = 10.0
BY_MAP = "map"
REFUSED = 1


@click.command(
    epilog="""\b
Examples:
  eos-replicate incident resolve 3f2a9c1d8e70 --skip \\
      --why "no longer needed" -c flows.yaml
  eos-replicate incident resolve 3f2a --retry -c flows.yaml
  eos-replicate incident resolve 3f2a --adopt map \\
      --why "position expired" -c flows.yaml

\b
Exit codes:
  0  decided
  1  refused, and nothing was written: no such incident, decided before,
     outdated, the command doesn't apply to it, the source has no such
     offset, or the map doesn't say where to go on; or the facts had
     changed before the flow acted; or the partition was checked again
     and is still stopped, by an incident with another id
  2  the flow file or the command line is wrong
  3  a cluster cannot be reached, or a right is missing
  4  the flow's own topics are lost or unreadable
  5  somebody else writes the flow's control topic all the time
""",
    short_help="Decide about one incident.",
)
@click.argument("id_", metavar="ID")
@click.option("--retry", "commands", flag_value="retry", help="Check the partition again: the cause was removed.")
@click.option("--skip", "commands", flag_value="skip", help="Leave out what can't be copied, and go on after it.")
@click.option(
    "--set-aside",
    "commands",
    flag_value="set-aside",
    help="The same for one record, which is kept in the topic __eos.<flow>.aside. Key and value of a record above "
    "limits.record_bytes_max are not kept.",
)
@click.option(
    "--restart-topic",
    "commands",
    flag_value="restart-topic",
    help="Copy the topic that is there now from its beginning, all partitions of it. Copies of the former topic stay "
    "on the target.",
)
@click.option(
    "--adopt",
    "adopted",
    default=None,
    metavar="OFFSET",
    help="Copy from this source offset on. The records of the target count as the copy of everything before it. map: "
    "the offset that the flow's offset map has, if that is proven.",
)
@click.option("--why", default="", metavar="TEXT", help="The reason, for the record. Needed for all but --retry.")
@by_option
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the flow to act.",
)
@flow_options()
def resolve(
    id_: str,
    commands: str | None,
    adopted: str | None,
    why: str,
    by: str | None,
    wait_s: float,
    path: Path,
    names: tuple[str, ...],
    as_json: bool,
) -> int:
    """Decide about one incident of a partition. ID is that of `incident list`, or its beginning.

    The decision is written to the target, with who has made it and why. A running flow acts on it within about a
    second, a stopped one at its next start: once, in one transaction with the position that it moves. An incident that
    no worker has found yet can be decided after a worker has found it.

    --skip leaves out the records that `incident show` names, and no others. From then on `status` and `reconcile` list
    them, and don't count them as a difference. If the source was truncated, --skip asks the source where its log was
    cut, and goes back to that offset: copies of records after the cut stay on the target. --adopt gives a position to
    a partition that has none: the partition is copied exactly once from the offset that you name, and `status` and
    `reconcile` say that the flow has copied nothing before it. --restart-topic does the same at the beginning of a
    topic that was created again: its records are written after those that are there.

    On a paused topic the flow acts at once on --retry, --set-aside and --skip. --restart-topic, --adopt, and --skip
    after a truncation wait for `resume`.
    """
    from replicator import config
    from replicator.flow import deciding
    from replicator.model.commands import Command
    from replicator.model.printable import printable

    if (commands is None) is (adopted is None):
        raise click.UsageError("say what is decided: --retry, --skip, --set-aside, --restart-topic or --adopt OFFSET")
    command = Command.ADOPT if commands is None else Command(commands)
    if command.needs_reason and not why:
        does = "leaves records out for good" if command.moves else "can't be checked by the flow"
        if command is Command.RESTART_TOPIC:
            does = "writes a topic's records after those of another one"
        raise click.UsageError(f"{command.option} {does}: say why (--why TEXT)")
    offset = _offset(adopted)
    log_to_stderr()
    loaded = config.load(path, os.environ)
    flow, start = _named(id_, loaded, chosen(loaded, path, names))
    wanted = deciding.DecisionWanted(start, command, decider(by), printable(why), offset)
    done = deciding.resolve(flow, wanted, connect_timeout_ms=patience_ms(flow), wait_s=wait_s)
    if as_json:
        print_json(_as_json(flow, done))
    else:
        _show(flow, done)
    return REFUSED if done.still is not None or _in_vain(done.decision, done.occurrence) else 0


def _in_vain(decision: OperatorDecision, it: Occurrence) -> bool:
    """Return whether the facts were others when the flow came to act, so that nothing was done of what was decided."""
    from replicator.state.occurrences import Ending

    return decision.command.needs_reason and it.closing is not None and it.closing.effect is Ending.RETRIED


def _offset(adopted: str | None) -> int | None:
    """Return the offset that was typed; None where the map is to say it, or nothing is adopted."""
    if adopted is None or adopted == BY_MAP:
        return None
    if not (adopted.isascii() and adopted.isdecimal()):
        raise click.UsageError(f"--adopt takes an offset, or {BY_MAP}, not {adopted}")
    return int(adopted)


def decider(by: str | None) -> str:
    """Say who decides, as it is put on record. Raises UsageError for the name that stands for the flow file."""
    from replicator.model.printable import printable
    from replicator.state.decisions import BY_POLICY

    found = printable(by or whoami())
    if found.strip() == BY_POLICY:
        raise click.UsageError(f"--by {BY_POLICY}: so is called what the flow file has decided")
    return found


def whoami() -> str:
    """Return the user and host; in a container whose user has no name, its number."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _named(start: str, loaded: Config, flows: Sequence[Flow]) -> tuple[Flow, str]:
    """Find the flow that has an incident with this id, and how the id begins under which a lane has written it down: it
    may have been shown with another one before. Raises NotDecided where none has, or several have."""
    from replicator.flow import deciding
    from replicator.model.errors import ReplicatorError
    from replicator.state.decisions import NotDecided, Objection

    fitting: dict[str, Flow] = {}
    open_: list[str] = []
    failed: dict[str, ReplicatorError] = {}
    for flow in flows:
        try:
            found = deciding.occurrences_of(flow, patience_ms(flow))
        except ReplicatorError as error:
            failed[flow.name] = error
            continue
        fitting |= {it.id: flow for it in found if it.id.startswith(start.lower())}
        open_ += [it.id for it in found if it.is_open]
    of = {flow.name: flow for flow in fitting.values()}
    if len(of) == 1:
        return next(iter(of.values())), start
    if of:
        show_failed(failed)
        raise NotDecided(Objection.AMBIGUOUS, f"ids of several flows begin with {start}: {', '.join(sorted(of))}")
    if (first := _shown_before(start, loaded, flows)) is not None:
        return first
    show_failed(failed)
    if failed:
        raise next(iter(failed.values()))
    known = ", ".join(sorted(open_)) or "none"
    raise NotDecided(Objection.UNKNOWN, f"no incident of a partition has the id {start}; open: {known}")


def _shown_before(start: str, loaded: Config, flows: Sequence[Flow]) -> tuple[Flow, str] | None:
    """Find the flow of the incident that had this id before a lane has written it down, and the one that it has now;
    None where there is none such. Raises NotDecided for one that no lane has written down: with what to do instead."""
    from cli.commands.status import ask
    from replicator.inspect.incidents import matching, open_incidents
    from replicator.state.decisions import NotDecided, Objection

    shown, _ = ask(loaded, flows)
    fitting = matching([it for status in shown for it in open_incidents(status)], start)
    if len(fitting) != 1:
        return None
    (it,) = fitting
    if it.occurrence:
        return next(flow for flow in flows if flow.name == it.flow), it.id
    other = next(status.other_settings for status in shown if status.flow == it.flow)
    raise NotDecided(Objection.WRONG_COMMAND, why_undecided(it, other))


def why_undecided(it: OpenIncident, other_settings: str) -> str:
    """Say why nothing can be decided about an incident that no lane has written down, and what to do instead.

    `other_settings`: why workers run other settings than the flow file's, as of `FlowStatus`. They may never find it.
    """
    from replicator.model.commands import commands_for

    if not commands_for(it.name):
        return f"no command applies to {it.name} of {it.where} now. {it.advice}"
    why = f"{it.name} of {it.where} can be decided about only after a worker has found it"
    again = "type the same again: the id stays valid"
    if other_settings:
        return f"{why}. Workers run with other settings than this flow file: {other_settings}. After that {again}"
    return f"{why}. Run the flow, and {again}"


def _as_json(flow: Flow, done: Resolved) -> Mapping[str, object]:
    it, closing = done.occurrence, done.occurrence.closing
    return {
        "flow": flow.name,
        "decision": done.decision.content(),
        "acted": None if closing is None else closing.effect.value,
        "moved": None if it.moved is None else [*it.moved],
        "paused": done.paused or None,
        "kept": None if closing is None or not closing.kept else closing.kept,
        "also_decided": [
            {"id": each.id, "topic": each.source.topic, "partition": each.source.partition} for each in done.others
        ],
        "still_stopped": None if done.still is None else {"id": done.still.id, "name": done.still.name},
    }


def _show(flow: Flow, done: Resolved) -> None:
    from replicator.model import names
    from replicator.model.commands import Command
    from replicator.model.counting import named

    decision, it, still = done.decision, done.occurrence, done.still
    of = [f"[{each.source.partition}]" for each in (it, *done.others)]
    say(f"{it.id}  {it.name} of {it.source.topic}{named(of)}: {decision.said}")
    closing = it.closing
    if closing is None and done.paused:
        say(f"The flow acts on it after eos-replicate resume: {done.paused}.")
    elif closing is None:
        say("The flow has not acted on it yet. One that doesn't run acts at its next start.")
    elif _in_vain(decision, it):
        say("The facts had changed before the flow acted: nothing was done. incident list shows what is open now.")
    elif it.moved is not None and decision.goes_back:
        say(f"The source has lost its records of offsets {it.moved[1]} to {it.moved[0] - 1}: their copies stay.")
        say(f"It is copied from source offset {it.moved[1]} on. The new copies follow them.")
    elif it.moved is not None and decision.command is Command.RESTART_TOPIC:
        which = f"{it.source}" if done.others else "It"
        say(f"{which} is copied from source offset {it.moved[1]} on, after what the target had.")
        if done.others:
            say("The others follow, each from the beginning of its own log: status shows them.")
    elif it.moved is not None and decision.command is Command.ADOPT:
        say(f"It is copied from source offset {it.moved[1]} on.")
    elif it.moved is not None:
        say(f"The position went from source offset {it.moved[0]} to {it.moved[1]}.")
        if closing.kept:
            say(_kept_said(names.aside_topic(flow.name), closing.kept))
    elif still is not None:
        say(f"The partition was checked again, and {still.name} still stops it: the incident is {still.id} now.")
    elif closing.decision is not None:
        say("The partition was checked again: incident list shows whether anything still stops it.")
    else:
        say("Its cause went away meanwhile; nothing was left out.")


def _kept_said(topic: str, kept: str) -> str:
    """Say what of the record stands in the flow's topic: who decided may take "it is set aside" for "nothing is
    lost".
    """
    from replicator.lane.aside import Kept

    if kept != Kept.STUB:
        return f"The record is in {topic}: {kept}."
    return (
        f"The record's key and value were not kept: it is larger than limits.record_bytes_max. In {topic} are only "
        "headers that say where it was."
    )

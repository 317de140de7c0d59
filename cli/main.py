"""`eos-replicate`: parses, dispatches, and is the one place where exceptions become exit codes."""

from __future__ import annotations

import faulthandler
import importlib
import sys
import traceback
from collections.abc import Sequence

import click

from cli import __version__, streams
from cli.leaving import Leaving
from cli.suggesting import SuggestingGroup
from replicator.flow import early_signals

LAZY: dict[str, tuple[str, str]] = {
    "run": ("cli.commands.run:run", "Copy topics until stopped."),
    "validate": ("cli.commands.validate:validate", "Check a flow file, without connecting."),
    "plan": ("cli.commands.plan:plan", "Connect and say what would happen, changing nothing."),
    "rights": ("cli.commands.rights:rights", "All rights that flows need, also as kafka-acls commands."),
    "status": ("cli.commands.status:status", "Positions and lag of every partition."),
    "workers": ("cli.commands.workers:workers", "Who shares a flow, and which lanes each worker has."),
    "apply": ("cli.commands.apply:apply", "Have workers run with a file that the flow has had before."),
    "top": ("cli.commands.top:top", "Flows of a running process, live in a terminal."),
    "incident": ("cli.commands.incident:incident", "Facts that need a decision: list, show, resolve."),
    "pause": ("cli.commands.control:pause", "Pause a flow that runs, or some of its topics."),
    "resume": ("cli.commands.control:resume", "Resume what was paused."),
    "rate": ("cli.commands.control:rate", "Limit how fast a flow that runs copies."),
    "position": ("cli.commands.position:position", "Positions of a flow: show, export, set them."),
    "rebuild-control": (
        "cli.commands.rebuild_control:rebuild_control",
        "Make a flow's control topic anew that was lost.",
    ),
    "adopt-mm2": ("cli.commands.adopt_mm2:adopt_mm2", "Go on where MirrorMaker 2 has ended."),
    "backfill": ("cli.commands.backfill:backfill", "Copy a flow's history in bulk, before run (Spark)."),
    "reconcile": ("cli.commands.reconcile:reconcile", "Check that both sides of a flow hold the same records."),
    "verify": ("cli.commands.verify:verify", "Check that each copy stands where the offset map says."),
    "evidence": ("cli.commands.evidence:evidence", "Check a report that was signed, offline."),
    "translate": ("cli.commands.translate:translate", "Where consumers go on at the other side: translate offsets."),
    "groups": ("cli.commands.groups:groups", "Offsets of the consumer groups that a flow syncs."),
    "schemas": ("cli.commands.schemas:schemas", "Compare the schema registries of source and target."),
    "coupled": ("cli.commands.coupled:coupled", "Which topics of a flow transactions tie together."),
    "failover": ("cli.commands.failover:failover", "The source is gone: stop a flow, say what the target has."),
    "schema": ("cli.commands.schema:schema", "Print the flow file's JSON schema for editors."),
    "demo": ("cli.commands.demo:demo", "Copy between two brokers, kill worker and target, compare."),
    "demo-spark": (
        "cli.commands.demo_spark:demo_spark",
        "The same for backfill and reconcile (Spark).",
    ),
    "broker": ("cli.commands.broker:broker", "Run the embedded Kafka broker alone."),
    "log": ("cli.commands.log:log", "Show the content of the embedded broker's files."),
    "simulate": ("cli.commands.simulate:simulate", "Run the embedded broker in simulated time, with faults."),
}
"""Command → its module and its line in --help. A module is imported only when its command is used."""

EPILOG = """\b
Examples:
  eos-replicate demo
  eos-replicate validate -c flows.yaml
  eos-replicate run -c flows.yaml

\b
Exit codes:
  0   stopped, or done
  1   reconcile: the sides differ; verify: the target isn't what its map
      says; log dump: something is damaged;
      simulate: a fault was found; demo: not exact;
      incident show: there is no such incident;
      translate: an offset has no translation;
      groups: the offsets of some groups aren't in sync;
      schemas: the target's registry lacks some schemas;
      failover: the target lacks records, or that isn't known;
      incident resolve, position set, adopt-mm2, rebuild-control: refused;
      evidence check: a report was altered
  2   bad configuration or usage
  3   a cluster cannot be reached, or a right is missing
  4   an incident that needs a decision; schemas: ids clash
  5   another process or generation has taken the flow over
  6   failover: a hook failed
  70  a bug
  120 the result can't be written to standard output
  130 interrupted
"""

BUG = 70
INTERRUPTED = 130


class LazyGroup(SuggestingGroup):
    """Imports a command's module when the command is used, not when help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(LAZY)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in LAZY:
            return None
        module, _, attribute = LAZY[name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Invoke as click does; an incident has the command's flow in its advice."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            from cli.options import told_of_flow

            told = told_of_flow(error, ctx)
            if told is error:
                raise
            raise told from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in LAZY.items()])


@click.command(cls=LazyGroup, epilog=EPILOG)
@click.version_option(__version__, message="%(prog)s %(version)s")
def group() -> None:
    """Copy Kafka topics from one cluster to another exactly once, and check that both sides are equal."""


def invoke(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Commands return an int, or None for 0."""
    try:
        result = group.main(args=list(arguments), prog_name="eos-replicate", standalone_mode=False)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place that turns any exception into an exit code
        return _failed(error)
    return result if isinstance(result, int) else 0


def entry() -> None:
    """Run as the console script. A crash within a library written in C shows where each thread was."""
    if sys.argv[1:2] == ["run"]:
        early_signals.listen()
    streams.prepare()
    leaving = Leaving()
    faulthandler.enable()
    leaving.exit(invoke(sys.argv[1:]))


def _failed(error: Exception) -> int:
    """Write one clear line for what the replicator raises on purpose; a traceback only for a bug."""
    from replicator.model.errors import Fatal, ReplicatorError

    if isinstance(error, ReplicatorError) and not isinstance(error, Fatal):
        from cli.options import say

        say(f"error: {error}", err=True)
        return error.exit_code
    traceback.print_exception(error)
    click.echo("error: this is a bug in eos-replicate; please report it with the lines above", err=True)
    return BUG


if __name__ == "__main__":
    entry()

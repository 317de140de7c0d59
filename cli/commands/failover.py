"""`eos-replicate failover`: the source is gone, and consumers go on at the target."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.commands.incident_resolve import decider
from cli.commands.position_set import confirmed
from cli.options import (
    by_option,
    config_option,
    console_for_people,
    json_option,
    log_to_stderr,
    meant_option,
    named,
    one,
    patience_ms,
    print_json,
    say,
    split,
    topics_option,
)

if TYPE_CHECKING:
    from replicator.config import Flow
    from replicator.failover.failover import FailoverRun
    from replicator.failover.hook_runner import HookCheck, HookRunner
    from replicator.failover.steps import FailoverStep, Steps
    from replicator.failover.verdict import FailoverVerdict
    from replicator.flow.topics import ControlPlane

    MakeRun = Callable[[Steps], tuple[FailoverRun, HookRunner]]

EPILOG = """\b
Examples:
  eos-replicate failover -c flows.yaml --flow orders --rehearse
  eos-replicate failover -c flows.yaml --flow orders --out verdict.json
  eos-replicate failover -c flows.yaml --flow orders --yes-i-mean orders
  eos-replicate failover -c flows.yaml --flow orders --show --html last.html
  eos-replicate failover -c flows.yaml --flow orders --undo
  eos-replicate failover -c flows.yaml --flow orders --topics payments,bills
  eos-replicate failover -c flows.yaml --flow orders --undo --topics payments

\b
Exit codes:
  0    done, or rehearsed or shown; all is there that the source had when
       its ends were noted last
  1    done, or rehearsed or shown; the target lacks something, or that
       isn't known; or it was not confirmed
  2    the flow file or the command line is wrong; the flow has never run,
       or has never copied a topic; --split is missing; --show: there is no
       verdict
  3    the target cannot be reached, or a right is missing
  4    the flow's own topics are lost or unreadable, or the last verdict
       can't be read back as it was written
  5    a backfill or repair has the flow, or somebody has undone the
       failover, or repeated it during --undo, meanwhile; --topics: the
       whole flow is failed over
  6    a hook of the flow file failed, or can't be started; the message says
       which steps were done
  130  interrupted: the same command, or --undo, goes on from there
"""
HOOK_FAILED = 6


@dataclass(frozen=True, slots=True)
class FailoverOutputs:
    """Where the verdict goes. `out`, `page`: files, JSON and HTML."""

    as_json: bool
    out: Path | None
    page: Path | None

    def check(self) -> None:
        """Look whether the files can be written. Raises ConfigError, UsageError."""
        from cli.commands.failover_show import check_file

        if self.out is not None and self.page is not None and self.out.resolve() == self.page.resolve():
            raise click.UsageError("--out and --html name the same file")
        for each in (self.out, self.page):
            if each is not None:
                check_file(each)

    def put(
        self, verdict: FailoverVerdict, *, stands: bool | None = None, hooks: Sequence[HookCheck] | None = None
    ) -> int:
        """Put the verdict there; return the exit code. `stands`: of a verdict that was read back, whether the failover
        was not undone since. `hooks`: what a rehearsal says of them."""
        from cli.commands.failover_show import show, show_hooks, write_json, write_page

        if self.out is not None:
            write_json(self.out, verdict)
        if self.page is not None:
            write_page(self.page, verdict, stands=stands is not False)
        if self.as_json:
            known = {} if stands is None else {"stands": stands}
            checked = {} if hooks is None else {"hooks": [it.as_json() for it in hooks]}
            print_json({**verdict.as_json(), **known, **checked})
        else:
            console = console_for_people()
            show(console, verdict, stands=stands is not False)
            show_hooks(console, hooks or ())
        if any(it.problem for it in hooks or ()):
            return HOOK_FAILED
        return 0 if verdict.complete else 1


@click.command(epilog=EPILOG)
@config_option
@click.option("--flow", "name", default=None, metavar="NAME", help="The flow; needed where there are several.")
@topics_option
@click.option(
    "--split",
    "may_split",
    multiple=True,
    metavar="TOPIC",
    callback=named,
    help="With --topics: also without the topics to which transactions tie this one (repeatable).",
)
@click.option("--rehearse", is_flag=True, help="Change nothing: say what the verdict would be now.")
@click.option("--undo", is_flag=True, help="Have the flow run again from its positions.")
@click.option("--show", "shown", is_flag=True, help="Change nothing: show the last verdict, as it was kept.")
@click.option("--no-hooks", is_flag=True, help="Run none of the commands of failover in the flow file.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the verdict as JSON."
)
@click.option(
    "--html", "page", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it as a page."
)
@by_option
@meant_option
@json_option
def failover(
    path: Path,
    name: str | None,
    topics: tuple[str, ...],
    may_split: tuple[str, ...],
    rehearse: bool,
    undo: bool,
    shown: bool,
    no_hooks: bool,
    out: Path | None,
    page: Path | None,
    by: str | None,
    meant: str | None,
    as_json: bool,
) -> int:
    """Stop a flow, or some of its topics, when the source is gone, and say what the target has.

    All workers are fenced, and whoever starts the flow again copies nothing and keeps its positions, until --undo. The
    source is not asked for anything, but with --topics. The verdict says for each partition what is known not to be
    copied, and where consumer groups stand; it can't know what was written at the source after its ends were noted
    last.

    Commands of the flow file (failover.on_freeze, on_verdict, on_undo) are run at their steps. They are run again with
    each call.

    With --topics only these are stopped, and the flow goes on with all others, whatever runs it. The source is asked
    which topics transactions tie together, if it answers. --undo gives back the topics that it names.
    """
    from replicator import config
    from replicator.failover.steps import Steps
    from replicator.flow.topics import ControlPlane

    log_to_stderr()
    flow = one(config.load(path, os.environ), path, name)
    if rehearse + undo + shown > 1:
        raise click.UsageError("--rehearse and --show change nothing, --undo does: one of them")
    chosen, apart = split(topics), split(may_split)
    if shown and chosen:
        raise click.UsageError("--show shows the last verdict, whatever it is of")
    if unneeded := sorted(set(apart) - (set() if undo else set(chosen))):
        raise click.UsageError(f"--split {unneeded[0]}: it isn't among the --topics that are to be failed over")
    if undo and (out is not None or page is not None):
        raise click.UsageError("--undo has no verdict to write")
    if meant is not None and meant != flow.name:
        raise click.UsageError(f"--yes-i-mean {meant}: the flow is {flow.name}")
    ask = not (rehearse or shown) and meant is None
    if ask and (as_json or not confirmed(flow.name, _consequence(flow, chosen, undo=undo))):
        say("not confirmed: nothing was changed (--yes-i-mean FLOW does without being asked)", err=True)
        return 1
    outputs = FailoverOutputs(as_json, out, page)
    outputs.check()
    with ControlPlane(flow, connect_timeout_ms=patience_ms(flow)) as plane:
        plane.target.connect()
        if shown:
            return _show(flow, plane, outputs)
        make = partial(_made, flow, plane, decider(by), topics=chosen, no_hooks=no_hooks)
        if chosen and not undo:
            from cli.commands.failover_split import check_split

            make(Steps())[0].look()  # topics that the flow doesn't have, before the source is asked
            check_split(flow, plane, chosen, apart)
        if rehearse:
            return _rehearse(make, outputs)
        shown_as = f"{flow.name} ({', '.join(sorted(chosen))})" if chosen else flow.name
        if undo:
            of_topics = {"topics": sorted(chosen)} if chosen else {}
            return _undo(shown_as, make, {"flow": flow.name, **of_topics} if as_json else None)
        return _run(shown_as, make, outputs)


def _consequence(flow: Flow, topics: Collection[str], *, undo: bool) -> str:
    """Say what a call does: to the whole flow, or to which topics of it."""
    if not topics:
        does = "copies again, all its topics" if undo else "stops, all its topics"
        return f"The whole flow {flow.name} {does}; the target is {flow.target.name}."
    listed, does = ", ".join(sorted(topics)), "copied again" if undo else "stopped"
    return f"Of flow {flow.name} only these topics are {does}, and the others go on: {listed}."


def _made(
    flow: Flow, plane: ControlPlane, by: str, steps: Steps, *, topics: Collection[str], no_hooks: bool
) -> tuple[FailoverRun, HookRunner]:
    from replicator.failover.failover import FailoverRun
    from replicator.failover.hook_runner import HookRunner

    hooks = HookRunner(flow.failover, steps, left_out=no_hooks)
    return FailoverRun(flow, plane, by, steps, hooks, topics), hooks


def _show(flow: Flow, plane: ControlPlane, outputs: FailoverOutputs) -> int:
    from replicator.failover.cutovers import last_verdict

    kept = last_verdict(flow, plane)
    return outputs.put(kept.verdict, stands=kept.stands)


def _rehearse(make: MakeRun, outputs: FailoverOutputs) -> int:
    from replicator.failover.steps import Steps

    run, hooks = make(Steps())
    return outputs.put(run.rehearse(), hooks=hooks.checked())


def _run(flow: str, make: MakeRun, outputs: FailoverOutputs) -> int:
    from replicator.failover.steps import RUN
    from replicator.model.errors import HookFailed, ReplicatorError, TakenOver

    failed: HookFailed | None = None
    with _watched(flow, RUN) as steps:
        run, _ = make(steps)
        try:
            run.run()
        except HookFailed as error:
            failed = error
        except (ReplicatorError, KeyboardInterrupt) as error:
            if run.frozen is not None and not isinstance(error, TakenOver):  # which says what stands
                verdict = "has no new verdict" if run.verdict is None else "its verdict is kept"
                said = f"{_standing(flow, run)}, and {verdict}"
                say(f"{said}: the same command goes on from there, or --undo", err=True)
            raise
    code = HOOK_FAILED if run.verdict is None else outputs.put(run.verdict)
    if failed is not None:  # what stands is shown before
        raise failed
    return code


def _undo(flow: str, make: MakeRun, facts: dict[str, object] | None) -> int:
    """Undo a failover. `facts`: what the JSON says besides the generation; None: no JSON."""
    from replicator.failover.steps import UNDO
    from replicator.model.errors import HookFailed, ReplicatorError, TakenOver

    with _watched(flow, UNDO) as steps:
        run, _ = make(steps)
        try:
            opened = run.undo()
        except (ReplicatorError, KeyboardInterrupt) as error:
            if run.frozen is not None and not isinstance(error, HookFailed | TakenOver):  # which say what stands
                say(f"{_standing(flow, run)}: the same command goes on from there", err=True)
            raise
    number = opened.number if opened is not None else None
    text = "is not failed over" if opened is None else f"runs again, under generation {number}"
    say(f"{flow} {text}") if facts is None else print_json({**facts, "generation": number})
    return 0


def _standing(flow: str, run: FailoverRun) -> str:
    """Say what is known of the flow when a call ends early."""
    assert run.frozen is not None, "asked where the flow was stopped only"
    if run.reopening:
        return f"{flow} was being opened again: it runs, or is failed over still (generation {run.frozen.number})"
    return f"{flow} is failed over (generation {run.frozen.number})"


@contextmanager
def _watched(flow: str, steps: Sequence[FailoverStep]) -> Iterator[Steps]:
    """Show the steps while the block runs."""
    from cli.captured import console_for_progress
    from cli.commands.failover_watch import StepWatch
    from replicator import failpoints
    from replicator.failover.steps import Steps

    failpoint = failpoints.parse(os.environ.get(failpoints.VARIABLE, ""))
    with StepWatch(flow, steps, console_for_progress()) as watch:
        yield Steps(watch, failpoint)

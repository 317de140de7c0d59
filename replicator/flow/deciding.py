"""Writes what an operator has decided about an incident into the flow's control topic. Called by `incident resolve`.

The decision is taken by what both of the flow's own topics say once the control id is initialised: of two operators at
once one writes, and the other reads what was written. Neither cluster's other topics are touched; the source isn't
asked for anything, except where copying is to go on at an offset that somebody has typed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import structlog

from replicator.config import Flow
from replicator.failpoints import Failpoint, nothing
from replicator.flow.occupied import check_topics
from replicator.flow.position_by_map import indexed_copy, position_by_map
from replicator.flow.retrying import OTHERS_S, beside_others
from replicator.flow.topics import ControlPlane, aside_topic
from replicator.flow.truncation import from_the_cut_on
from replicator.kafka.admin import TopicSpec
from replicator.kafka.topic_questions import raised
from replicator.model import names
from replicator.model.commands import Command
from replicator.model.errors import (
    Fatal,
    Incident,
    NotAllowed,
    ReplicatorError,
    Retriable,
    Unreachable,
)
from replicator.model.names import process_name
from replicator.state.control import Changer, ControlRecord, TopicRecord
from replicator.state.control_topic import Control
from replicator.state.decisions import AdoptedSides, NotDecided, Objection, OperatorDecision, decide, restarted
from replicator.state.generation import Generation
from replicator.state.occurrences import Occurrence
from replicator.state.run_settings import FLOW, RunSettings

POLL_S = 0.2
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DecisionWanted:
    """What an operator wants: a command for the occurrence whose id begins with `start`. `adopted`: the source offset
    at which copying goes on, of the command that adopts what the target has; None: as the offset map says."""

    start: str
    command: Command
    by: str
    why: str
    adopted: int | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """What was decided, and the occurrence as it is by then. `still`: what stops the partition after a retry, if it was
    found in the transaction that closed the occurrence: another one, with an id of its own. `paused`: by whom it is
    what the decision waits for, see `pause_before`; empty where nothing is. `others`: occurrences of which the same was
    decided with it, of other partitions of the topic."""

    decision: OperatorDecision
    occurrence: Occurrence
    still: Occurrence | None = None
    paused: str = ""
    others: tuple[Occurrence, ...] = ()


def occurrences_of(flow: Flow, connect_timeout_ms: int) -> Sequence[Occurrence]:
    """Read all occurrences of a flow's incidents, open and closed. Raises Unreachable, NotAllowed, Retriable,
    Incident.
    """
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as plane:
        plane.target.connect()
        claims = plane.state.claims_if_any()
        return () if claims is None else claims.occurrences


def resolve(flow: Flow, wanted: DecisionWanted, *, connect_timeout_ms: int, wait_s: float) -> Resolved:
    """Write a decision, and wait at most `wait_s` seconds for a lane to act on it; what has come of it by then.

    Raises NotDecided; Incident of the flow's own topics; Unreachable, NotAllowed, Retriable, Fenced.
    """
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as plane:
        plane.target.connect()
        decision, *more = _written(flow, plane, wanted)
        with_it = {each.occurrence for each in more}
        deadline_s = time.monotonic() + wait_s
        while True:
            occurrences = plane.state.claims().occurrences
            (it,) = [each for each in occurrences if each.id == decision.occurrence]
            if not it.is_open or time.monotonic() >= deadline_s:
                paused = pause_before(decision, it, plane.state.control().settings) if it.is_open else ""
                others = tuple(sorted((each for each in occurrences if each.id in with_it), key=lambda one: one.source))
                return Resolved(decision, it, still_stopped(decision, it, occurrences), paused, others)
            time.sleep(POLL_S)


def pause_before(decision: OperatorDecision, it: Occurrence, settings: RunSettings) -> str:
    """Say by whom what is paused that a lane acts on only after `resume`: what has a partition begin elsewhere. Empty
    where that isn't so. Pure."""
    found = settings.paused_at(it.source.topic)
    if found is None or not decision.adopts:
        return ""
    return f"{'the flow' if FLOW in settings.paused else f'topic {it.source.topic}'} is {found.said}"


def still_stopped(
    decision: OperatorDecision, closed: Occurrence, occurrences: Sequence[Occurrence]
) -> Occurrence | None:
    """Find what stops a partition after it was checked again. Pure."""
    if decision.command is not Command.RETRY or closed.is_open:
        return None
    return next((it for it in occurrences if it.is_open and it.target == closed.target), None)


def _written(flow: Flow, plane: ControlPlane, wanted: DecisionWanted) -> Sequence[OperatorDecision]:
    """Have it written once, however often that takes: what was written before an answer was lost has its token. The
    decision about the occurrence that was named is the first; others, of the same topic, are written with it."""
    taken: Sequence[OperatorDecision] = ()

    def take(control: Control) -> Sequence[OperatorDecision]:
        nonlocal taken
        if taken and control.decisions.get(taken[0].occurrence) == taken[0]:
            return ()
        occurrences, now_ms = plane.state.claims().occurrences, time.time_ns() // 1_000_000
        decision = decide(
            wanted.start,
            wanted.command,
            occurrences,
            control.decisions,
            by=wanted.by,
            why=wanted.why,
            now_ms=now_ms,
        )
        topics = [it.source.topic for it in occurrences if it.id == decision.occurrence]
        check_topics(flow, control.failed_over, topics)
        if decision.goes_back:
            it = next(it for it in occurrences if it.id == decision.occurrence)
            decision = from_the_cut_on(plane, it, decision)
        if wanted.command is Command.ADOPT:
            it = next(it for it in occurrences if it.id == decision.occurrence)
            offset, sides = _adopted(plane, it, wanted.adopted, occurrences)
            decision = replace(decision, end=offset, adopted=sides)
        more: list[OperatorDecision] = []
        if wanted.command is Command.RESTART_TOPIC:
            it = next(it for it in occurrences if it.id == decision.occurrence)
            decision, more = _restarted(plane, it, decision), _of_other_partitions(plane, it, decision, control)
        taken = [decision, *more]
        if wanted.command is Command.SET_ASIDE:
            make_aside_topic(flow, plane)
        return taken

    written(flow, plane, take)
    return taken


def written(flow: Flow, plane: ControlPlane, take: Callable[[Control], Sequence[ControlRecord | TopicRecord]]) -> None:
    """Have what `take` returns written to the control topic, by the one who holds the control id; `take` is asked again
    after an answer was lost. Raises as `Changer.decide`, once others have kept the id for long."""
    changed(flow, plane, lambda changer: changer.decide(take))


def changed(
    flow: Flow,
    plane: ControlPlane,
    ask: Callable[[Changer], T],
    *,
    thaw: bool = False,
    by: str = "",
    decided_by: str = "",
    waits: Callable[[Generation], None] = lambda change: None,
    step: Failpoint = nothing,
) -> T:
    """Do what `ask` wants of a changer for a command, asked again while others write the control topic, or an answer
    was lost. Raises as `Changer` does, once others have kept the control id for long.

    `thaw`, `by`, `decided_by` and `step` as of `Changer`; without `by` each changer has a name of its own. `waits` is
    told, once, of a change of generations that somebody has begun and not ended, and that is waited for.
    """
    _wait_for_others(plane, waits)

    def attempt() -> T:
        name = by or process_name()
        at = flow, plane.state, name, _ignored, _no_starts
        return ask(Changer(*at, thaw=thaw, decided_by=decided_by, step=step))

    return beside_others(attempt)


def _wait_for_others(plane: ControlPlane, waits: Callable[[Generation], None]) -> None:
    """Wait until nobody is changing generations, or until whoever began has had `OTHERS_S`, and is taken to be dead: to
    initialise the control id would cut a change short."""
    told, give_up_s = False, time.monotonic() + OTHERS_S
    while (change := plane.state.control().preparing) is not None:
        left_s = min(give_up_s - time.monotonic(), change.at_ms / 1000 + OTHERS_S - time.time())
        if left_s <= 0:
            return
        if not told:
            waits(change)
        told = True
        time.sleep(min(POLL_S, left_s))


def _adopted(
    plane: ControlPlane, it: Occurrence, offset: int | None, occurrences: Sequence[Occurrence]
) -> tuple[int, AdoptedSides]:
    """Return the source offset at which copying goes on, this one or what the offset map says, and what both sides are
    now: a lane adopts nothing else.

    Raises NotDecided where the source can't be copied from there on, the map doesn't say, or it is another source
    topic; and what the clusters say instead.
    """
    there = raised(plane.target_logs.log_ends([it.target])[it.target])
    if offset is None:
        _check_only_target(plane, it)
        topic = names.offsets_topic(plane.flow.name)
        earlier = [(one.generation, one.at_ms) for one in occurrences if one.target == it.target and one.moved]
        moved, route = max(earlier, default=(-1, -1)), (it.source, it.target)
        indexed = partial(indexed_copy, plane.flow, it.topic_id, it.source.partition)
        offset = position_by_map(plane.target_reader, plane.target_logs, topic, it.topic_id, route, moved, indexed)
    ends = raised(plane.source_logs.log_ends([it.source])[it.source])
    if ends.topic_id != it.topic_id:
        why = f"{it.source.topic} is not the topic any more that the flow has found"
        raise NotDecided(Objection.OUTDATED, f"{why}: its id was {it.topic_id}, is {ends.topic_id}")
    if not ends.start <= offset <= ends.end:
        known = f"{it.source} has offsets from {ends.start} on, and ends at {ends.end}"
        raise NotDecided(Objection.OUT_OF_RANGE, f"copying can't go on at {offset}: {known}")
    sides = AdoptedSides(source_topic_id=ends.topic_id, target_topic_id=there.topic_id, target_end=there.end)
    return offset, sides


def _check_only_target(plane: ControlPlane, it: Occurrence) -> None:
    """Raise NotDecided where the partition was copied elsewhere, too: what the map has last may stand there."""
    claims = plane.state.claims().claims
    others = sorted(at for at, claim in claims.items() if claim.source == it.source and at != it.target)
    if others:
        why = f"{it.source} was copied to {others[0]}, too, under another rename, and its last copy may be there"
        raise NotDecided(Objection.NOT_PROVEN, f"the offset map doesn't say where to go on: {why}; name the offset")


def _restarted(plane: ControlPlane, it: Occurrence, decision: OperatorDecision) -> OperatorDecision:
    """Decide as `restarted` does, by what the clusters say now. Raises what they say, too."""
    source = raised(plane.source_logs.log_ends([it.source])[it.source])
    target = raised(plane.target_logs.log_ends([it.target])[it.target])
    return restarted(it, decision, source, target, plane.state.claims().claims.get(it.target))


def _of_other_partitions(
    plane: ControlPlane, it: Occurrence, decision: OperatorDecision, control: Control
) -> list[OperatorDecision]:
    """Decide the same of the topic's other partitions that the flow has found so, and that nobody has decided about.

    Those of which something else is known by now are left: they are decided about when the flow has found that.
    """
    found: list[OperatorDecision] = []
    for other in plane.state.claims().occurrences:
        same = other.is_open and (other.name, other.source.topic, other.target.topic) == (
            it.name,
            it.source.topic,
            it.target.topic,
        )
        if not same or other.id == it.id or other.id in control.decisions:
            continue
        theirs = replace(decision, occurrence=other.id, offset=other.offset, token=uuid.uuid4().hex)
        try:
            found.append(_restarted(plane, other, theirs))
        except NotDecided:
            continue
    return found


def make_aside_topic(flow: Flow, plane: ControlPlane) -> None:
    """Make sure of it before a lane is told to write there. Raises what the target refuses."""
    make_own_topic(plane, aside_topic(flow))


def prepare_aside(flow: Flow, plane: ControlPlane, log: structlog.stdlib.BoundLogger) -> None:
    """Make sure of the topic for records that the flow's policy sets aside; without it their partitions wait for an
    operator."""
    if not flow.policy.sets_aside:
        return
    try:
        make_aside_topic(flow, plane)
    except (NotAllowed, Incident, Retriable, Unreachable) as error:
        log.warning("aside_topic_missing", topic=names.aside_topic(flow.name), reason=str(error))


def make_own_topic(plane: ControlPlane, spec: TopicSpec) -> None:
    """Make sure of one of the flow's own topics that is made when it is first needed. Raises what the target
    refuses."""
    if spec.name in plane.target.topics([spec.name]):
        return
    answer = plane.create([spec])[spec.name]
    if isinstance(answer, ReplicatorError):
        raise answer


def _ignored(text: str) -> None:
    """Ignore an error that librdkafka reports by its callback: if a call fails for it, the call raises it."""


def _no_starts(partitions: Mapping[str, int]) -> Sequence[tuple[bytes, bytes]]:
    raise Fatal("a flow that was never open has incidents")

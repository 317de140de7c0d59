"""Finds the generation under which a worker that shares its flow runs: it opens one, follows the open one, or waits.

Used by `flow.shared_flow`. The worker's file proposes, the control topic decides (`workers.settings`): it proposes its
file once, at its start, and only a file that is new to the flow; later it runs the settings of what is open. Otherwise
two workers with two files would replace each other's generation for ever. A change that somebody else has begun is left
to that one for ten seconds (`workers.settings.ChangeWatch`), and finished then; so is a flow that `position set` or
`adopt-mm2` has taken from its workers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import structlog

from replicator.config import Flow
from replicator.config.models import LANES_AUTO
from replicator.flow.listing import Listing
from replicator.flow.occupied import check_free, check_frozen, occupied, other_cluster
from replicator.flow.parts import ConditionObserver, WorkerObserver
from replicator.flow.setup import Setup
from replicator.model.errors import Fenced, TakenOver
from replicator.state.control import Changer, Proposal
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Kind, LaneAssignment
from replicator.state.own_file import followed, lanes_wanted, open_settings, own_file
from replicator.workers.settings import NOTHING_SEEN, FileDecision, Runs, decide, differences, followed_said

LOOK_S = 0.2


class SharedGeneration:
    """Of one flow in this process."""

    def __init__(
        self,
        flow: Flow,
        observer: WorkerObserver,
        conditions: ConditionObserver,
        log: structlog.stdlib.BoundLogger,
        asked: threading.Event,
        waits: Callable[[], None],
        *,
        take_over: bool = False,
    ) -> None:
        """
        Args:
            flow: as this worker's file has it.
            observer, conditions: are told that it stands by, and that another file's settings hold.
            asked: is set when the flow shall stop.
            waits: is called when this worker stands by, again and again.
            take_over: also from a job that has the flow, until there is a generation to run.
        """
        self._observer, self._conditions, self._own = observer, conditions, own_file(flow)
        self._flow, self._log, self._asked, self._take_over = flow, log, asked, take_over
        self._waits = waits
        self._proposes, self._standing_by, self._ran, self._warned = True, "", False, 0
        self._seen = NOTHING_SEEN  # before `find`
        self._listing: Mapping[str, int] = {}  # as it was at the last look

    def flow(self, control: Control) -> Flow:
        """Return the flow to run under what the control topic says: this worker's own, or with the open generation's
        settings, where those hold."""
        if control.open is None or control.open.kind is not Kind.LIVE or not self._decided(control).runs:
            return self._flow
        return followed(self._flow, control.open)

    def half_done(self, seen: tuple[int, float] | None) -> None:
        """Take over since when lanes of this process have seen a change that nobody finishes; see `TakenOver`."""
        number, since_s = seen or (0, 0.0)
        self._seen = NOTHING_SEEN.look(0, number, since_s)

    def look(self, setup: Setup) -> Control | None:
        """Read the control topic, before anything is listed or written; None once `asked` is set. A worker whose file
        names another source cluster than the flow is copied from stands by."""
        self._own = replace(self._own, source_cluster=setup.source_cluster)
        while not self._asked.is_set():
            control = setup.look(ahead=True)
            if not (other := self._other_cluster(control)):
                return control
            self._stand_by(other)
        return None

    def find(self, setup: Setup, listing: Listing) -> Generation | None:
        """Return the generation to run; None once `asked` is set.

        Raises TakenOver where Spark's rounds have taken the flow from this process, and what `Setup` raises.
        """
        self._listing, watch, control = listing.partitions, self._seen, setup.seen or setup.look()
        self._seen = NOTHING_SEEN
        while not self._asked.is_set():
            now_s, passing = time.monotonic(), _passing(control.open)
            watch = watch.look(_number(control.open), _number(control.preparing), now_s, passing=passing)
            check_frozen(self._flow, control)
            newest = control.open or control.preparing
            if other := self._other_cluster(control):  # opened since `look`
                self._stand_by(other)
            elif newest is not None and newest.kind.bounded and not self._take_over:
                self._stand_by(occupied(self._flow, newest))
            elif unknown := self._unreadable(control):
                self._stand_by(unknown)
            elif self._runs(control):
                return self._found(control.open, opened=False)
            elif watch.may_change(now_s):
                try:
                    changed = setup.change(partial(self._ensure, setup, listing))
                except (Fenced, TakenOver) as error:  # somebody else is at it: what it opens is looked for
                    self._log.info("generation_left_to_another", reason=str(error))
                    watch = watch.fenced(time.monotonic())
                else:
                    return self._found(*changed)
            self._asked.wait(LOOK_S)
            control = setup.look()
        return None

    def _ensure(self, setup: Setup, listing: Listing, changer: Changer) -> tuple[Generation, bool]:
        return changer.ensure(self._propose, listing.partitions, partial(self._may_replace, setup))

    def _other_cluster(self, control: Control) -> str:
        return other_cluster(self._flow, control, self._own.source_cluster)

    def _decided(self, control: Control) -> FileDecision:
        found = open_settings(control, self._flow)
        if found is not None and found.runs is Runs.JOB and self._take_over:
            found = replace(found, runs=Runs.LIVE)  # the job ends, but the flow's settings, which it has, go on
        return decide(found, control.hashes, self._own, at_start=self._proposes)

    def _unreadable(self, control: Control) -> str:
        """Say why the open settings can't be run; empty where they can, or are to be replaced."""
        found = open_settings(control, self._flow)
        if found is None or self._decided(control) is not FileDecision.STAND_BY_NEWER:
            return ""
        why = f"flow {self._flow.name}: {found.unknown}. Run the newer version"
        of_job = found.runs is Runs.JOB  # from which `apply` doesn't take the flow
        return why if of_job else f"{why}, or `eos-replicate apply` with this one's file"

    def _runs(self, control: Control) -> bool:
        """Return whether the open generation is to be run as it is. Raises TakenOver."""
        found = control.open
        if found is not None and found.kind is Kind.ROUNDS and self._ran:
            raise TakenOver(f"flow {self._flow.name}: generation {found.number} (Spark's rounds) has taken over")
        return found is not None and self._propose(control) is None

    def _propose(self, control: Control) -> Proposal | None:
        """Return what is to replace the open generation; see `control.Propose`. One that isn't the daemon's is replaced
        by the settings that hold, with as many lanes. Raises TakenOver where another cluster's worker was first."""
        if other := self._other_cluster(control):
            raise TakenOver(other)
        found, decision = control.open, self._decided(control)
        if decision is FileDecision.PROPOSE:
            return Proposal(LaneAssignment(self._own_lanes(control)), self._own)
        if found is not None and found.kind is Kind.LIVE:
            return None
        before = control.daemon
        lanes = self._own_lanes(control) if before is None or not before.settings else before.lanes
        return Proposal(LaneAssignment(lanes))

    def _own_lanes(self, control: Control) -> int:
        return lanes_wanted(self._flow, self._listing, control)

    def _found(self, generation: Generation | None, opened: bool) -> Generation | None:
        self._proposes, self._standing_by, self._ran = False, "", True
        self._take_over = False  # a job that begins later isn't the one that was meant
        if generation is None:
            return None
        if opened:
            self._log.info("generation_opened", generation=generation.number, lanes=generation.lanes)
        self._tell_other(generation)
        return generation

    def _tell_other(self, generation: Generation) -> None:
        """Tell, in the log once for a generation, where it isn't this worker's file that holds."""
        other = generation.settings_hash not in ("", self._own.hash)
        said = (self._flow.name, generation.number, self._own.settings, generation.settings)
        self._conditions.other_settings(followed_said(*said) if other else "")
        if self._warned == generation.number:
            return
        self._warned = generation.number
        if other:
            differs = list(differences(self._own.settings, generation.settings))
            self._log.warning("file_is_older", generation=generation.number, by=generation.by, differs=differs)
        elif self._flow.lanes not in (LANES_AUTO, generation.lanes):
            self._log.warning("lanes_followed", lanes=generation.lanes, own_lanes=self._flow.lanes)

    def _may_replace(self, setup: Setup, found: Generation) -> None:
        check_free(self._flow, found, take_over=self._take_over)
        setup.settle_claims()

    def _stand_by(self, why: str) -> None:
        if why != self._standing_by:
            self._standing_by = why
            self._log.warning("standing_by", reason=why)
            self._observer.standing_by(why)
        self._waits()
        self._asked.wait(self._flow.limits.discovery_interval_ms / 1000)


def _number(generation: Generation | None) -> int:
    return 0 if generation is None else generation.number


def _passing(generation: Generation | None) -> bool:
    return generation is not None and generation.kind is Kind.POSITION_SET

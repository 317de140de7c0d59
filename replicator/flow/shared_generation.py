"""Finds the generation under which a worker that shares its flow runs: it opens one, follows the open one, or waits.

Used by `flow.shared_flow`. A worker proposes the lanes of its own flow file once, at its start; later it follows what
is open, otherwise two workers with two files would replace each other's generation for ever. A change that somebody
else has begun is left to that one for ten seconds (`workers.settings.ChangeWatch`), and finished then.
"""

from __future__ import annotations

import threading
import time
from functools import partial

import structlog

from replicator.config import Flow
from replicator.flow.listing import Listing
from replicator.flow.setup import Setup, check_free, occupied
from replicator.flow.worker import WorkerObserver
from replicator.model.errors import Fenced, TakenOver
from replicator.state.control import Changer, fits
from replicator.state.generation import Control, Generation, Kind, LaneAssignment
from replicator.workers.settings import NOTHING_SEEN

LOOK_S = 0.2


class SharedGeneration:
    """Of one flow in this process."""

    def __init__(
        self,
        flow: Flow,
        observer: WorkerObserver,
        log: structlog.stdlib.BoundLogger,
        asked: threading.Event,
        *,
        take_over: bool = False,
    ) -> None:
        """`asked`: set when the flow shall stop; `take_over`: also from a job that has the flow."""
        self._observer = observer
        self._flow, self._log, self._asked, self._take_over = flow, log, asked, take_over
        self._proposes, self._standing_by, self._ran = True, "", False

    def find(self, setup: Setup, listing: Listing) -> Generation | None:
        """Return the generation to run; None once `asked` is set.

        Raises TakenOver where Spark's rounds have taken the flow from this process, and what `Setup` raises.
        """
        watch, own = NOTHING_SEEN, LaneAssignment(self._flow.lanes)
        while not self._asked.is_set():
            control, now_s = setup.look(), time.monotonic()
            watch = watch.look(_number(control.open), _number(control.preparing), now_s)
            newest = control.open or control.preparing
            if newest is not None and newest.kind.bounded and not self._take_over:
                self._stand_by(newest)
                continue
            if self._runs(control, own):
                return self._found(control.open, opened=False)
            if watch.may_change(now_s):
                follows = newest is not None and newest.kind is Kind.LIVE and not self._proposes
                assignment = newest.assignment if newest is not None and follows else own
                try:
                    changed = setup.change(partial(self._ensured, assignment, listing))
                except (Fenced, TakenOver) as error:  # somebody else is at it: what it opens is looked for
                    self._log.info("generation_left_to_another", reason=str(error))
                    watch = watch.fenced(time.monotonic())
                else:
                    return self._found(*changed)
            self._asked.wait(LOOK_S)
        return None

    def _runs(self, control: Control, own: LaneAssignment) -> bool:
        """Whether the open generation is to be run as it is. Raises TakenOver."""
        found = control.open
        if found is not None and found.kind is Kind.ROUNDS and self._ran:
            raise TakenOver(f"flow {self._flow.name}: generation {found.number} (Spark's rounds) has taken over")
        return found is not None and found.kind is Kind.LIVE and (not self._proposes or fits(found, own))

    def _found(self, generation: Generation | None, opened: bool) -> Generation | None:
        self._proposes, self._standing_by, self._ran = False, "", True
        if generation is None:
            return None
        if opened:
            self._log.info("generation_opened", generation=generation.number, lanes=generation.lanes)
        if generation.lanes != self._flow.lanes:
            self._log.warning("lanes_followed", lanes=generation.lanes, own_lanes=self._flow.lanes)
        return generation

    def _ensured(self, assignment: LaneAssignment, listing: Listing, changer: Changer) -> tuple[Generation, bool]:
        return changer.ensure(assignment, listing.partitions, self._may_replace)

    def _may_replace(self, found: Generation) -> None:
        check_free(self._flow, found, take_over=self._take_over)

    def _stand_by(self, job: Generation) -> None:
        why = occupied(self._flow, job)
        if why != self._standing_by:
            self._standing_by = why
            self._log.warning("standing_by", reason=why)
            self._observer.standing_by(why)
        self._asked.wait(self._flow.limits.discovery_interval_ms / 1000)


def _number(generation: Generation | None) -> int:
    return 0 if generation is None else generation.number

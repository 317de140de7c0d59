"""One generation of one flow in a worker that shares it with others: runs the lanes that the flow's group gives it.

Made by `flow.shared_flow`. The flow's thread owns everything here: lanes, the thread of the group's consumer, discovery
and signals reach it through one queue. What is to be done is decided by `workers.membership`; here it is done.

Invariants
- The group only suggests who runs a lane. Safety stays with the transactional id and the positions: two workers that
  both think that they have a lane lose and double nothing, they only take it from each other.
- What ends one lane doesn't end the others: it is started again here, or by another worker, unless a person has to
  decide, or it is a bug. For a cause of this process alone it leaves the group for some time, and its lanes with it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import structlog

from replicator.config import Flow
from replicator.flow.discovery import Discovered, DiscoveryEnded, FlowNotes
from replicator.flow.group_early import is_alone, own_client_id
from replicator.flow.group_watch import GroupWatch
from replicator.flow.lane_counts import FlowCounts
from replicator.flow.lane_errors import IN_THE_CLUSTERS, LASTING, ends_flow, is_local
from replicator.flow.lane_permit import LaneConnected, LaneInitialised, LanePermit
from replicator.flow.listing import Routing
from replicator.flow.parts import Group, Lane, Parts
from replicator.flow.setup import Setup
from replicator.flow.shown_lanes import ShownLanes
from replicator.flow.topics import ControlPlane
from replicator.flow.worker import code_of, graver, lane_plan, no_clean_stop, stop_by_s, with_routes, worse
from replicator.kafka.group_events import (
    GroupEnded,
    GroupTrouble,
    LanesAssigned,
    LanesRevoked,
    LanesTopicUnfit,
    MemberIdChanged,
    MembershipLost,
    ProofAnswered,
)
from replicator.lane.driver import CountsChanged, LaneEnded
from replicator.model.errors import Fenced, Incident, TakenOver
from replicator.state.generation import Generation
from replicator.workers.lane_stages import LaneEffect, LaneEvent, LaneStage
from replicator.workers.membership import LaneAction, Membership, MembershipAction
from replicator.workers.proofs import ProofMetadata
from replicator.workers.worker_stages import WorkerEffect

CLOSE_S = 2.0
"""How long the end of the group's thread is waited for: it leaves the group, so that others needn't wait a session."""


class GroupWorker:
    """Runs lanes of one generation until the worker is stopped, the generation is over, or the flow has to end."""

    def __init__(
        self,
        flow: Flow,
        parts: Parts,
        setup: Setup,
        generation: Generation,
        owner: str,
        events: queue.SimpleQueue[Any],
        ended: threading.Event,
        watch: GroupWatch,
        plane: ControlPlane,
        notes: FlowNotes,
        log: structlog.stdlib.BoundLogger,
        *,
        early: bool = False,
        exit_on_incident: bool = False,
    ) -> None:
        """
        Args:
            owner: this process's name in the positions, for as long as it runs this generation.
            events: the flow's queue: None in it is a request to stop.
            ended: is set when discovery shall end.
            watch: is told what changes in the group.
            plane: is asked who is in the group.
            early: open all lanes before the group has assigned them, if nobody else can be running one.
        """
        assert parts.group is not None, "these parts are for a lone process"
        self._flow, self._parts, self._setup, self._generation = flow, parts, setup, generation
        self._owner, self._events, self._ended, self._notes, self._log = owner, events, ended, notes, log
        self._watch, self._exit_on_incident = watch, exit_on_incident
        self._membership = Membership(generation.lanes)
        self._routing = Routing({}, {})
        self._lanes: dict[int, Lane] = {}
        self._permits: dict[int, LanePermit] = {}
        self._counts = FlowCounts(())
        self._since_ms: dict[int, int] = {}
        self._duty: threading.Event | None = None  # set: the duties of lane 0 end
        self._error: BaseException | None = None
        self._left_open: BaseException | None = None  # why a stop couldn't finish what a lane had begun
        self.half_done: tuple[int, float] | None = None  # the change that it has ended for, see `TakenOver`
        self._over = self._finished = self._stopping = self._was_assigned = False
        self._hands_over = self._by_incident = False  # of a stop: to other workers; why
        self._stop_by: float | None = None
        self._observer = parts.observe(flow)
        self._assigned_s: dict[int, float] = {}
        self._told: tuple[dict[int, LaneStage], bool] = {}, False  # to the observer
        self._shown_lanes = ShownLanes()
        self._name, self._early = own_client_id(), early
        self._members = partial(parts.members, plane)
        self._group: Group = parts.group(flow, generation.lanes, self._name.encode(), events.put)

    def join(self) -> None:
        """Begin to be a member of the group. Lanes that it gives meanwhile are started by `run`."""
        self._do(self._membership.subscribe(time.monotonic()))

    def close(self) -> None:
        """Leave the group, and end its thread."""
        self._group.close(CLOSE_S)

    def run(self, routing: Routing) -> bool:
        """Run until the end, after `join`. Return whether another generation is to be looked for. Raises what ended the
        flow."""
        self._routing = routing
        try:
            if self._early and is_alone(self._name, self._members, self._log) is True:
                self._log.info("lanes_opened_early", lanes=self._generation.lanes)
                self._do(self._membership.open_early(time.monotonic()))
            while not self._finished:
                self._handle_next()
        except BaseException:
            self._abandon()
            raise
        finally:
            self._end_duties()
            self._observer.stages({}, assigned=False)
            self._ended.set()
            self.close()
        if (error := graver(self._error, self.code, self._log) or (None if self.code else self._left_open)) is not None:
            raise error
        return self._over and self._error is None

    @property
    def code(self) -> int:
        """After a clean end: 4 while something waits for a decision."""
        return Incident.exit_code if self._counts.stopped or self._notes.incidents or self._by_incident else 0

    @property
    def stopped_early(self) -> bool:
        """See `FlowWorker`."""
        return not self._counts.complete

    def _handle_next(self) -> None:
        now_s = time.monotonic()
        due = [at for at in (self._membership.due_s, self._stop_by) if at is not None]
        try:
            event = self._events.get(timeout=max(0.0, min(due) - now_s) if due else None)
        except queue.Empty:
            pass
        else:
            self._handle(event)
        now_s = time.monotonic()
        self._do(self._membership.tick(now_s))
        if self._stop_by is not None and now_s >= self._stop_by and not self._finished:
            raise self._error or no_clean_stop(self._flow, self._lanes)
        self._look_after_duties()
        self._tell_stages()

    def _handle(self, event: object) -> None:
        now_s = time.monotonic()
        if event is None:
            self._stop(now_s)
        elif isinstance(event, LaneConnected):
            self._do(self._membership.lane_told(event.lane, LaneEvent.CONNECTED, now_s))
        elif isinstance(event, LaneInitialised):
            if (since_s := self._assigned_s.pop(event.lane, None)) is not None:
                self._observer.handed_over(now_s - since_s)
            self._do(self._membership.lane_told(event.lane, LaneEvent.INITIALISED, now_s))
        elif isinstance(event, LaneEnded):
            self._lane_ended(event, now_s)
        elif isinstance(event, CountsChanged):
            self._counted(event)
        elif isinstance(event, Discovered):
            self._discovered(event.routing)
        elif isinstance(event, DiscoveryEnded):
            self._discovery_ended(event.error, now_s)
        else:
            self._group_told(event, now_s)

    def _group_told(self, event: object, now_s: float) -> None:
        if isinstance(event, LanesAssigned):
            self._log.info("lanes_assigned", lanes=sorted(event.lanes))
            self._observer.rebalanced()
            self._was_assigned = True
            self._watch.changed()
            self._shown_lanes.try_again()
            self._assigned_s |= {it: now_s for it in event.lanes if not self._membership.lane_stage(it).assigned}
            self._do(self._membership.assigned(event.lanes, now_s))
        elif isinstance(event, LanesRevoked):
            self._log.info("lanes_revoked", lanes=sorted(event.lanes))
            self._do(self._membership.revoked(sorted(event.lanes), now_s))
        elif isinstance(event, MembershipLost):
            self._log.warning("membership_lost")
            self._do(self._membership.lost(now_s))
        elif isinstance(event, MemberIdChanged):
            self._do(self._membership.member_changed(now_s))
        elif isinstance(event, ProofAnswered):
            self._shown_lanes.answered(event.answer)
            self._do(self._membership.proof_answered(event.answer, now_s))
        elif isinstance(event, GroupTrouble) and isinstance(event.error, LASTING) and not self._was_assigned:
            self._fail(event.error, now_s)
        elif isinstance(event, GroupTrouble):
            self._log.warning("group_trouble", kind=type(event.error).__name__, reason=str(event.error))
        elif isinstance(event, LanesTopicUnfit):
            why = f"the group has partitions that are no lanes: {sorted(event.partitions)}"
            self._fail(Incident("lanes_topic_unfit", why), now_s)
        elif isinstance(event, GroupEnded):
            if event.error is not None:
                self._fail(event.error, now_s)
        else:
            raise TypeError(f"unknown event {event!r}")

    def _do(self, actions: Iterable[MembershipAction]) -> None:
        for action in actions:
            if isinstance(action, LaneAction):
                self._do_with_lane(action)
            elif action.effect is WorkerEffect.SUBSCRIBE:
                self._group.subscribe()
            elif action.effect is WorkerEffect.UNSUBSCRIBE:
                self._group.unsubscribe()
            else:
                self._finished = True

    def _do_with_lane(self, action: LaneAction) -> None:
        lane = action.lane
        if action.effect is LaneEffect.START:
            self._start_lane(lane)
        elif action.effect is LaneEffect.PROVE:
            self._group.prove(lane, action.proof, self._metadata(lane))
        elif action.effect is LaneEffect.FENCE:
            self._permits[lane].give()
        else:
            self._lanes[lane].stop()

    def _start_lane(self, lane: int) -> None:
        plan = with_routes(lane_plan(self._flow, self._generation, lane, self._owner, self._setup), self._routing)
        permit = self._permits[lane] = LanePermit(lane, self._events.put, partial(self._may_initialise, lane))
        self._since_ms[lane] = time.time_ns() // 1_000_000
        self._shown_lanes.started(lane)
        made = self._lanes[lane] = self._parts.lane(plan, self._events, permit)
        self._counts.reassigned(lane, len(plan.routes))
        made.start()

    def _may_initialise(self, lane: int) -> bool:
        """Return whether the lane may initialise its id. Asked by its thread; the group's knows first what a rebalance
        takes away.
        """
        stage = self._membership.lane_stage(lane)
        return stage is LaneStage.EARLY_STARTING or (stage.may_initialise and self._group.holds(lane))

    def _metadata(self, lane: int) -> str:
        return ProofMetadata(
            owner=self._owner,
            version=self._parts.version,
            generation=self._generation.number,
            since_ms=self._since_ms[lane],
            settings_hash=self._generation.settings_hash,
        ).encode()

    def _lane_ended(self, event: LaneEnded, now_s: float) -> None:
        error = event.error
        self._lanes[event.lane].forget()
        over = error if isinstance(error, TakenOver) and error.by_generation else None
        handed_over = self._hands_over and isinstance(error, Fenced | TakenOver)
        if over is None and not ends_flow(error) and (not self._stopping or handed_over):
            self._counts.forget(event.lane)  # else `code` is about what it has left stopped
        told, kind, code = LaneEvent.STOPPED, type(error).__name__, 0 if error is None else code_of(error)
        if over is not None:
            self._generation_over(over, now_s)
        elif isinstance(error, Fenced | TakenOver):
            told = LaneEvent.FENCED
            self._log.info("lane_left", lane=event.lane, reason=str(error))
        elif isinstance(error, IN_THE_CLUSTERS):
            told = LaneEvent.FAILED
            self._log.warning("lane_ended", lane=event.lane, kind=kind, detail=str(error), exit_code=code)
            if self._stopping and not self._over and not self._hands_over:
                self._left_open = worse(self._left_open, error)
        elif is_local(error):
            told = LaneEvent.BROKEN
            self._log.error("group_left", lane=event.lane, kind=kind, detail=str(error))
        elif error is not None:
            self._log.error("lane_ended", lane=event.lane, kind=kind, detail=str(error), exit_code=code)
            self._fail(error, now_s)
        del self._lanes[event.lane], self._permits[event.lane]  # what ends the flow may have stopped it once more
        self._do(self._membership.lane_told(event.lane, told, now_s))

    def _counted(self, event: CountsChanged) -> None:
        if event.lane not in self._lanes:
            return
        self._counts.update(event.lane, event.counts)
        if event.counts.copying:
            self._membership.went_well(event.lane)
        self._stop_by_incidents()

    def _discovered(self, routing: Routing) -> None:
        self._routing = routing
        self._parts.partitions(self._flow, routing.topic_partitions)
        if self._stopping:
            return
        if self._was_assigned or self._lanes:  # before that it has no lanes that could report
            self._counts.settle()
        for lane, running in self._lanes.items():
            plan = with_routes(running.plan, routing)
            if plan != running.plan and self._membership.lane_stage(lane).assigned:
                self._log.info("reassigned", lane=lane, partitions=len(plan.routes))
                self._counts.reassigned(lane, len(plan.routes))
                running.reassign(plan)
        self._stop_by_incidents()

    def _stop_by_incidents(self) -> None:
        if self._exit_on_incident and not self._stopping and (self._counts.stopped or self._notes.incidents):
            self._by_incident = True
            self._log.error("exit_on_incident", partitions=self._counts.stopped)
            self._stop(time.monotonic())

    def _discovery_ended(self, error: BaseException, now_s: float) -> None:
        if isinstance(error, TakenOver) and error.by_generation:
            self._generation_over(error, now_s)
        else:
            self._fail(error, now_s)

    def _generation_over(self, error: TakenOver, now_s: float) -> None:
        """Stop all lanes of this generation: `flow.shared_flow` looks for the one that follows."""
        if not self._over and not self._stopping:
            self._log.info("generation_over", reason=str(error))
            self._over, self.half_done = True, error.half_done
            self._leave(now_s, at_once=True)

    def _fail(self, error: BaseException, now_s: float) -> None:
        """End the flow by `error`; of several by the worst. Lanes that still run are stopped first."""
        self._error = worse(self._error, error)
        self._leave(now_s, at_once=True)

    def _stop(self, now_s: float) -> None:
        if self._stopping:
            return
        self._log.info("stopping")
        self._leave(now_s, at_once=self._is_alone())

    def _leave(self, now_s: float, *, at_once: bool) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._ended.set()
        self._stop_by = stop_by_s(self._flow)
        self._do(self._membership.stop(now_s, alone=at_once))

    def _is_alone(self) -> bool:
        """Return whether nobody waits for the lanes: then they are stopped at once, else when their successors have
        them.
        """
        alone = is_alone(self._name, self._members, self._log)
        self._hands_over = alone is False
        if alone is None:  # a successor would be told by its fencing
            return all(self._group.holds(lane) for lane in range(self._generation.lanes))
        return alone

    def _look_after_duties(self) -> None:
        """Take or leave what one worker of the flow has to do: the one that has lane 0."""
        leads = self._membership.lane_stage(0) is LaneStage.RUNNING and not self._stopping
        self._watch.lead(leads)
        if leads and self._duty is None:
            self._duty = threading.Event()
            self._parts.duties(self._flow, self._duty, lambda error: self._events.put(DiscoveryEnded(error)))
        elif not leads:
            self._end_duties()

    def _tell_stages(self) -> None:
        numbered = ((lane, self._membership.lane_stage(lane)) for lane in range(self._generation.lanes))
        stages: dict[int, LaneStage] = {at: stage for at, stage in numbered if stage is not LaneStage.UNASSIGNED}
        if self._told != (told := (stages, self._membership.has_assignment)):
            self._told = told
            self._observer.stages(stages, assigned=self._membership.has_assignment)
            self._watch.changed()
        running = [lane for lane, stage in stages.items() if stage is LaneStage.RUNNING]
        for lane, number in self._shown_lanes.to_show(running):
            self._group.prove(lane, number, self._metadata(lane))

    def _end_duties(self) -> None:
        if self._duty is not None:
            self._duty.set()
            self._duty = None

    def _abandon(self) -> None:
        """Stop what still runs when this worker fails: a lane that nobody watches must not go on copying."""
        give_up = stop_by_s(self._flow)
        for lane in self._lanes.values():
            lane.stop()
        for lane in self._lanes.values():
            lane.join(max(0.0, give_up - time.monotonic()))

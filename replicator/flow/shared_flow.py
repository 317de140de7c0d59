"""A flow that this process shares with others: generation after generation, until it is stopped. Used by `flow.daemon`
in the place of `flow.worker`.

For each generation there is a `GroupWorker`, a control plane and a discovery. Another generation follows where somebody
has a newer file, or a job has handed the flow over again.

Invariants
- Before each generation but the first the target alone is asked whether the flow was failed over, and before the first
  one as soon as the source doesn't answer at once (`connecting`): it may be dead, and an operator waits for the answer.
  A target that has just not answered isn't asked by itself.
- A flow that has run here, or was found failed over, doesn't end because a cluster is away before its next generation;
  at its start it does.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog

from replicator.backoff import Backoff
from replicator.config import Config, Flow
from replicator.flow.connecting import Connecting
from replicator.flow.discovery import Discovery, DiscoveryEnded, FlowNotes
from replicator.flow.group_watch import GroupWatch
from replicator.flow.group_worker import GroupWorker
from replicator.flow.listing import Listing
from replicator.flow.occupied import check_frozen
from replicator.flow.parts import Parts, Silence
from replicator.flow.setup import Setup
from replicator.flow.shared_generation import SharedGeneration
from replicator.flow.topics import ControlPlane
from replicator.model.errors import FlowFrozen, Retriable, Unreachable
from replicator.model.names import process_name
from replicator.state.generation import Generation
from replicator.state.own_file import followed

AGAIN_FIRST_S, AGAIN_MAX_S = 0.2, 2.0


class SharedFlow:
    """Runs one flow until it is stopped, or nothing of it can go on."""

    def __init__(
        self,
        flow: Flow,
        config: Config,
        parts: Parts,
        log: structlog.stdlib.BoundLogger,
        *,
        take_over: bool = False,
        exit_on_incident: bool = False,
        told_before: bool = False,
        told: dict[str, float] | None = None,
    ) -> None:
        """As of `FlowWorker`."""
        self._flow, self._config, self._parts, self._log = flow, config, parts, log
        self._runs = flow  # with the settings that hold
        self._exit_on_incident = exit_on_incident
        self._asked = threading.Event()  # to stop
        conditions = parts.conditions(flow)
        self._connecting = Connecting(self._asked, log, conditions, told_before=told_before, told=told)
        self._alive: Callable[[], None] = lambda: None
        self._finder = SharedGeneration(
            flow, parts.observe(flow), conditions, log, self._asked, lambda: self._alive(), take_over=take_over
        )
        self._notes = FlowNotes(log)
        self._setup: Setup | None = None
        self._lock = threading.Lock()
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()  # of the generation that runs now
        self._over = threading.Event()  # nothing of the flow runs here any more
        self._silent: Callable[[], Sequence[Silence]] | None = None  # which are away; None: nobody watches them yet
        self.stopped_early = False
        """See `FlowWorker`."""
        self._bug: BaseException | None = None  # of what watches the clusters

    def take(self, config: Config) -> None:
        """See `FlowWorker`."""
        self._config = config
        if (setup := self._setup) is not None:
            setup.take(self._with(self._runs))

    def stop(self) -> None:
        """Ask for a clean stop, from any thread or a signal handler."""
        with self._lock:
            self._asked.set()
            self._events.put(None)

    def run(self, lanes_started: Callable[[], None] = lambda: None) -> int:
        """Run the flow; the exit code. Raises what ended it. `lanes_started` is called, again and again, once there
        is something that a stop has to finish, or the flow waits for an operator or a job: it is failed over, or stands
        by."""
        self._alive = lanes_started
        self._log.info("connecting", source=self._flow.source.name, target=self._flow.target.name)
        try:
            return self._run()
        finally:
            self._over.set()

    def _run(self) -> int:
        started, early, code = False, True, 0
        while not self._asked.is_set():
            try:
                worker = self._next(first=not started)
            except Unreachable:
                if self._asked.is_set():  # by which it was cut short: nothing was begun that has to be finished
                    break
                raise
            if worker is None:
                break
            made, again = worker
            started = True
            self._alive()
            goes_on = again()
            if made.code or not made.stopped_early:  # else what the generation before has left is what is known
                code = made.code
            self.stopped_early = early = early and made.stopped_early
            if not goes_on:
                break
            self._finder.half_done(made.half_done)
        return code

    def _next(self, *, first: bool) -> tuple[GroupWorker, Callable[[], bool]] | None:
        """Return what runs the generation that is open now, with its settings, and how; None after a stop."""
        flow, waits, ask_target, told = self._runs, not first, not first, ""
        backoff = Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
        while True:
            if ask_target and not self._may_begin(flow):
                return None
            ask_target = False
            plane, owner = self._parts.plane(flow), process_name()
            try:
                at = flow, self._with(flow), plane, owner, self._log, self._asked
                setup = self._setup = Setup(*at, connecting=self._connecting)
                setup.take(self._with(flow))  # one that came meanwhile
                setup.connect()
                control = self._finder.look(setup)
                check_frozen(flow, control)
                wanted = flow if control is None else self._finder.flow(control)
                if control is not None and _same_but_lanes(wanted, flow):
                    listing = setup.begin()
                    generation = self._finder.find(setup, listing)
                    if generation is None:
                        plane.close()
                        return None
                    wanted = followed(self._flow, generation)
                    if _same_but_lanes(wanted, flow):
                        self._runs = wanted
                        return self._worker(wanted, setup, plane, listing, generation, owner, early=first)
            except (FlowFrozen, Unreachable) as error:
                plane.close()
                undone = isinstance(error, FlowFrozen)  # meanwhile, where it isn't failed over any more
                if self._asked.is_set():  # nothing was begun yet
                    return None
                if not waits:
                    if not undone and not self._connecting.target_answers:
                        raise  # whether the flow was failed over can't be asked: the target is away, too
                    if not self._was_failed_over(flow) and not undone:
                        raise
                else:
                    if not undone and str(error) != told:
                        told = str(error)
                        self._log.warning("setup_tried_again", reason=told)
                    self._asked.wait(backoff.next_s())
                wanted, waits = flow, True
                ask_target = undone or self._connecting.target_answers or self._silent is not None
            except BaseException:
                plane.close()
                raise
            else:
                plane.close()
            if self._asked.is_set():
                return None
            flow = self._runs = wanted

    def _may_begin(self, flow: Flow) -> bool:
        """Wait until the flow isn't failed over, and none of its clusters is known to be away; False after a stop."""
        backoff = Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
        while not self._asked.is_set():
            if self._bug is not None:
                raise self._bug
            try:
                self._was_failed_over(flow)
            except (Retriable, Unreachable) as error:  # who watches the target tells it once
                self._log.debug("setup_tried_again", reason=str(error))
            if self._silent is None or not self._silent():
                break
            self._asked.wait(backoff.next_s())
        return not self._asked.is_set()

    def _was_failed_over(self, flow: Flow) -> bool:
        """Keep a flow that is failed over until that is undone; whether it was. Then it is said again which clusters
        are away: the flow waits for nothing else now."""
        found = self._parts.frozen(flow, self._asked, self._log, self._alive)
        if found and not self._asked.is_set():
            self._connecting.tell_again()
            for it in self._silent() if self._silent is not None else ():
                for_s = round(it.for_s)
                self._log.error("unreachable", cluster=it.cluster, reason=it.reason, unreachable_s=for_s)
        return found

    def _watch_clusters(self, flow: Flow) -> None:
        """Start to watch the clusters, once for all generations: between two of them it is told, too, that a cluster is
        away.
        """
        if self._silent is None:
            self._silent = self._parts.clusters(flow, self._over, self._watch_failed, self._connecting.told)
            self._connecting.leave_to_watch()

    def _watch_failed(self, error: BaseException) -> None:
        with self._lock:
            self._bug = error
            self._events.put(DiscoveryEnded(error))

    def _worker(
        self,
        flow: Flow,
        setup: Setup,
        plane: ControlPlane,
        listing: Listing,
        generation: Generation,
        owner: str,
        *,
        early: bool,
    ) -> tuple[GroupWorker, Callable[[], bool]]:
        """Start what goes beside the lanes."""
        setup.take_generation(generation)
        listing = setup.wanted(listing, generation.partitions)
        self._notes.note_listing(listing)
        ended = threading.Event()
        with self._lock:
            events = self._events = queue.SimpleQueue()
            if self._asked.is_set():
                events.put(None)
            if self._bug is not None:
                events.put(DiscoveryEnded(self._bug))
        watch = GroupWatch(flow, plane, generation, self._parts.observe(flow).members)
        worker = GroupWorker(
            flow,
            self._parts,
            setup,
            generation,
            owner,
            events,
            ended,
            watch,
            plane,
            self._notes,
            self._log,
            early=early,
            exit_on_incident=self._exit_on_incident,
        )
        try:
            plane.make_lanes_topic(generation.lanes)
            routing = setup.first_routes(
                listing
            )  # may wait for a transaction that hides claims: nobody waits for it then
            worker.join()
        except BaseException:
            worker.close()
            raise
        discovery = Discovery(setup, plane, generation, self._notes, events, ended, self._log, watch)
        discovery.start()
        self._parts.watch(flow, generation, ended, lambda error: events.put(DiscoveryEnded(error)))
        self._watch_clusters(flow)
        self._parts.partitions(flow, routing.topic_partitions)
        return worker, partial(worker.run, routing)

    def _with(self, flow: Flow) -> Config:
        """Return the whole file with this flow as it runs."""
        return self._config.model_copy(update={"flows": {**self._config.flows, flow.name: flow}})


def _same_but_lanes(one: Flow, other: Flow) -> bool:
    """Return whether what was set up for one flow does for the other. How many lanes there are is the generation's to
    say.
    """
    return one.model_copy(update={"lanes": other.lanes}) == other

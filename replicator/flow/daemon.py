"""The process: all flows of a file side by side, signals, restarts of flows, and the exit code.

Called by `eos-replicate run`. A first SIGTERM or SIGINT finishes open transactions; the process is gone within
`limits.stop_timeout_ms`, whatever hangs. A second one leaves at once, which is safe by design: the next start fences,
reads and rewinds. SIGHUP has the flow file read again, as other daemons do, unless it comes because the terminal of the
process was closed: then it is like SIGTERM. Under nohup it reloads in any case.

A reload touches the flows that have changed, and no other. One that has changed or is removed is stopped as by SIGTERM;
a file with a fault changes nothing. One that can't be started with what the file has now is tried again (`restarts`).

The main thread owns everything here. Flows, the thread that hears signals and the one that reads the file only put into
its queue.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

import structlog

from replicator.config import Config, Flow
from replicator.flow import early_signals
from replicator.flow.config_watch import ConfigReader, ReadConfig, UnreadConfig
from replicator.flow.parts import Parts
from replicator.flow.reload import compare, needs_restart
from replicator.flow.restarts import BUG, Restarts, Stage, once, worst
from replicator.flow.shared_flow import SharedFlow
from replicator.flow.signals import heard
from replicator.flow.terminal import has_terminal
from replicator.flow.worker import FlowWorker, margin_s
from replicator.incidents import tell_incident
from replicator.model.errors import Incident, ReplicatorError, TakenOver, Unreachable
from replicator.model.names import STATE_PREFIX, process_name
from replicator.state.config_fault import ConfigFault
from replicator.state.flow_end import FlowEnd

# Supervisors signal the process and its group: one request to stop, delivered twice before anybody has acted.
SAME_SIGNAL_S = 0.5
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Records come and go by reference count, thousands a poll: Python's default of 700 spends a tenth of the CPU on looking
# for cycles among them. Cycles are made by clients only, a few at each start of a lane.
GC_YOUNG_OBJECTS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class _LanesStarted:
    flow: str


@dataclass(frozen=True, slots=True)
class _FlowEnded:
    flow: str
    code: int
    early: bool


@dataclass(frozen=True, slots=True)
class _Signalled:
    number: int


Worker = FlowWorker | SharedFlow
_Event = _LanesStarted | _FlowEnded | _Signalled | ReadConfig | UnreadConfig


def _nothing_more() -> None:
    """Do nothing: there is nothing more to sum up."""


class Daemon:
    """Runs flows in threads and waits for all of them. `run` in the main thread only."""

    def __init__(
        self,
        config: Config,
        flows: Sequence[Flow],
        parts: Callable[[structlog.stdlib.BoundLogger], Parts],
        *,
        take_over: bool = False,
        exit_on_incident: bool = False,
        shared: bool = False,
        reader: ConfigReader | None = None,
        reloaded: Callable[[Sequence[Flow]], None] = lambda flows: None,
        leave: Callable[[int], NoReturn] = os._exit,
    ) -> None:
        """
        Args:
            parts: makes what a flow's worker needs, given its log (see `flow.wiring`).
            take_over: also from a backfill or repair that has one of these flows, until its lanes have started once.
            exit_on_incident: end all flows, and the process, with the first incident of one of them.
            shared: share each flow's lanes with the other processes that do so.
            reader: reads the file again, and chooses flows as at the start; None: it stays as it is.
            reloaded: is told which flows there are from now on, before those that are new begin.
        """
        self._exit_on_incident, self._shared = exit_on_incident, shared
        self._config, self._parts, self._leave = config, parts, leave
        self._flows: Mapping[str, Flow] = {flow.name: flow for flow in flows}  # with the settings that they run with
        self._taken_over = set(self._flows) if take_over else set[str]()  # where jobs have them; not from a later job
        self._wanted = self._flows  # as the file has them; one that is being stopped for it differs
        self._log = structlog.get_logger()
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._reader, self._reloaded = reader, reloaded
        self._name = process_name()
        self._fault = ""  # of the file, as it was read last
        self._has_terminal = False
        self._signalled_s: float | None = None
        self._workers: dict[str, Worker] = {}
        self._restarts = Restarts({flow.name: flow.limits.discovery_interval_ms / 1000 for flow in flows})
        self._causes: dict[str, str] = {}  # why flows have ended, and don't run again yet
        self._told: dict[str, dict[str, float]] = {}  # of each flow, see `Connecting`
        self._leave_s: float | None = None  # when the process leaves, whatever still runs
        self._sum_up: Callable[[], None] = _nothing_more

    def stages(self) -> dict[str, Stage]:
        """Say where each flow stands. From any thread."""
        return self._restarts.stages()

    def causes(self) -> dict[str, str]:
        """Say why flows have ended that don't run again yet. From any thread."""
        return dict(self._causes)

    def config_fault(self) -> str:
        """Say why the file could not be read again, last; empty where it could. From any thread."""
        return self._fault

    def run(self, sum_up: Callable[[], None] = _nothing_more) -> int:
        """Run until every flow has ended; the exit code of the worst of them. `sum_up` logs what there is to say of
        the flows, before the process says that it ends."""
        self._sum_up = sum_up
        gc.freeze()
        gc.set_threshold(GC_YOUNG_OBJECTS_MAX)
        self._has_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and has_terminal()
        with heard(self._on_signal):
            for number in SIGNALS:
                signal.signal(number, _nothing)
            if self._reader is not None:
                self._reader.start(self._events.put)
            for early in early_signals.taken():
                self._on_signal(early)
            code = self._run_flows()
            for number in SIGNALS:  # Python's own end would restore the default, which kills instead of this exit code
                signal.signal(number, signal.SIG_IGN)
        return code

    def _run_flows(self) -> int:
        for name in list(self._flows):
            self._start(name)
        while (code := self._restarts.exit_code()) is None:
            try:
                self._handle(self._events.get(timeout=self._timeout_s()))
            except queue.Empty:
                self._on_time()
        self._sum_up()
        self._log.info("stopped", exit_code=code, flows=self._restarts.codes)
        return code

    def _start(self, name: str) -> None:
        log = self._log.bind(flow=name)
        parts = self._parts(log)
        how = {"take_over": name in self._taken_over, "exit_on_incident": self._exit_on_incident}
        how["told_before"] = name in self._causes
        told = self._told.setdefault(name, {})
        flow = self._wanted[name]
        self._flows = {**self._flows, name: flow}
        worker = (SharedFlow if self._shared else FlowWorker)(flow, self._config, parts, log, told=told, **how)
        self._workers[name] = worker
        threading.Thread(target=self._flow, args=(flow, worker, parts, log), name=name, daemon=True).start()

    def _flow(self, flow: Flow, worker: Worker, parts: Parts, log: structlog.stdlib.BoundLogger) -> None:
        """Run a flow once; this is the work of the attempt's thread."""
        name, code = flow.name, BUG
        try:
            code = worker.run(once(lambda: self._events.put(_LanesStarted(name))))
        except ReplicatorError as error:
            code = error.exit_code
            error = error.of_flow(name) if isinstance(error, Incident) else error
            goes_on = len(self._flows) > 1 or self._restarts.waits(name, code)
            if self._tell_end(name, error, log) and goes_on and code != TakenOver.exit_code:
                self._note_end(flow, parts, error, log)
        except BaseException:
            log.exception("bug", exit_code=code)
            raise
        finally:
            self._events.put(_FlowEnded(name, code, worker.stopped_early))

    def _tell_end(self, name: str, error: ReplicatorError, log: structlog.stdlib.BoundLogger) -> bool:
        """Log why a flow has ended; the same cause again, at a later attempt, at level debug. Return whether it is
        news.
        """
        if self._causes.get(name) == str(error):
            log.debug("flow_ended", kind=type(error).__name__, detail=str(error), exit_code=error.exit_code)
            return False
        self._causes[name] = str(error)
        if isinstance(error, Incident):
            tell_incident(log, error)
        log.error("flow_ended", kind=type(error).__name__, detail=str(error), exit_code=error.exit_code)
        return True

    @staticmethod
    def _note_end(flow: Flow, parts: Parts, error: ReplicatorError, log: structlog.stdlib.BoundLogger) -> None:
        """Have it noted where `status` reads it: the process goes on, and its exit code says nothing yet.

        Not after another process has taken the flow over, which the positions say: this one writes nothing any more.
        """
        kind, owner, now_ms = type(error).__name__, process_name(), time.time_ns() // 1_000_000
        end = FlowEnd(
            kind=kind,
            detail=str(error),
            exit_code=error.exit_code,
            owner=owner,
            at_ms=now_ms,
            incident=_incident_of_flow(error),
        )
        try:
            parts.note(flow, end)
        except ReplicatorError as unnoted:
            log.warning("end_not_noted", reason=str(unnoted))

    def _on_signal(self, number: int) -> None:
        """Take a signal, in the thread that hears them."""
        if number == signal.SIGHUP and not (self._has_terminal and not has_terminal()):
            if self._reader is not None:
                self._reader.ask()
            return
        now_s = time.monotonic()
        if self._signalled_s is None:
            self._signalled_s = now_s
            self._events.put(_Signalled(number))
        elif now_s - self._signalled_s >= SAME_SIGNAL_S:
            self._leave(128 + number)  # a second signal: nothing to clean up that the next start doesn't

    def _handle(self, event: _Event) -> None:
        if isinstance(event, _LanesStarted):
            self._restarts.lanes_started(event.flow)
            self._taken_over.discard(event.flow)
            if self._causes.pop(event.flow, None) is not None:
                self._log.info("flow_started_again", flow=event.flow)
        elif isinstance(event, _FlowEnded):
            again = self._restarts.ended(event.flow, event.code, time.monotonic(), early=event.early)
            if event.flow not in self._restarts.codes:
                self._flows = {name: flow for name, flow in self._flows.items() if name != event.flow}
                del self._workers[event.flow]
            if again:
                self._start(event.flow)
            elif self._exit_on_incident and event.code == Incident.exit_code:
                self._restarts.stop()
            if self._restarts.stopping:
                self._stop()
        elif isinstance(event, ReadConfig):
            self._reload(event)
        elif isinstance(event, UnreadConfig):
            detail = "; ".join(line.strip() for line in str(event.error).splitlines())
            self._log.error("config_not_reloaded", detail=detail)
            self._note_fault(detail)
        else:
            self._restarts.stop()
            self._stop()

    def _reload(self, read: ReadConfig) -> None:
        """Take the file as it is now."""
        if self._restarts.stopping:
            return
        after = {flow.name: flow for flow in read.flows}
        changes = compare(self._wanted, after)
        self._log.info(
            "config_reloaded",
            added=list(changes.added),
            removed=list(changes.removed),
            changed=list(changes.changed),
            unchanged=list(changes.unchanged),
            needs_restart=list(needs_restart(self._config, read.config)),
        )
        self._config, self._wanted = read.config, after
        for name in changes.unchanged:
            self._workers[name].take(read.config)
        self._reloaded(read.flows)
        for name in changes.removed:
            if self._restarts.remove(name):
                self._workers[name].stop()
            else:
                self._flows = {other: flow for other, flow in self._flows.items() if other != name}
                del self._workers[name]
        for name in (*changes.added, *changes.changed):
            self._causes.pop(name, None)
            if self._restarts.add(name, after[name].limits.discovery_interval_ms / 1000):
                self._start(name)
            else:
                self._workers[name].stop()
        self._note_fault("")

    def _note_fault(self, detail: str) -> None:
        """Have it noted where `status` reads it that the file has this fault, or none any more."""
        before, self._fault = self._fault, detail
        if before == detail:
            return
        fault = ConfigFault(detail=detail, owner=self._name, at_ms=time.time_ns() // 1_000_000)
        flows = [flow for name, flow in self._flows.items() if self._restarts.stage(name) is Stage.RUNNING]
        threading.Thread(target=self._note_all, args=(flows, fault), name="notes", daemon=True).start()

    def _note_all(self, flows: Sequence[Flow], fault: ConfigFault) -> None:
        for flow in flows:
            log = self._log.bind(flow=flow.name)
            try:
                self._parts(log).note(flow, fault)
            except ReplicatorError as unnoted:
                log.warning("config_fault_not_noted", reason=str(unnoted))

    def _stop(self) -> None:
        """Ask all flows to stop, and set the time at which the process leaves from whatever still runs.

        What is being listed, created or connected before lanes have started isn't waited for.
        """
        alive = [flow for name, flow in self._flows.items() if self._restarts.stage(name) is Stage.RUNNING]
        if self._leave_s is None:
            for worker in self._workers.values():
                worker.stop()
            bounds_s = (flow.limits.stop_timeout_ms / 1000 - margin_s(flow) / 4 for flow in alive)
            self._leave_s = time.monotonic() + max(bounds_s, default=0.0)
        elif not alive:
            self._leave_s = time.monotonic()

    def _timeout_s(self) -> float | None:
        due = [at for at in (self._leave_s, self._restarts.next_due_s()) if at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _on_time(self) -> None:
        now_s = time.monotonic()
        if self._leave_s is not None and now_s >= self._leave_s:
            self._leave_now()
        for name in self._restarts.reminders(now_s):
            self._log.warning(
                "flow_over", flow=name, detail=self._causes.get(name, ""), exit_code=self._restarts.codes[name]
            )
        for name in self._restarts.due(now_s):
            self._log.debug("flow_tried_again", flow=name)
            self._start(name)

    def _leave_now(self) -> None:
        """Leave from whatever still runs: before its lanes have started, a flow has nothing to finish."""
        codes = {
            name: Unreachable.exit_code if self._restarts.stage(name) is Stage.RUNNING else code
            for name, code in self._restarts.codes.items()
        }
        code = worst(codes.values())
        self._log.info("stopped", exit_code=code, flows=codes)
        self._leave(code)


def _nothing(number: int, frame: FrameType | None) -> None:
    """Do nothing, as Python's handler of signals, which are heard by a thread; without one they would end the
    process.
    """


def _incident_of_flow(error: ReplicatorError) -> str:
    """Return the name of an incident that concerns the whole flow, and not a topic that it copies; empty for any
    other.
    """
    if not isinstance(error, Incident) or (error.topic and not error.topic.startswith(STATE_PREFIX)):
        return ""
    return error.name

"""The process: all flows of a file side by side, signals, restarts of flows, and the exit code.

Called by `eos-replicate run`. A first SIGTERM, SIGINT or SIGHUP finishes open transactions; the process is gone within
`limits.stop_timeout_ms`, whatever hangs. A second one leaves at once, which is safe by design: the next start fences,
reads and rewinds. A SIGHUP that was ignored when the process began (nohup) stays ignored.

The main thread owns everything here. Flows and the thread that hears signals only put into its queue.
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
from replicator.flow.restarts import BUG, Restarts, Stage, worst
from replicator.flow.signals import heard
from replicator.flow.worker import FlowWorker, Parts, margin_s
from replicator.incidents import tell_incident
from replicator.model.errors import Incident, ReplicatorError, TakenOver, Unreachable
from replicator.model.names import process_name
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


@dataclass(frozen=True, slots=True)
class _Signalled:
    number: int


def _nothing_more() -> None:
    """Sum up nothing."""


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
        leave: Callable[[int], NoReturn] = os._exit,
    ) -> None:
        """
        Args:
            parts: makes what a flow's worker needs, given its log (see `flow.wiring`).
            take_over: also from a backfill or repair that has a flow.
            exit_on_incident: end all flows, and the process, with the first incident of one of them.
        """
        self._exit_on_incident = exit_on_incident
        self._config, self._parts, self._take_over, self._leave = config, parts, take_over, leave
        self._flows: Mapping[str, Flow] = {flow.name: flow for flow in flows}
        self._log = structlog.get_logger()
        self._events: queue.SimpleQueue[_LanesStarted | _FlowEnded | _Signalled] = queue.SimpleQueue()
        self._signalled_s: float | None = None
        self._workers: dict[str, FlowWorker] = {}
        self._restarts = Restarts({flow.name: flow.limits.discovery_interval_ms / 1000 for flow in flows})
        self._causes: dict[str, str] = {}  # why flows have ended, and don't run again yet
        self._leave_s: float | None = None  # when the process leaves, whatever still runs
        self._sum_up: Callable[[], None] = _nothing_more

    def stages(self) -> dict[str, Stage]:
        """Where each flow stands. From any thread."""
        return {name: self._restarts.stage(name) for name in self._flows}

    def run(self, sum_up: Callable[[], None] = _nothing_more) -> int:
        """Run until every flow has ended; the exit code of the worst of them. `sum_up` logs what there is to say of
        the flows, before the process says that it ends."""
        self._sum_up = sum_up
        gc.freeze()
        gc.set_threshold(GC_YOUNG_OBJECTS_MAX)
        with heard(self._on_signal):
            for number in SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, _nothing)
            code = self._run_flows()
            for number in SIGNALS:  # Python's own end would restore the default, which kills instead of this exit code
                signal.signal(number, signal.SIG_IGN)
        return code

    def _run_flows(self) -> int:
        for name in self._flows:
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
        how = {"take_over": self._take_over, "exit_on_incident": self._exit_on_incident}
        worker = FlowWorker(self._flows[name], self._config, parts, log, **how)
        self._workers[name] = worker
        threading.Thread(target=self._flow, args=(name, worker, parts, log), name=name, daemon=True).start()

    def _flow(self, name: str, worker: FlowWorker, parts: Parts, log: structlog.stdlib.BoundLogger) -> None:
        """The thread of one attempt to run a flow."""
        code = BUG
        try:
            code = worker.run(lambda: self._events.put(_LanesStarted(name)))
        except ReplicatorError as error:
            code = error.exit_code
            if self._tell_end(name, error, log) and len(self._flows) > 1 and code != TakenOver.exit_code:
                self._note_end(self._flows[name], parts, error, log)
        except BaseException:
            log.exception("bug", exit_code=code)
            raise
        finally:
            self._events.put(_FlowEnded(name, code))

    def _tell_end(self, name: str, error: ReplicatorError, log: structlog.stdlib.BoundLogger) -> bool:
        """Log why a flow has ended; the same cause again, at a later attempt, at level debug. Whether it is news."""
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
        end = FlowEnd(kind=kind, detail=str(error), exit_code=error.exit_code, owner=owner, at_ms=now_ms)
        try:
            parts.note_end(flow, end)
        except ReplicatorError as unnoted:
            log.warning("end_not_noted", reason=str(unnoted))

    def _on_signal(self, number: int) -> None:
        """In the thread that hears signals."""
        now_s = time.monotonic()
        if self._signalled_s is None:
            self._signalled_s = now_s
            self._events.put(_Signalled(number))
        elif now_s - self._signalled_s >= SAME_SIGNAL_S:
            self._leave(128 + number)  # a second signal: nothing to clean up that the next start doesn't

    def _handle(self, event: _LanesStarted | _FlowEnded | _Signalled) -> None:
        if isinstance(event, _LanesStarted):
            self._restarts.lanes_started(event.flow)
            if self._causes.pop(event.flow, None) is not None:
                self._log.info("flow_started_again", flow=event.flow)
        elif isinstance(event, _FlowEnded):
            self._restarts.ended(event.flow, event.code, time.monotonic())
            if self._exit_on_incident and event.code == Incident.exit_code:
                self._restarts.stop()
            if self._restarts.stopping:
                self._stop()
        else:
            self._restarts.stop()
            self._stop()

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
    """Python's handler of signals, which are heard by a thread; without one they would end the process."""

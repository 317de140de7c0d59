"""Runs the demo: starts everything, kills it by a seeded schedule while data flows, waits, and compares."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from cli.demo import schedule, topic_reader
from cli.demo.compare import compare_records
from cli.demo.crew import Crew, timeline
from cli.demo.model import FLOW, RENAMED, TOPICS, DemoFailed, DemoResult, Progress, Settings
from cli.demo.processes import BrokerProcess, Child
from cli.demo.proof import Reconciliation
from cli.demo.watch import Watch
from cli.demo.worker import Worker

TICK_S = 0.05
OFFSETS_EVERY_S = 0.2
CATCH_UP_S_MAX = 60.0
LATE_S_MAX = 90.0
LANES_MIN = 4  # so that a worker that is lost is missed


class Orchestrator:
    """One run in `directory`; `show` is called with the progress several times a second."""

    def __init__(self, settings: Settings, directory: Path, show: Callable[[Progress], None]) -> None:
        self._settings, self._directory, self._show = settings, directory, show
        self._progress = Progress()
        self._began = time.monotonic()
        self._next_offsets_s = 0.0
        self._held = 0  # records on the target; known at the end, with what killed workers had no time to log
        self._crew = None
        self._worker: Worker | Crew = Worker(directory / "flow.yaml", directory / "replicator.log")
        if settings.workers > 1:
            self._worker = self._crew = Crew(directory / "flow.yaml", directory, settings.workers, settings.seed)
        self._stack = ExitStack()

    def run(self) -> DemoResult:
        """Run the whole demo. Raises DemoFailed when there can be no verdict; all children have ended in any case."""
        with self._stack:
            source, target = self._broker("source"), self._broker("target")
            source.ready()
            topic_reader.create_topics(source.address, TOPICS)
            load = self._load(source.address)
            target.ready()
            self._watch = Watch(source.address, target.address)
            self._stack.callback(self._watch.close)
            self._write_flow_file(source.address, target.address)
            self._kill_by_schedule(load, target)
            if self._crew is not None:
                self._restart_in_turn(self._crew)
            written = self._finish_load(load)
            self._catch_up(target)
            self._worker.stop()
            return self._compare(source.address, target.address, written)

    def _broker(self, name: str) -> BrokerProcess:
        broker = BrokerProcess(name, self._directory)
        self._stack.callback(broker.kill)
        return broker

    def _load(self, address: str) -> Child:
        settings = self._settings
        topics = ",".join(f"{name}:{count}" for name, count in TOPICS.items())
        numbers = (settings.seed, settings.records, settings.records / settings.seconds)
        load = Child(["cli.demo.load", address, topics, *map(str, numbers)], self._directory / "load.log")
        self._stack.callback(load.kill)
        return load

    def _write_flow_file(self, source: str, target: str) -> None:
        self._worker.flow_file.write_text(
            f"""clusters:
  source: {{properties: {{bootstrap.servers: "{source}", reconnect.backoff.max.ms: "500"}}}}
  target: {{properties: {{bootstrap.servers: "{target}", reconnect.backoff.max.ms: "500"}}}}
flows:
  {FLOW}:
    source: source
    target: target
    topics: [{", ".join(TOPICS)}]
    delivery: {self._settings.delivery}
    lanes: {max(LANES_MIN, self._settings.workers) if self._crew else 1}
    limits: {{request_timeout_ms: 10000, transaction_timeout_ms: 20000}}
"""
        )

    def _kill_by_schedule(self, load: Child, target: BrokerProcess) -> None:
        """Return when all kills have happened and the load has run for long enough; the worker then runs."""
        settings = self._settings
        plan = schedule.draw(settings.seed, settings.seconds, settings.kills, settings.broker_kills, settings.at_steps)
        killing, breaking = deque(plan.worker), deque(plan.broker)
        load.line()  # it writes
        began = time.monotonic()
        self._start_worker(killing)
        self._say("copying, and killing" if killing or breaking else "copying")
        while True:
            elapsed_s = time.monotonic() - began
            if elapsed_s >= settings.seconds and not killing and not breaking:
                return
            if breaking and elapsed_s >= breaking[0] and self._progress.copied:
                breaking.popleft()
                self._break(target)
            if killing and self._killed(killing[0], elapsed_s):
                killing.popleft()
                self._progress.worker_kills += 1
                self._start_worker(killing)
            if elapsed_s > settings.seconds + LATE_S_MAX:
                raise self._worker.child.failed("committed nothing, so the scheduled kills could not happen")
            if not load.running():
                raise load.failed("ended by itself")
            self._tick(target)

    def _start_worker(self, killing: deque[schedule.WorkerKill]) -> None:
        self._worker.start(killing[0].point if killing else "")
        for child in self._worker.children:
            self._stack.callback(child.kill)

    def _restart_in_turn(self, crew: Crew) -> None:
        self._say("restarting in turn")
        for said in crew.restart_in_turn():
            for child in crew.children:
                self._stack.callback(child.kill)
            self._tell(said)

    def _killed(self, kill: schedule.WorkerKill, elapsed_s: float) -> bool:
        """Return whether this kill has now happened: by the worker itself at its failpoint, or from here at its
        time.
        """
        worker = self._worker
        if kill.point:
            if not worker.has_killed_itself():
                return False
            self._tell(f"worker killed at {kill.point.partition('@')[0]}")
            return True
        since = worker.committing_since
        if elapsed_s < kill.at_s or since is None or time.monotonic() - since < kill.at_work_s:
            return False
        self._tell(f"{worker.kill()} killed")
        return True

    def _break(self, target: BrokerProcess) -> None:
        target.kill()
        self._progress.broker_kills += 1
        self._tell("target broker killed")
        target.restart()
        self._tell("target broker is back")

    def _finish_load(self, load: Child) -> int:
        """Stop the load; returns how many records it has written and not aborted."""
        self._say("stopping the load")
        code = load.stop()
        if code != 0:
            raise load.failed(f"ended with {code}")
        return int(load.line())

    def _catch_up(self, target: BrokerProcess) -> None:
        """Return when the flow's positions have reached the ends of the source and the worker can be stopped."""
        self._say("catching up")
        deadline = time.monotonic() + CATCH_UP_S_MAX
        self._next_offsets_s = 0.0  # offsets read while the load still wrote don't say where it ended
        while not (self._tick(target) and self._worker.has_position):
            if time.monotonic() > deadline:
                raise self._worker.child.failed(f"did not catch up within {CATCH_UP_S_MAX:.0f} s")

    def _tick(self, target: BrokerProcess) -> bool:
        """Update and show the progress; whether offsets read just now say that the target has caught up."""
        target.check()
        self._worker.read_log()
        if self._worker.copied and not self._progress.copied:
            self._tell("first records copied")
        caught_up = False
        if time.monotonic() >= self._next_offsets_s:
            seen = self._watch.offsets()
            self._next_offsets_s = time.monotonic() + OFFSETS_EVERY_S
            if seen is not None:
                self._progress.written, self._progress.committed = seen
                self._progress.lag = max(0, seen[0] - seen[1])
                caught_up = seen[0] == seen[1]
        self._report()
        time.sleep(TICK_S)  # the rate of the display
        return caught_up

    def _compare(self, source: str, target: str, written: int) -> DemoResult:
        self._say("comparing every record")
        reconciliation = self._reconciliation() if self._settings.delivery == "exactly_once" else None
        here = topic_reader.read(source, TOPICS)
        there = topic_reader.read(target, {RENAMED.format(name): count for name, count in TOPICS.items()})
        held = sum(map(len, here.values()))
        if held != written:
            raise DemoFailed(f"the load has written {written} records and the source holds {held}")
        verdicts = {at: compare_records(records, there[RENAMED.format(at[0]), at[1]]) for at, records in here.items()}
        proof = reconciliation.proof() if reconciliation is not None else None
        progress = self._progress
        self._held = sum(map(len, there.values()))
        self._say("done")
        return DemoResult(
            verdicts,
            progress.worker_kills,
            progress.broker_kills,
            tuple(self._worker.recoveries_s),
            progress.seconds,
            proof,
            tuple(timeline(self._crew.held())) if self._crew is not None else (),
        )

    def _reconciliation(self) -> Reconciliation:
        started = Reconciliation(self._worker.flow_file, FLOW, self._directory / "reconcile.log")
        self._stack.callback(started.child.kill)
        return started

    def _say(self, phase: str) -> None:
        self._progress.phase = phase
        self._report()

    def _tell(self, what: str) -> None:
        self._progress.events.append(f"{time.monotonic() - self._began:.1f} s: {what}")
        self._report()

    def _report(self) -> None:
        progress = self._progress
        progress.seconds = round(time.monotonic() - self._began, 1)
        progress.copied = max(self._worker.copied, self._held)
        self._show(progress)

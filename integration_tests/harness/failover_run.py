"""One failover under load, as `failover_plan` has drawn it: what happens, and what is noted meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from confluent_kafka import TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import ASKED_S_MAX, Copying
from integration_tests.harness.failing_over import failover, started
from integration_tests.harness.failover_plan import OF_SOURCE, OF_WORKERS, FailoverPlan, Fault, Kill
from integration_tests.harness.group_at_source import GroupAtSource
from integration_tests.harness.group_reading import begin
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator
from integration_tests.harness.source_writers import Writers, now_ms
from integration_tests.harness.target_watch import TargetWatch
from integration_tests.harness.two_topics import TwoTopics
from replicator.model.partition import Partition

ATTEMPTS = 5
PAUSE_S = 2.0
GONE = {0, 1}
"""Exit codes of a failover that has a verdict."""
AGAIN = {-signal.SIGKILL, 3}
"""Those after which it is given again: it was killed, or a cluster didn't answer."""


class FailoverRun:
    """A flow of two topics with its workers, writers and a consumer group, until it is failed over."""

    def __init__(
        self,
        plan: FailoverPlan,
        copying: Copying,
        brokers: tuple[BrokerHandle, BrokerHandle],
        unique: Callable[[str], str],
    ) -> None:
        """`brokers`: the source's and the target's."""
        self.plan, self.copying, (self._source, self._target) = plan, copying, brokers
        self._unique, self._draw = unique, Random(f"run {plan.seed}")
        flow = self.flow = TwoTopics(copying, plan.partitions[1])
        self.places = [
            Partition(topic, number)
            for topic, count in zip((flow.first, flow.second), plan.partitions, strict=True)
            for number in range(count)
        ]
        self.copies = {at: Partition(flow.copy_of(at.topic), at.partition) for at in self.places}
        ids = [unique("writer") for _ in range(plan.writers)]
        self.writers = Writers(copying.source, self.places, ids, plan.seed, plan.pause_s)
        self.name = unique("group")
        self.group = GroupAtSource(copying.source, self.name, [flow.first, flow.second], plan.group)
        self.watch = TargetWatch(copying.target, copying.name, self.name)
        self.workers: list[Replicator] = []
        self._stopped: list[Replicator] = []
        self._command: subprocess.Popen[str] | None = None
        self._kills, self._due = list(plan.kills), list[tuple[float, Callable[[], None]]]()
        self._plain = 0
        self.began_ms, self.asked_ms, self.frozen_s = 0, 0, 0.0
        self.code, self.verdict = -1, dict[str, Any]()
        self.ends: dict[Partition, int] = {}

    def put(self, count: int) -> None:
        """Write so many records to each partition, outside transactions."""
        client = clients.producer(self.copying.source)
        for number in range(count):
            for at in self.places:
                key = f"{at} {self._plain + number}".encode()
                client.produce(at.topic, b"plain", key, partition=at.partition)
            client.poll(0)
        assert client.flush(clients.TIMEOUT_S) == 0
        self._plain += count

    def begin(self) -> None:
        """Start all of it, and wait until the group is synced."""
        self.put(self.plan.records)
        begin(self.copying.source, self.name, [(*at, 0) for at in self.places])
        for _ in range(self.plan.workers):
            self._start_worker()
        try:
            self.watch.wait_rounds(2)
            wait_until(lambda: min(self.group_offsets().values()) >= 0, "the group is synced", self.workers_say)
        except AssertionError as error:
            error.add_note(self.workers_say())
            raise
        self.began_ms = now_ms()
        self.tell("the load begins")
        self.writers.start()
        self.group.start()

    def close(self) -> None:
        """End what runs in threads, whatever state a test has left it in."""
        if not self._source.alive():
            self._source.restart()
        self.writers.dies()
        self.writers.join()
        self.group.end()
        self.watch.stop()

    def workers_say(self) -> str:
        """What workers say."""
        return "\n---\n".join(it.tail() for it in self.workers)

    def _start_worker(self) -> None:
        self.workers.append(self.copying.run("", "--shared"))

    def group_offsets(self) -> dict[Partition, int]:
        """Where the group stands at the target, by source partition; negative where it has no offset."""
        return {
            at: clients.committed(self.copying.target, self.name, *copy, stable=False).offset
            for at, copy in self.copies.items()
        }

    def positions(self) -> dict[Partition, int]:
        """How far each partition is copied, by source partition, once no transaction is open over it."""
        return {
            at: max(0, clients.committed(self.copying.target, self.copying.group, *copy).offset)
            for at, copy in self.copies.items()
        }

    def target_ends(self) -> dict[Partition, int]:
        """Where the copies end, open transactions included."""
        client = clients.consumer(self.copying.target, isolation_level="read_uncommitted")
        try:
            return {
                at: client.get_watermark_offsets(TopicPartition(*copy), timeout=30, cached=False)[1]
                for at, copy in self.copies.items()
            }
        finally:
            client.close()

    def fail_over(self) -> None:
        """Let all happen that is drawn, up to a verdict."""
        began_s = time.monotonic()
        self._due = [(began_s + at_s, partial(self._befall, fault)) for at_s, fault in self.plan.faults]
        self._due.append((began_s + self.plan.failover_s, self._ask))
        while self._due:
            at_s, act = self._due.pop(self._due.index(min(self._due, key=lambda it: it[0])))
            time.sleep(max(0.0, at_s - time.monotonic()))  # the moment is drawn: nothing tells when it has come
            act()
        for _ in range(ATTEMPTS):
            assert self._command is not None
            said, why = self._command.communicate(timeout=ASKED_S_MAX)
            self.code = self._command.returncode
            if self.code in GONE:
                break
            self.tell(f"failover ended with {self.code}: {why.strip()[-300:]}")
            assert self.code in AGAIN, why
            self._ask()
        assert self.code in GONE, "no verdict"
        self.frozen_s = time.time()
        self.verdict = json.loads(said)
        self.ends = self.target_ends()
        self.tell("there is a verdict")
        self.watch.stop()

    def _ask(self) -> None:
        """Give the command, and kill it later if that is drawn."""
        kill = self._kills.pop(0) if self._kills else None
        self.asked_ms = self.asked_ms or now_ms()
        points = f"{kill.step}@1=kill" if kill is not None and kill.step else ""
        self._command = started(self.copying, "--json", failpoints=points)
        self.tell(f"failover {points}")
        if kill is not None:
            self._due.append((time.monotonic() + kill.after_s, partial(self._killed, kill)))

    def _killed(self, kill: Kill) -> None:
        """Kill the command, or wait until it has died at its step, and give it again."""
        assert self._command is not None
        if not kill.step:
            self._command.kill()
        _, why = self._command.communicate(timeout=ASKED_S_MAX)
        self.tell(f"failover has ended with {self._command.returncode}")
        assert self._command.returncode in {*GONE, *AGAIN}, why
        self._ask()

    def tell(self, text: str) -> None:
        print(f"{now_ms() - self.began_ms} ms: {text}")

    def _befall(self, fault: Fault) -> None:
        self.tell(fault.value)
        running = [it for it in self.workers if it not in self._stopped and it.runs_on(0)]
        if fault in OF_WORKERS and running:
            self._befall_worker(fault, self._draw.choice(running))
        elif fault in OF_SOURCE:
            self.writers.may_die()
            self.group.may_die()
            if fault is Fault.SOURCE_DIES:
                self.writers.dies()
            self._source.kill()
            if fault is Fault.SOURCE_RESTARTS:
                self._source.restart()
        elif fault is Fault.TARGET_RESTARTS:
            self._target.kill()
            self._target.restart()
        elif fault is Fault.LEFT_OPEN and self._source.alive():
            some = self._draw.sample(self.places, self._draw.randint(1, min(2, len(self.places))))
            self.writers.leave_open(self._unique("left"), some)

    def _befall_worker(self, fault: Fault, worker: Replicator) -> None:
        if fault in (Fault.WORKER_DIES, Fault.WORKER_RESTARTS):
            worker.kill()
            if fault is Fault.WORKER_RESTARTS:
                self._start_worker()
            return
        worker.suspend()
        if fault is Fault.WORKER_STANDS_STILL:
            self._stopped.append(worker)
        else:
            time.sleep(PAUSE_S)
            worker.resume()

    def after(self) -> None:
        """The source comes back and is written to, workers wake up, and others are started: they copy nothing."""
        if not self._source.alive():
            self._source.restart()
        self.writers.stop()
        self.writers.end_left_open(self._draw)
        self.group.stop()
        self.put(5)
        marks = [(it, it.mark()) for it in self._stopped]
        for it, _ in marks:
            it.resume()
        for it, mark in marks:
            wait_until(lambda it=it, mark=mark: it.mark() > mark or not it.runs_on(0), "it wakes up", it.tail)  # type: ignore[misc]
        if not any(it.runs_on(0) for it in self.workers) or self._draw.random() < 0.3:
            self._start_worker()
        wait_until(self._kept, "who runs the flow keeps the positions", self.workers_say)
        self.tell("the positions are kept")

    def _kept(self) -> bool:
        return any(it.seen("positions_kept") for it in self.workers)

    def undone(self) -> None:
        """Undo it, and wait until all is copied; then everybody stops."""
        code, undone = failover(self.copying, "--undo")
        assert code == 0, undone
        if not any(it.runs_on(0) for it in self.workers):
            self._start_worker()
        self.put(1)
        last = {at: clients.stable_end(self.copying.source, *at) for at in self.places}
        self.tell("it is undone")
        wait_until(lambda: self.positions() == last, "all is copied", self.workers_say)
        self.tell("all is copied")
        for it in self.workers:
            if it.runs_on(0):
                assert it.stop() == 0, it.tail()

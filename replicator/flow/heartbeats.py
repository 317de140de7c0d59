"""Heartbeat records: written at the source, copied by the flow like all others, and awaited at the target.

So what is measured is what a reader of the copy sees: from the moment at which a record was handed to the source's
client to that at which a read_committed reader of the target got it, by one clock. Started by `flow.wiring` in a thread
beside the lanes, which it never holds up: whatever fails here is told, and tried again.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import structlog

from replicator.config import Flow
from replicator.kafka.admin import TopicSpec
from replicator.lane.ports import Clock
from replicator.model import names
from replicator.model.errors import LocalFault, ReplicatorError, Unreachable

DAY_MS = 86_400_000
POLL_S = 0.5  # at most, until a stop is noticed
AWAITED_MAX = 1_000
"""Heartbeats that have not arrived, of which the time is kept: older ones are not measured any more."""
HeartbeatObserver = Callable[[float, int], None]
"""Is told of each that has arrived: how long it took (s), and when it was written (ms since 1970 UTC)."""


class TopicMaker(Protocol):
    """As far as `kafka.admin.ClusterAdmin` is asked for it."""

    def create_topics(self, specs: Sequence[TopicSpec]) -> dict[str, bool | ReplicatorError]:
        """Create topics that don't exist; why not, by name."""
        ...


class HeartbeatClients(Protocol):
    """Both clients of one flow, see `kafka.heartbeat_clients`."""

    def write(self, value: bytes) -> None:
        """Have a record written; `failure` says later if it was not."""
        ...

    def failure(self) -> ReplicatorError | None:
        """Return what went wrong since it was asked for last, at the source or at the target."""
        ...

    def read(self, timeout_s: float) -> Iterator[bytes]:
        """Yield values that have arrived at the target; wait at most so long for the first."""
        ...

    def close(self) -> None:
        """Let go of both clusters."""
        ...


def heartbeats_spec(flow: Flow) -> TopicSpec:
    """Describe the topic at the source, which keeps a day's heartbeats on one partition."""
    configs = {"cleanup.policy": "delete", "retention.ms": str(DAY_MS)}
    return TopicSpec(names.heartbeats_topic(flow.name), 1, flow.topic_configs.replication_factor, configs)


def prepare_heartbeats(flow: Flow, source: TopicMaker, log: structlog.stdlib.BoundLogger) -> None:
    """Make sure of the topic at the source, if the flow has heartbeats. Without it copying goes on, and that is said.
    Raises nothing."""
    if not flow.heartbeat:
        return
    spec = heartbeats_spec(flow)
    try:
        answer = source.create_topics([spec])[spec.name]
    except ReplicatorError as error:
        answer = error
    if isinstance(answer, ReplicatorError):
        log.warning("heartbeats_failed", reason=str(answer))
    elif answer:
        log.info("topic_created", topic=spec.name, partitions=1)


class Heartbeats:
    """Of one flow. Its thread ends when `ended` is set."""

    def __init__(
        self,
        flow: Flow,
        make_clients: Callable[[], HeartbeatClients],
        seen: HeartbeatObserver,
        ended: threading.Event,
        log: structlog.stdlib.BoundLogger,
        clock: Clock,
    ) -> None:
        """`make_clients` is called in the thread, and again after each interval while it raises Unreachable or
        LocalFault: a token command may have none yet, or a certificate is just being replaced."""
        self._interval_s = flow.heartbeat / 1000
        self._make_clients = make_clients
        self._clients: HeartbeatClients | None = None
        self._seen, self._ended, self._log, self._clock = seen, ended, log, clock
        self._run = uuid.uuid4().hex  # a heartbeat of another process says nothing of this one's clock
        self._number = 0
        self._awaited: dict[int, tuple[float, int]] = {}  # when each was written: monotonic (s), wall clock (ms)
        self._due_s = clock.now_s()
        self._told = ""

    def run(self, failed: Callable[[BaseException], None]) -> None:
        """Run until it has ended; this is the thread's work. `failed` is told of a bug, which ends it."""
        try:
            try:
                while not self._ended.is_set():
                    self.step()
            finally:
                if self._clients is not None:
                    self._clients.close()
        except BaseException as error:  # noqa: BLE001 - the flow classifies it
            failed(error)

    def step(self) -> None:
        """Write one if it is time, and take what has arrived."""
        if self._clients is None:
            try:
                self._clients = self._make_clients()
            except (Unreachable, LocalFault) as error:
                self._tell(error)
                self._clock.wait(self._ended, self._interval_s)
                return
            self._due_s = self._clock.now_s()
        now_s = self._clock.now_s()
        if now_s >= self._due_s:
            self._due_s = max(self._due_s + self._interval_s, now_s)
            self._write(self._clients, now_s)
        for value in self._clients.read(max(0.0, min(POLL_S, self._due_s - now_s))):
            self._arrived(value)
        self._tell(self._clients.failure())

    def _write(self, clients: HeartbeatClients, now_s: float) -> None:
        self._number += 1
        self._awaited[self._number] = now_s, (now_ms := self._clock.now_ms())
        if len(self._awaited) > AWAITED_MAX:
            del self._awaited[next(iter(self._awaited))]
        clients.write(json.dumps({"v": 1, "run": self._run, "n": self._number, "ms": now_ms}).encode())

    def _arrived(self, value: bytes) -> None:
        try:
            found = json.loads(value)
            run, number = str(found["run"]), int(found["n"])
        except (ValueError, KeyError, TypeError):
            return  # somebody else writes there
        if run != self._run or number not in self._awaited:
            return
        written_s, written_ms = self._awaited.pop(number)
        self._told = ""
        self._seen(self._clock.now_s() - written_s, written_ms)

    def _tell(self, error: ReplicatorError | None) -> None:
        """Tell what fails once for each reason, and again after one has arrived meanwhile."""
        if error is not None and str(error) != self._told:
            self._told = str(error)
            self._log.warning("heartbeats_failed", reason=self._told)


def watch_heartbeats(
    flow: Flow,
    clients: Callable[[], HeartbeatClients],
    seen: HeartbeatObserver,
    ended: threading.Event,
    log: structlog.stdlib.BoundLogger,
    failed: Callable[[BaseException], None],
    clock: Clock,
) -> None:
    """Start the thread, if the flow has heartbeats; `clients` makes what it writes and reads with."""
    if flow.heartbeat:
        work = Heartbeats(flow, clients, seen, ended, log, clock).run
        threading.Thread(target=work, args=(failed,), name=f"{flow.name}.heartbeats", daemon=True).start()

"""All parts of one simulated run: the machine, the network, the clients of its workloads. Created by `run.simulate`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from embedded_broker.config.settings import Fsync
from embedded_broker.simulation import checker
from embedded_broker.simulation.fetching import Style
from embedded_broker.simulation.history import History, RunTopic, TopicPartition, ViolationKind
from embedded_broker.simulation.loop import Process, SimulatedLoop
from embedded_broker.simulation.machine import Machine
from embedded_broker.simulation.network import GOOD_CONDITIONS, Network
from embedded_broker.simulation.readers import SimulatedReader
from embedded_broker.simulation.schedule import LOG_START, RunSchedule
from embedded_broker.simulation.trace import Trace
from embedded_broker.simulation.transactional import TransactionalClient
from embedded_broker.simulation.wire import NoResponse, SimulatedClient

FAULTS_END_S = 60.0
"""Virtual time from which on no connection breaks or stalls any more. Until then a client may have to begin its
transaction anew again and again, although the broker does all it should."""
DEADLINE_S, STALLED_S = 120.0, 60.0
"""Virtual time: after the first, FAULTS_END_S and as long for whatever is left, a run counts as hung once nothing more
has been acknowledged for the second. With a disk whose fsyncs take long, transactions take seconds each."""
CATCHES_UP_S = 40.0
"""After the last write: time for stalled connections, and for restarts."""
Logs = Mapping[TopicPartition, checker.Log]


class Workload(Protocol):
    """Clients of one kind, and the checks of their results. See `schedule.WorkloadKind`."""

    @property
    def topics(self) -> Sequence[RunTopic]:
        """Topics that its clients use."""

    @property
    def transactional_ids(self) -> Sequence[str]:
        """To be fenced at the end."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Fields of BrokerConfig."""

    async def work(self) -> None:
        """Run the clients, during all faults, until everything is written and read."""

    async def settle(self) -> None:
        """Wait until its clients have recovered; no more faults happen."""

    async def audit(self, committed: Logs, everything: Logs) -> None:
        """Compare the clients' results with the logs at the end, when no client runs any more."""


class World:
    """The state of one run."""

    def __init__(self, seed: int, loop: SimulatedLoop, schedule: RunSchedule) -> None:
        self.seed, self.loop, self.schedule = seed, loop, schedule
        self.trace, self.history = Trace(), History()
        self.network = Network(loop, self.random("network"), schedule.conditions, self.trace)
        self.machine: Machine
        self.groups = [Process("clients", self.network.process_died)]
        """Processes of clients that are killed together; the last one runs."""
        self._workloads: list[Workload] = []
        self._passed: dict[tuple[str, bool], int] = {}

    def random(self, of: str) -> Random:
        """Return randomness of its own for each part, so that a change of one doesn't change the others."""
        return Random(f"{self.seed} {of}")

    def client(self, name: str, timeout_s: float | None = None) -> SimulatedClient:
        """Make a new client."""
        return SimulatedClient(self.network, self.random(name), timeout_s or self.schedule.client_timeout_s)

    def reader(self, name: str, topic: RunTopic, committed: bool) -> SimulatedReader:
        """Make a reader of all partitions of a topic."""
        client = self.client(name)
        return SimulatedReader(client, self.history, name, topic.all, committed, Style.of(client.random))

    def txn_client(self, name: str, transactional_id: str, implicit: bool) -> TransactionalClient:
        """Make a holder of a transactional id."""
        return TransactionalClient(self.client(name), self.history, transactional_id, implicit)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a client that runs by itself."""
        return self.loop.spawn(self.groups[-1], work)

    async def run(self, workloads: Sequence[Workload]) -> None:
        """Run everything, and the audit."""
        self._workloads += workloads
        settings: dict[str, Any] = {}
        for workload in workloads:
            settings |= workload.settings
            self.history.topics.update((topic.name, topic) for topic in workload.topics)
        self.machine = Machine(self.network, self.random("machine"), self.history, self.trace, self.schedule, settings)
        self.network.on_answer = self._count_answer
        self.machine.on_request = partial(self._count_message, on_request=True)
        self.machine.disk.on_log_start = partial(self._count_message, LOG_START, on_request=False)
        self.machine.start()
        for name, work in (("work", self._work), ("audit", self._audit)):
            try:
                await self._unless_hung(work())
            except TimeoutError:
                self.history.found(ViolationKind.BROKEN, f"the {name} isn't done after {self.loop.now_s:.0f} s")
            self.loop.kill(self.groups[-1])
            self.groups.append(Process("auditors", self.network.process_died))

    async def _unless_hung(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it. Raises TimeoutError when it doesn't end, see `DEADLINE_S`."""
        async with asyncio.timeout(None) as limit:

            def look(before: int) -> None:
                now = self.history.acknowledged()
                if now == before:
                    limit.reschedule(self.loop.time())
                else:
                    watching.append(self.loop.call_later(STALLED_S, look, now))

            watching = [self.loop.call_later(DEADLINE_S, look, -1)]
            try:
                await self.spawn(work)
            finally:
                watching[-1].cancel()

    async def _work(self) -> None:
        await self._create_topics()
        if self.schedule.settings["fsync"] is not Fsync.ALWAYS:
            await self.machine.restart()  # the topics, too, are durable only then
        self._schedule_faults()
        await asyncio.gather(*(self.spawn(workload.work()) for workload in self._workloads))
        self._calm_network()
        await asyncio.gather(*(self.spawn(workload.settle()) for workload in self._workloads))

    def _calm_network(self) -> None:
        self.network.conditions = GOOD_CONDITIONS

    def _schedule_faults(self) -> None:
        schedule, machine, later = self.schedule, self.machine, self.loop.call_later
        later(FAULTS_END_S - self.loop.now_s, self._calm_network, context=machine.outside)
        for at_s, operations in schedule.crashes:
            later(at_s, machine.crash, operations, context=machine.outside)
        for at_s, offset_ms in schedule.clock_steps:
            later(at_s, machine.set_clock, offset_ms, context=machine.outside)
        if schedule.disk_full is not None:
            later(schedule.disk_full.at_s, machine.fill_disk, schedule.disk_full, context=machine.outside)
        if schedule.failed_sync is not None:
            later(schedule.failed_sync.at_s, machine.fail_sync, schedule.failed_sync, context=machine.outside)

    def _count_answer(self, api: str, answer: Any) -> None:
        if api != "fetch" or any(each.records for topic in answer.responses for each in topic.partitions):
            self._count_message(api, on_request=False)

    def _count_message(self, api: str, on_request: bool) -> None:
        """Count a request or response, and crash the machine if it is the target of a crash."""
        moment = api, on_request
        count = self._passed[moment] = self._passed.get(moment, 0) + 1
        for crash in self.schedule.targeted_crashes:
            if (crash.api, crash.on_request, crash.count) == (*moment, count):
                self.loop.call_soon(self.machine.crash, crash.operations, context=self.machine.outside)

    async def _create_topics(self) -> None:
        client = self.client("admin")
        for topic in self.history.topics.values():
            configs = [{"name": name, "value": value} for name, value in self._configs(topic).items()]
            wanted = {"num_partitions": topic.partitions, "replication_factor": 1, "configs": configs}
            answer = await client.ask("create_topics", 7, topics=[{"name": topic.name, **wanted}], timeout=10_000)
            error_code = answer.topics[0].error_code
            assert error_code in (ErrorCode.none, ErrorCode.topic_already_exists), error_code

    def _configs(self, topic: RunTopic) -> Mapping[str, str]:
        segment_ms = self.schedule.segment_ms
        return topic.configs or ({} if segment_ms is None else {"segment.ms": str(segment_ms)})

    async def _audit(self) -> None:
        """Cut the power once more, then read and check everything."""
        self.machine.cut_power(0)
        for workload in self._workloads:
            for transactional_id in workload.transactional_ids:
                await self.txn_client(f"audit of {transactional_id}", transactional_id, False).initialise()
        committed: dict[TopicPartition, checker.Log] = {}
        everything: dict[TopicPartition, checker.Log] = {}
        keys: dict[TopicPartition, Mapping[int, bytes]] = {}
        for topic in self.history.topics.values():
            for logs, level in ((committed, True), (everything, False)):
                name = f"audit of {topic.name}, {level}"
                reader = SimulatedReader(self.client(name), self.history, name, topic.all, level)
                await read_to_the_end(reader)
                logs.update({partition: reads.values for partition, reads in reader.reads.items()})
                if committed is logs and topic.is_compacted:
                    keys.update({partition: reads.keys for partition, reads in reader.reads.items()})
        checker.check(self.history, committed, everything)
        for partition, found in keys.items():
            checker.check_keys(self.history, partition, committed[partition], found)
        for workload in self._workloads:
            await workload.audit(committed, everything)


async def read_until(reader: SimulatedReader, done: asyncio.Event) -> None:
    """Poll until `done`, also after lost connections; then up to what is there."""
    ends: Mapping[TopicPartition, int] = {}
    late_s = math.inf
    while not done.is_set() or not ends or any(reader.positions[each] < end for each, end in ends.items()):
        try:
            if done.is_set() and not ends:
                ends, late_s = await reader.ends(), reader.client.now_s + CATCHES_UP_S
            await reader.poll()
        except NoResponse:
            await reader.client.pause()
        if reader.client.now_s > late_s:
            reader.starved(ends)
            return


async def read_to_the_end(reader: SimulatedReader) -> None:
    """Poll until there is nothing more."""
    while True:
        try:
            before = dict(reader.positions)
            await reader.poll(max_wait_ms=200)
        except NoResponse:
            await reader.client.pause()
        else:
            if reader.positions == before and all(
                reader.positions[each] >= reads.high_watermark for each, reads in reader.reads.items()
            ):
                return

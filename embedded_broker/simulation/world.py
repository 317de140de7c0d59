"""All that takes part in one run: the machine, the network, the clients of its plays, and the order of events."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from embedded_broker.simulation import checker
from embedded_broker.simulation.history import History, Kind, Topic, TopicPartition
from embedded_broker.simulation.loop import Process, SimulatedLoop
from embedded_broker.simulation.machine import Machine
from embedded_broker.simulation.network import CALM, Network
from embedded_broker.simulation.reading import Reader
from embedded_broker.simulation.schedule import PLAYBILL, Schedule
from embedded_broker.simulation.trace import Trace
from embedded_broker.simulation.transacting import Transactor
from embedded_broker.simulation.wire import Client, Gone

DEADLINE_S = 120.0
"""Of virtual time: whatever isn't done by then never will be."""
SCAN_BYTES_MAX = 30_000
Logs = Mapping[TopicPartition, checker.Log]


class Drama(Protocol):
    """Clients of one kind and what is asked of them. See `schedule.Play`."""

    @property
    def topics(self) -> Sequence[Topic]:
        """What it works on."""

    @property
    def transactional_ids(self) -> Sequence[str]:
        """To be fenced at the end."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Of BrokerConfig."""

    async def work(self) -> None:
        """Through all disasters, until everything is written and read."""

    async def settle(self) -> None:
        """The disasters are over: come to rest."""

    async def audit(self, committed: Logs, everything: Logs) -> None:
        """Compare with what stands in the logs at the end; nothing else runs any more."""


class World:
    """See the module."""

    def __init__(self, seed: int, loop: SimulatedLoop, schedule: Schedule) -> None:
        self.seed, self.loop, self.schedule = seed, loop, schedule
        self.trace, self.history = Trace(), History()
        self.network = Network(loop, self.random("network"), schedule.weather, self.trace)
        self.machine: Machine
        self.groups = [Process("clients", self.network.process_died)]
        """Clients that end together; the last are those at work."""
        self._dramas: list[Drama] = []
        self._passed: dict[tuple[str, bool], int] = {}

    def random(self, of: str) -> Random:
        """Randomness of its own for each part, so that a change of one doesn't change the others."""
        return Random(f"{self.seed} {of}")

    def client(self, name: str, timeout_s: float | None = None) -> Client:
        """A new client."""
        return Client(self.network, self.random(name), timeout_s or self.schedule.client_timeout_s)

    def reader(self, name: str, topic: Topic, committed: bool) -> Reader:
        """A reader of all partitions of a topic."""
        return Reader(self.client(name), self.history, name, topic.all, committed)

    def transactor(self, name: str, transactional_id: str, implicit: bool) -> Transactor:
        """A holder of a transactional id."""
        return Transactor(self.client(name), self.history, transactional_id, implicit)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A client that runs by itself."""
        return self.loop.spawn(self.groups[-1], work)

    async def run(self, dramas: Sequence[Drama]) -> None:
        """Everything, and the audit."""
        self._dramas += dramas
        # Every other run of a play has checkpoints at any moment; the others are too small for any.
        settings: dict[str, Any] = {"scan_bytes_max": SCAN_BYTES_MAX} if self.seed // len(PLAYBILL) % 2 else {}
        for drama in dramas:
            settings |= drama.settings
            self.history.topics.update((topic.name, topic) for topic in drama.topics)
        self.machine = Machine(self.network, self.random("machine"), self.history, self.trace, settings)
        self.network.on_answer = partial(self._passes, on_request=False)
        self.machine.on_request = partial(self._passes, on_request=True)
        self.machine.start()
        for name, work in (("work", self._work), ("audit", self._audit)):
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await self.spawn(work())
            except TimeoutError:
                self.history.found(Kind.BROKEN, f"the {name} isn't done after {self.loop.now_s:.0f} s")
            self.loop.kill(self.groups[-1])
            self.groups.append(Process("auditors", self.network.process_died))

    async def _work(self) -> None:
        await self._create_topics()
        self._plan_disasters()
        await asyncio.gather(*(self.spawn(drama.work()) for drama in self._dramas))
        self.network.weather = CALM
        await asyncio.gather(*(self.spawn(drama.settle()) for drama in self._dramas))

    def _plan_disasters(self) -> None:
        schedule, machine, later = self.schedule, self.machine, self.loop.call_later
        for at_s, operations in schedule.crashes:
            later(at_s, machine.crash, operations, context=machine.outside)
        if schedule.full_disk is not None:
            later(schedule.full_disk.at_s, machine.fill_disk, schedule.full_disk, context=machine.outside)
        if schedule.failed_sync is not None:
            later(schedule.failed_sync.at_s, machine.fail_sync, schedule.failed_sync, context=machine.outside)

    def _passes(self, api: str, on_request: bool) -> None:
        """A request or an answer: is it what an ambush waits for?"""
        moment = api, on_request
        count = self._passed[moment] = self._passed.get(moment, 0) + 1
        for ambush in self.schedule.ambushes:
            if (ambush.api, ambush.on_request, ambush.count) == (*moment, count):
                self.loop.call_soon(self.machine.crash, ambush.operations, context=self.machine.outside)

    async def _create_topics(self) -> None:
        client = self.client("admin")
        for topic in self.history.topics.values():
            configs = [{"name": name, "value": value} for name, value in topic.configs.items()]
            wanted = {"num_partitions": topic.partitions, "replication_factor": 1, "configs": configs}
            answer = await client.ask("create_topics", 7, topics=[{"name": topic.name, **wanted}], timeout=10_000)
            error_code = answer.topics[0].error_code
            assert error_code in (ErrorCode.none, ErrorCode.topic_already_exists), error_code

    async def _audit(self) -> None:
        """Cut the power once more, then look at what is there."""
        self.machine.cut_power(0)
        for drama in self._dramas:
            for transactional_id in drama.transactional_ids:
                await self.transactor(f"audit of {transactional_id}", transactional_id, False).initialise()
        committed: dict[TopicPartition, checker.Log] = {}
        everything: dict[TopicPartition, checker.Log] = {}
        keys: dict[TopicPartition, Mapping[int, bytes]] = {}
        for topic in self.history.topics.values():
            for logs, level in ((committed, True), (everything, False)):
                reader = self.reader(f"audit of {topic.name}, {level}", topic, level)
                await read_to_the_end(reader)
                logs.update({partition: seen.values for partition, seen in reader.seen.items()})
                if committed is logs and topic.is_compacted:
                    keys.update({partition: seen.keys for partition, seen in reader.seen.items()})
        checker.check(self.history, committed, everything)
        for partition, found in keys.items():
            checker.check_keys(self.history, partition, committed[partition], found)
        for drama in self._dramas:
            await drama.audit(committed, everything)


async def read_until(reader: Reader, done: asyncio.Event) -> None:
    """Poll whatever comes, through all mishaps."""
    while not done.is_set():
        try:
            await reader.poll()
        except Gone:
            await reader.client.pause()


async def read_to_the_end(reader: Reader) -> None:
    """Poll until there is nothing more."""
    while True:
        try:
            before = dict(reader.positions)
            await reader.poll(max_wait_ms=200)
        except Gone:
            await reader.client.pause()
        else:
            if reader.positions == before and all(
                reader.positions[each] >= seen.high_watermark for each, seen in reader.seen.items()
            ):
                return

"""One simulated run: a broker that crashes, clients that don't give up, a network in between; all from one seed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.simulation import checker
from embedded_broker.simulation.history import History, Kind, TopicPartition, Violation
from embedded_broker.simulation.loop import Process, SimulatedLoop, Stuck
from embedded_broker.simulation.machine import Machine
from embedded_broker.simulation.network import CALM, Network, Weather
from embedded_broker.simulation.producing import IdempotentProducer
from embedded_broker.simulation.reading import Follower, Reader, check_offset, fetch_offsets
from embedded_broker.simulation.trace import Trace
from embedded_broker.simulation.transacting import Copier, TransactionalProducer, Transactor
from embedded_broker.simulation.wire import Client, Gone

PLAIN, IN_TRANSACTIONS, COPY = "plain", "transactions", "copy"
PARTITIONS = {PLAIN: 2, IN_TRANSACTIONS: 3, COPY: 2}
DEADLINE_S = 120.0
"""Of virtual time: whatever isn't done by then never will be."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a seed stands for, besides every single delay."""

    weather: Weather
    client_timeout_s: float
    disk_delay_s_max: float
    crashes: tuple[tuple[float, int], ...]
    """(seconds, operations of the disk until the power goes; -1: only the process is killed)."""
    batches: int
    """Of each plain producer."""
    transactions: int
    """Of each transactional producer."""
    takeover_s: float
    """When a second holder of a transactional id appears."""

    @classmethod
    def of(cls, seed: int) -> Schedule:
        """The same for the same seed, always."""
        random = Random(f"{seed} schedule")
        is_calm = random.random() < 0.2
        weather = Weather(
            random.choice((0.002, 0.01, 0.05)),
            8.0,
            0.0 if is_calm else random.choice((0.0, 0.005, 0.02)),
            random.choice((0.0, 0.2)),
            0.0 if is_calm else random.choice((0.0, 0.01, 0.03)),
        )
        crashes = [
            (random.uniform(0.05, 5.0), random.choice((-1, 0, 0, random.randrange(1, 40))))
            for _ in range(random.randint(2, 8))
        ]
        return cls(
            weather,
            random.choice((1.0, 5.0)),
            random.choice((0.005, 0.05, 0.2)),
            tuple(sorted(crashes)),
            random.randint(10, 40),
            random.randint(5, 20),
            random.uniform(0.1, 2.0),
        )


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run."""

    seed: int
    violations: tuple[Violation, ...]
    digest: str
    """Of everything that happened: the same for the same seed."""
    events: int
    crashes: int
    virtual_s: float
    lines: tuple[str, ...]
    """The last events."""


class _World:
    """All that takes part in one run."""

    def __init__(self, seed: int, loop: SimulatedLoop, schedule: Schedule) -> None:
        self.seed, self.loop, self.schedule = seed, loop, schedule
        self.trace, self.history = Trace(), History()
        self.network = Network(loop, self._random("network"), schedule.weather, self.trace)
        self.machine = Machine(self.network, self._random("machine"), self.history, self.trace)
        self.groups = [Process("clients", self.network.process_died)]
        """Clients that end together; the last are those at work."""
        self.done = asyncio.Event()
        copying = self.transactor("copier", "copier", implicit=seed % 2 == 0)
        source = Reader(copying.client, self.history, "copier", _partitions(PLAIN), committed=True)
        self.copier = Copier(copying, source, "copiers", COPY)

    def _random(self, of: str) -> Random:
        return Random(f"{self.seed} {of}")

    def client(self, name: str) -> Client:
        """A new client, with randomness of its own."""
        return Client(self.network, self._random(name), self.schedule.client_timeout_s)

    def reader(self, name: str, topic: str, committed: bool) -> Reader:
        """A reader of all partitions of a topic."""
        return Reader(self.client(name), self.history, name, _partitions(topic), committed)

    def transactor(self, name: str, transactional_id: str, implicit: bool) -> Transactor:
        """A holder of a transactional id."""
        return Transactor(self.client(name), self.history, transactional_id, implicit)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A client that runs by itself."""
        return self.loop.spawn(self.groups[-1], work)

    async def run(self) -> None:
        """Everything, and the audit."""
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
        await _create_topics(self.client("admin"))
        schedule = self.schedule
        for at_s, operations in schedule.crashes:
            crash = self.machine.kill if operations < 0 else partial(self.machine.cut_power, operations)
            self.loop.call_later(at_s, crash, context=self.machine.outside)
        follower = self.spawn(
            Follower(self.reader("follower", PLAIN, False), self.history, "followers", self.done).run()
        )
        others = [
            self.spawn(_read(self.reader(f"reader of {topic}", topic, committed), self.done))
            for topic, committed in ((IN_TRANSACTIONS, True), (IN_TRANSACTIONS, False), (COPY, True))
        ]
        copying = self.spawn(self.copier.run())
        await asyncio.gather(*self._producers())
        self.copier.finishing = True
        await copying
        self.done.set()
        await asyncio.gather(follower, *others)

    def _producers(self) -> Iterator[asyncio.Task[None]]:
        schedule = self.schedule
        for number, partition in enumerate([*_partitions(PLAIN), (PLAIN, 0)]):
            name = f"p{number}"
            producer = IdempotentProducer(self.client(name), self.history, name, partition, schedule.batches)
            yield self.spawn(producer.run())
        first, second, third = (
            TransactionalProducer(
                self.transactor(name, transactional_id, implicit),
                name,
                _partitions(IN_TRANSACTIONS),
                schedule.transactions,
            )
            for name, transactional_id, implicit in (("t0", "a", False), ("t1", "a", False), ("t2", "b", True))
        )
        yield self.spawn(first.run())
        yield self.spawn(_take_over(first, second, schedule.takeover_s))
        yield self.spawn(third.run())

    async def _audit(self) -> None:
        """Cut the power once more, then look at what is there."""
        self.network.weather = CALM
        self.machine.cut_power(0)
        for transactional_id in ("a", "b", "copier"):
            await self.transactor(f"audit of {transactional_id}", transactional_id, False).initialise()
        committed: dict[TopicPartition, checker.Log] = {}
        everything: dict[TopicPartition, checker.Log] = {}
        for topic in PARTITIONS:
            for logs, level in ((committed, True), (everything, False)):
                reader = self.reader(f"audit of {topic}, {level}", topic, level)
                await _read_to_the_end(reader)
                logs.update({partition: seen.values for partition, seen in reader.seen.items()})
        checker.check(self.history, committed, everything)
        client = self.client("audit of groups")
        offsets = await fetch_offsets(client, self.copier.group, _partitions(PLAIN), stable=True)
        checker.check_copy(self.history, self.copier.transactions, offsets, committed, COPY)
        for commits in self.history.group_offsets:
            found = await fetch_offsets(client, commits.group, [commits.partition])
            check_offset(self.history, commits, found[commits.partition])


def _partitions(topic: str) -> list[TopicPartition]:
    return [(topic, index) for index in range(PARTITIONS[topic])]


async def _create_topics(client: Client) -> None:
    for topic, count in PARTITIONS.items():
        wanted = [{"name": topic, "num_partitions": count, "replication_factor": 1}]
        answer = await client.ask("create_topics", 7, topics=wanted, timeout=10_000)
        error_code = answer.topics[0].error_code
        assert error_code in (ErrorCode.none, ErrorCode.topic_already_exists), error_code


async def _read(reader: Reader, done: asyncio.Event) -> None:
    while not done.is_set():
        try:
            await reader.poll()
        except Gone:
            await reader.client.pause()


async def _read_to_the_end(reader: Reader) -> None:
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


async def _take_over(first: TransactionalProducer, second: TransactionalProducer, after_s: float) -> None:
    await asyncio.sleep(after_s)
    first.replaced = True
    await second.run()


@contextmanager
def _no_collector() -> Iterator[None]:
    """Cycles of the dead are not collected while the others live: their finalisers would run in between."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def simulate(seed: int) -> Result:
    """Run the schedule of a seed. What is wrong with the broker stands in the result; raises only for a bug in here."""
    schedule = Schedule.of(seed)
    loop = SimulatedLoop(Random(f"{seed} threads"), schedule.disk_delay_s_max)
    world: list[_World] = []

    async def main() -> None:
        world.append(_World(seed, loop, schedule))
        await world[0].run()

    with _no_collector():
        try:
            loop.run_until_complete(main())
        except Stuck as error:
            world[0].history.found(Kind.BROKEN, f"not done after {loop.now_s:.0f} s: {error!r}")
        it = world[0]
        for failure in loop.failures:
            it.history.found(Kind.BROKEN, failure)
        result = Result(
            seed,
            tuple(it.history.violations),
            it.trace.digest,
            it.trace.events,
            it.machine.crashes,
            loop.now_s,
            tuple(it.trace.lines),
        )
        for process in (*it.machine.processes, *it.groups):
            loop.kill(process)
            loop.bury(process)
        loop.close()
    return result

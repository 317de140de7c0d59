"""The retention workload: compaction and retention remove records while clients write, end transactions and read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from embedded_broker.simulation.history import RunTopic
from embedded_broker.simulation.producers import IdempotentProducer, Record
from embedded_broker.simulation.transactional import TransactionalProducer
from embedded_broker.simulation.world import Logs, World, read_to_the_end, read_until

SEGMENT_MS = 300
LATEST = RunTopic(
    "latest",
    2,
    {
        "cleanup.policy": "compact",
        "segment.ms": str(SEGMENT_MS),
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "500",
    },
)
FLEETING = RunTopic("fleeting", 2, {"segment.ms": str(SEGMENT_MS), "retention.ms": "1500"})
KEYS = 5
TOMBSTONE_EVERY = 7
PAUSE_S_MAX = 1.0
REST_S = 1.5
"""At the end: time for a last pass of compaction and of retention."""


def keyed(name: str, number: int) -> Record:
    """Make a record with one of its producer's few keys; every TOMBSTONE_EVERY-th is a tombstone."""
    value = None if number % TOMBSTONE_EVERY == TOMBSTONE_EVERY - 1 else b"%s:%06d" % (name.encode(), number)
    return b"%s/%d" % (name.encode(), number % KEYS), value


class RetentionWorkload:
    """The workload of a compacted topic and one with retention."""

    topics = (LATEST, FLEETING)
    transactional_ids = ("keeper 0", "keeper 1")
    settings: Mapping[str, Any] = {"retention_check_interval_ms": 200}

    def __init__(self, world: World) -> None:
        self._world = world

    async def work(self) -> None:
        """See Workload."""
        world, done = self._world, asyncio.Event()
        readers = []
        for topic in self.topics:
            for committed in (True, False):
                name = f"reader of {topic.name}, {committed}"
                readers.append(world.spawn(read_until(world.reader(name, topic, committed), done)))
            readers.append(world.spawn(self._read_again(topic, done)))
        await asyncio.gather(*self._producers())
        done.set()
        await asyncio.gather(*readers)

    def _producers(self) -> Iterator[asyncio.Task[None]]:
        world = self._world
        schedule, history = world.schedule, world.history
        for partition in (*LATEST.all, *FLEETING.all):
            name = f"{partition[0]}{partition[1]}"
            client = world.client(name)
            producer = IdempotentProducer(client, history, name, partition, schedule.batches, PAUSE_S_MAX, keyed)
            yield world.spawn(producer.run())
        for number, transactional_id in enumerate(self.transactional_ids):
            txn_client = world.txn_client(transactional_id, transactional_id, implicit=number == 0)
            name, count = f"l{number}", schedule.transactions
            partitions = [*LATEST.all, FLEETING.all[0]] if number else LATEST.all
            writer = TransactionalProducer(txn_client, name, partitions, count, PAUSE_S_MAX, keyed)
            yield world.spawn(writer.run())

    async def _read_again(self, topic: RunTopic, done: asyncio.Event) -> None:
        """Read all that is left from the beginning, repeatedly."""
        random: Random = self._world.random(f"again {topic.name}")
        number = 0
        while not done.is_set():
            number += 1
            reader = self._world.reader(f"reader {number} of {topic.name}", topic, committed=random.random() < 0.7)
            await read_to_the_end(reader)
            await asyncio.sleep(random.uniform(0, 2))

    async def settle(self) -> None:
        """See Workload."""
        await asyncio.sleep(REST_S)

    async def audit(self, committed: Logs, everything: Logs) -> None:
        """Do no checks besides those of every topic."""

"""The producer workload: idempotent and transactional producers (one of them fenced), a copier, and readers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from embedded_broker.simulation import checker
from embedded_broker.simulation.fetching import PARTITION_BYTES_MAX, Style
from embedded_broker.simulation.history import RunTopic
from embedded_broker.simulation.producers import IdempotentProducer, take_identities
from embedded_broker.simulation.readers import GroupReader, SimulatedReader, ask_offsets, check_offset
from embedded_broker.simulation.transactional import Copier, TransactionalProducer
from embedded_broker.simulation.world import Logs, World, read_until
from embedded_broker.simulation.zombies import Zombies

PLAIN, IN_TRANSACTIONS, COPY = RunTopic("plain", 2), RunTopic("transactions", 3), RunTopic("copy", 2)


class ProducerWorkload:
    """The workload of producers, a copier and readers."""

    topics = (PLAIN, IN_TRANSACTIONS, COPY)
    transactional_ids = ("a", "b", "copier")
    settings: Mapping[str, Any] = {}

    def __init__(self, world: World) -> None:
        self._world = world
        copying = world.txn_client("copier", "copier", implicit=world.random("copier's version").random() < 0.5)
        # A transaction takes up to a second: with few records in each it would copy for minutes.
        style = replace(Style.of(world.random("copier's style")), partition_bytes_max=PARTITION_BYTES_MAX[-1])
        source = SimulatedReader(copying.client, world.history, "copier", PLAIN.all, committed=True, style=style)
        self._copier = Copier(copying, source, "copiers", COPY.name)

    async def work(self) -> None:
        """See Workload."""
        world, done = self._world, asyncio.Event()
        reader = world.reader("follower", PLAIN, False)
        readers = [world.spawn(GroupReader(reader, world.history, "followers", done).run())]
        for topic, committed in ((IN_TRANSACTIONS, True), (IN_TRANSACTIONS, False), (COPY, True)):
            readers.append(world.spawn(read_until(world.reader(f"reader of {topic.name}", topic, committed), done)))
        readers.append(world.spawn(take_identities(world.client("identities"), world.history, done)))
        copying = world.spawn(self._copier.run())
        await asyncio.gather(*self._producers())
        self._copier.finishing = True
        await copying
        done.set()
        await asyncio.gather(*readers)

    def _producers(self) -> Iterator[asyncio.Task[None]]:
        world = self._world
        schedule = world.schedule
        for number, partition in enumerate([*PLAIN.all, (PLAIN.name, 0)]):
            name = f"p{number}"
            producer = IdempotentProducer(world.client(name), world.history, name, partition, schedule.batches)
            yield world.spawn(producer.run())
        yield world.spawn(Zombies(world.client, world.history, (PLAIN.name, 1), world.spawn).run())
        first, second, third = (
            TransactionalProducer(
                world.txn_client(name, transactional_id, implicit),
                name,
                IN_TRANSACTIONS.all,
                schedule.transactions,
            )
            for name, transactional_id, implicit in (("t0", "a", False), ("t1", "a", False), ("t2", "b", True))
        )
        yield world.spawn(first.run())
        yield world.spawn(_take_over(first, second, schedule.takeover_s))
        yield world.spawn(third.run())

    async def settle(self) -> None:
        """Do nothing: everything has ended already."""

    async def audit(self, committed: Logs, everything: Logs) -> None:
        """See Workload."""
        history, client = self._world.history, self._world.client("audit of groups")
        offsets = await ask_offsets(client, self._copier.group, PLAIN.all, stable=True)
        checker.check_copy(history, self._copier.transactions, offsets, committed, COPY.name)
        for commits in history.group_offsets:
            found = await ask_offsets(client, commits.group, [commits.partition])
            check_offset(history, commits, found[commits.partition])


async def _take_over(first: TransactionalProducer, second: TransactionalProducer, after_s: float) -> None:
    await asyncio.sleep(after_s)
    first.replaced = True
    await second.run()

"""The durability workload: what is promised of acknowledged records in each fsync mode, by the times of power cuts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.config.settings import Fsync
from embedded_broker.simulation.history import History, RunTopic, TopicPartition, ViolationKind
from embedded_broker.simulation.producers import Record, numbered, produce
from embedded_broker.simulation.wire import NoResponse, SimulatedClient
from embedded_broker.simulation.world import Logs, World
from kafka_records.records import encode

LASTING = RunTopic("lasting", 3)
PAUSE_S_MAX = 0.2
RUNS_S = 8.0
SYNCS_MAX = 12
"""Within one round, one after another: of segments, names and directories, and of those that it has to wait for."""


@dataclass(frozen=True, slots=True)
class Ack:
    """A record that was acknowledged, and so written at some time between `sent_s` and `acked_s`."""

    value: bytes
    partition: TopicPartition
    offset: int
    sent_s: float
    acked_s: float


@dataclass(frozen=True, slots=True)
class Promise:
    """What a fsync mode promises."""

    lag_s: float
    """What was acknowledged that long before a power cut survives it."""
    power_cuts_s: Sequence[float]
    ready_s: Sequence[float]
    """When the broker had started: all that it had found was durable then."""

    def may_lose(self, ack: Ack) -> bool:
        """Return whether a power cut may have taken a record."""
        found_s = min((ready_s for ready_s in self.ready_s if ready_s > ack.acked_s), default=inf)
        return any(ack.sent_s <= cut_s < min(ack.acked_s + self.lag_s, found_s) for cut_s in self.power_cuts_s)

    def were_together(self, first: Ack, second: Ack) -> bool:
        """Return whether every power cut that could take one of two records found the other one, too."""
        acks = first, second
        return all(
            all(ack.acked_s < cut_s for ack in acks) or all(ack.sent_s > cut_s for ack in acks)
            for cut_s in self.power_cuts_s
        )


def check(history: History, acks: Sequence[Ack], everything: Logs, promise: Promise) -> None:
    """Check that what is missing may be, and is the end of what was written."""
    lost = []
    for ack in acks:
        there = everything[ack.partition].get(ack.offset)
        if there != ack.value:
            lost.append(ack)
            if not promise.may_lose(ack):
                detail = f"{ack.value!r} was acknowledged at {ack.acked_s:.3f} s at {ack.offset} of {ack.partition}"
                history.found(ViolationKind.LOST_WRITE, f"{detail}, where {there!r} is")
    gone = set(lost)
    for ack in lost:
        for other in acks:
            is_behind = other.partition == ack.partition and other.offset > ack.offset
            if is_behind and other not in gone and promise.were_together(ack, other):
                history.found(ViolationKind.LOST_WRITE, f"{ack.value!r} is gone, and {other.value!r} behind it isn't")
                break


class DurabilityWorkload:
    """Producers that don't retry, one for each partition."""

    topics = (LASTING,)
    transactional_ids: Sequence[str] = ()
    settings: Mapping[str, Any] = {}

    def __init__(self, world: World) -> None:
        self._world = world
        self._acks: list[Ack] = []

    async def work(self) -> None:
        """See Workload."""
        await asyncio.gather(*(self._world.spawn(self._produce(partition)) for partition in LASTING.all))

    async def _produce(self, partition: TopicPartition) -> None:
        client, name, number = self._world.client(f"lasting {partition[1]}"), "", 0
        while client.now_s < RUNS_S:
            if not name:  # what was sent before may come later than what is sent from now on
                name = f"d{partition[1]}.{number}"
            number += 1
            try:
                await self._send(client, partition, numbered(name, number))
            except NoResponse:
                name = ""
                await client.pause()
            await asyncio.sleep(client.random.uniform(0, PAUSE_S_MAX))

    async def _send(self, client: SimulatedClient, partition: TopicPartition, record: Record) -> None:
        history, (_, value), sent_s = self._world.history, record, client.now_s
        history.sent(partition, [record], client.now_ms)
        data = bytes(encode([record], client.now_ms))
        answer = (await client.call("produce", 9, **produce(partition, data))).responses[0].partition_responses[0]
        if answer.error_code is ErrorCode.none:
            assert value is not None
            self._acks.append(Ack(value, partition, answer.base_offset, sent_s, client.now_s))
        elif answer.error_code is ErrorCode.kafka_storage_error:
            history.refused(client.now_s, f"{partition}: {answer.error_code.name}")
        elif answer.error_code is not ErrorCode.not_leader_or_follower:  # the broker has begun to stop
            history.found(ViolationKind.BROKEN, f"{value!r}: {answer.error_code.name}")

    async def settle(self) -> None:
        """See Workload."""

    async def audit(self, committed: Logs, everything: Logs) -> None:
        """See Workload."""
        schedule, machine = self._world.schedule, self._world.machine
        fsync, interval_ms = schedule.settings["fsync"], schedule.settings["fsync_interval_ms"]
        round_s = schedule.disk_delay_s_max + SYNCS_MAX * schedule.sync_s_max
        lag_s = {Fsync.ALWAYS: 0.0, Fsync.INTERVAL: interval_ms / 1000 + 2 * round_s, Fsync.NEVER: inf}[fsync]
        check(self._world.history, self._acks, everything, Promise(lag_s, machine.power_cuts_s, machine.ready_s))

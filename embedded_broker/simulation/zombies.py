"""An idempotent producer whose former instances live on: each has its own epoch, and doesn't know of the later ones.

Used by `producer_workload`. A client raises its epoch by itself when it can't go on (KIP-360); what it sent before may
still be on its way. A later epoch shuts out all earlier ones, also those that haven't written anything yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.history import History, TopicPartition, ViolationKind
from embedded_broker.simulation.producers import RETRIABLE, STORAGE, VERSION, Record, produce, take_identity
from embedded_broker.simulation.wire import NoResponse, SimulatedClient
from kafka_records.records import encode

EPOCHS = 5
BATCHES = 6
"""Of each instance, if it isn't shut out before."""
FOLLOWS_WITHIN_S = 0.6
BEGINS_WITHIN_S = 1.2
"""So that later instances often write before earlier ones have begun."""


class Zombies:
    """All instances of one producer. The values in the log are in the order of epochs, and of batches in each."""

    def __init__(
        self,
        new_client: Callable[[str], SimulatedClient],
        history: History,
        partition: TopicPartition,
        spawn: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
    ) -> None:
        """
        Args:
            new_client: makes a client of that name.
            history: of the run.
            partition: where all of them write.
            spawn: runs an instance by itself.
        """
        self._new_client, self._history, self._partition, self._spawn = new_client, history, partition, spawn

    async def run(self) -> None:
        """Start one instance after the other, and wait for all of them."""
        first = self._new_client("zombie")
        producer_id = await take_identity(first, self._history, "zombie")
        instances = []
        for epoch in range(EPOCHS):
            client = self._new_client(f"zombie {epoch}")
            instances.append(self._spawn(self._instance(client, producer_id, epoch)))
            await asyncio.sleep(first.random.uniform(0, FOLLOWS_WITHIN_S))
        await asyncio.gather(*instances)

    async def _instance(self, client: SimulatedClient, producer_id: int, epoch: int) -> None:
        """Write until all is acknowledged, or a later instance has written."""
        await asyncio.sleep(client.random.uniform(0, BEGINS_WITHIN_S))
        for number in range(BATCHES):
            records: list[Record] = [(b"k", b"zombie:%03d%03d" % (epoch, number))]
            self._history.sent(self._partition, records, client.now_ms)
            data = encode(records, client.now_ms, producer_id=producer_id, producer_epoch=epoch, base_sequence=number)
            offset = await self._until_answered(client, epoch, number, bytes(data))
            if offset is None:
                return
            for _, value in records:
                assert value is not None
                self._history.acked[value] = self._partition, offset
            await asyncio.sleep(client.random.uniform(0, 0.2))

    async def _until_answered(self, client: SimulatedClient, epoch: int, number: int, data: bytes) -> int | None:
        """Return the offset of a batch; None if the instance is shut out."""
        while True:
            try:
                answer = await client.call("produce", VERSION, **produce(self._partition, data))
            except NoResponse:
                await client.pause()
                continue
            result = answer.responses[0].partition_responses[0]
            if result.error_code is ErrorCode.none:
                return int(result.base_offset)
            if result.error_code in RETRIABLE:
                if result.error_code is STORAGE:
                    self._history.refused(client.now_s, f"zombie {epoch}: {result.error_code.name}")
                await client.pause()
                continue
            is_last = epoch == EPOCHS - 1
            if result.error_code is not ErrorCode.invalid_producer_epoch or is_last:
                detail = f"batch {number} of the producer's epoch {epoch} of {EPOCHS} gave {result.error_code.name}"
                self._history.found(ViolationKind.BROKEN, detail)
            return None

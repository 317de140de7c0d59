"""Producers: an idempotent one that keeps several batches in flight and sends them again after every mishap."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.history import History, TopicPartition, ViolationKind
from embedded_broker.simulation.wire import NoResponse, SimulatedClient
from kafka_records.records import encode

NONE = ErrorCode.none
IN_FLIGHT_MAX = 5  # as many as the broker's window holds
STORAGE = ErrorCode.kafka_storage_error
RETRIABLE = frozenset({STORAGE, ErrorCode.not_leader_or_follower})
"""Errors after which a batch is sent again. The second one is answered when configs have changed, or the broker has
begun to stop, while the batch was being checked."""
OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number
VERSION = 9
IDENTITY_PAUSE_S_MAX = 1.0


Record = tuple[bytes, bytes | None]
"""Key and value; without a value it is a tombstone."""


def numbered(name: str, number: int) -> Record:
    """Make a record that is like no other: its value names its producer and its place among that one's records."""
    return b"k", b"%s:%06d" % (name.encode(), number)


@dataclass(slots=True)
class _Batch:
    sequence: int
    records: list[Record]
    data: bytes
    answer: asyncio.Future[Any] | None = None


def produce(partition: TopicPartition, data: bytes, transactional_id: str | None = None) -> dict[str, Any]:
    """Return the fields of a ProduceRequest with one batch."""
    topic, index = partition
    written = [{"name": topic, "partition_data": [{"index": index, "records": data}]}]
    return {"acks": -1, "timeout": 10_000, "transactional_id": transactional_id, "topic_data": written}


class IdempotentProducer:
    """Writes `count` batches to one partition; ends when all are acknowledged."""

    def __init__(
        self,
        client: SimulatedClient,
        history: History,
        name: str,
        partition: TopicPartition,
        count: int,
        pause_s_max: float = 0.1,
        make: Callable[[str, int], Record] = numbered,
    ) -> None:
        """`pause_s_max`: between two batches, sometimes. `make`: the record with a number."""
        self._client, self._history, self._name, self._partition = client, history, name, partition
        self._left, self._pause_s_max, self._make = count, pause_s_max, make
        self._in_flight: deque[_Batch] = deque()
        self._producer_id = -1
        self._sequence = 0
        self._last_offset = -1
        self._first_was_refused = False

    async def run(self) -> None:
        """Run until all batches are acknowledged."""
        self._producer_id = await take_identity(self._client, self._history, self._name)
        while self._left or self._in_flight:
            try:
                await self._fill()
                oldest = self._in_flight[0]
                assert oldest.answer is not None
                answer = await self._client.answer(oldest.answer)
            except NoResponse:
                await self._again()
                continue
            result = answer.responses[0].partition_responses[0]
            if result.error_code in RETRIABLE:
                if result.error_code is STORAGE:
                    self._history.refused(self._client.now_s, f"{self._name}: {result.error_code.name}")
                self._first_was_refused |= oldest.sequence == 0
                await self._again()
            elif self._first_was_refused and oldest.sequence == 0 and result.error_code is OUT_OF_ORDER:
                # The second batch was taken first: without producer state any first sequence is accepted.
                self._history.unsure(self._partition, [record for each in self._in_flight for record in each.records])
                return
            elif result.error_code is not NONE:
                detail = f"{self._name}, sequence {oldest.sequence}: {result.error_code.name}"
                self._history.found(ViolationKind.BROKEN, detail)
                return
            else:
                self._acked(self._in_flight.popleft(), result.base_offset)

    async def _again(self) -> None:
        """Send again, in order, whatever is in flight: it may be written or not."""
        self._client.disconnect()
        await self._client.pause()
        for batch in self._in_flight:
            batch.answer = None

    async def _fill(self) -> None:
        """Keep the pipeline full; sometimes wait before."""
        random = self._client.random
        for batch in self._in_flight:
            if batch.answer is None:
                batch.answer = await self._send(batch)
        while self._left and len(self._in_flight) < random.randint(1, IN_FLIGHT_MAX):
            count = random.randint(1, 3)
            records = [self._make(self._name, self._sequence + each) for each in range(count)]
            data = encode(
                records,
                self._client.now_ms,
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=self._sequence,
            )
            batch = _Batch(self._sequence, records, bytes(data))
            self._in_flight.append(batch)
            self._left, self._sequence = self._left - 1, self._sequence + count
            self._history.sent(self._partition, records, self._client.now_ms)
            batch.answer = await self._send(batch)
            if random.random() < 0.3:
                await asyncio.sleep(random.uniform(0, self._pause_s_max))

    async def _send(self, batch: _Batch) -> asyncio.Future[Any]:
        """Send a batch. Raises NoResponse when the connection is not that of the batches before.

        They may be lost with it, and who has none of them takes a batch with any sequence for the first one.
        """
        before = [each.answer for each in self._in_flight if each.answer is not None]
        if any(answer.done() and answer.exception() is not None for answer in before):
            raise NoResponse("batches before this one are gone")
        return await self._client.send("produce", VERSION, **produce(self._partition, batch.data))

    def _acked(self, batch: _Batch, offset: int) -> None:
        for place, (_, value) in enumerate(batch.records):
            if value is not None:
                self._history.acked[value] = self._partition, offset + place
        if offset <= self._last_offset:
            detail = f"{self._name}: offset {offset} acknowledged after {self._last_offset}"
            self._history.found(ViolationKind.NON_MONOTONIC, detail)
        self._last_offset = offset + len(batch.records) - 1


async def take_identity(client: SimulatedClient, history: History, name: str) -> int:
    """Ask for a producer id that nobody else has been given, over all restarts."""
    while True:
        answer = await client.ask("init_producer_id", 4, transactional_id=None, transaction_timeout=0)
        if answer.error_code is NONE:
            producer_id = int(answer.producer_id)
            if producer_id in history.producer_ids:
                history.found(
                    ViolationKind.DUPLICATE, f"{name} was given the producer id {producer_id}, and another one was"
                )
            history.producer_ids.add(producer_id)
            return producer_id
        history.refused(client.now_s, f"{name}: {answer.error_code.name}")
        await client.pause()


async def take_identities(client: SimulatedClient, history: History, done: asyncio.Event) -> None:
    """Take identities as a program does that begins anew all the time."""
    while not done.is_set():
        await take_identity(client, history, "a program")
        await asyncio.sleep(client.random.uniform(0, IDENTITY_PAUSE_S_MAX))

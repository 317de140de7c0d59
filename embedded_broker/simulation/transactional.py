"""Transactional producers of both transaction versions, and a copier that commits its positions in transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.history import History, Outcome, TopicPartition, WrittenTransaction
from embedded_broker.simulation.producers import Record, numbered, produce
from embedded_broker.simulation.readers import SimulatedReader, fetch_offsets
from embedded_broker.simulation.wire import NoResponse, SimulatedClient
from kafka_records.batch import TRANSACTIONAL
from kafka_records.records import encode

NONE = ErrorCode.none
TIMEOUT_MS = 3_000
FENCED = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch})
RETRIABLE = frozenset(
    {ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available}
)
DISK_FULL = frozenset({ErrorCode.not_coordinator, ErrorCode.kafka_storage_error})
"""Errors that the broker answers while its disk is full."""


class TransactionFailed(Exception):
    """The transaction has failed: the client must call InitProducerId again."""


class Fenced(TransactionFailed):
    """Another client has initialised the id, or the transaction has timed out."""


@dataclass(slots=True)
class _OpenProducer:
    """What InitProducerId gave, and what was done with it."""

    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int]
    added: set[TopicPartition]


class TransactionalClient:
    """One holder of a transactional id.

    Every doubt ends the session: the next one begins with InitProducerId, and so what is still on its way is fenced.
    """

    def __init__(self, client: SimulatedClient, history: History, transactional_id: str, implicit: bool) -> None:
        """`implicit`: transaction version 2 (KIP-890)."""
        self.client, self.history, self.id, self._implicit = client, history, transactional_id, implicit
        self._session: _OpenProducer

    async def initialise(self) -> None:
        """Fence the predecessor, and begin a session."""
        while True:
            fields = {"transactional_id": self.id, "transaction_timeout": TIMEOUT_MS}
            answer = await self.client.ask("init_producer_id", 4, **fields)
            if answer.error_code is NONE:
                self._session = _OpenProducer(answer.producer_id, answer.producer_epoch, {}, set())
                return
            self._note_refusal(answer.error_code)
            await self.client.pause()

    async def write(self, transaction: WrittenTransaction, partition: TopicPartition, records: list[Record]) -> None:
        """Write one batch. Raises NoResponse, TransactionFailed."""
        session = self._session
        if partition not in session.added and not self._implicit:
            await self._add(partition)
        session.added.add(partition)
        sequence = session.sequences.get(partition, 0)
        transaction.values.setdefault(partition, []).extend(value for _, value in records if value is not None)
        self.history.sent(partition, records, self.client.now_ms, transaction)
        data = encode(
            records,
            self.client.now_ms,
            attributes=TRANSACTIONAL,
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            base_sequence=sequence,
        )
        session.sequences[partition] = sequence + len(records)
        version = 12 if self._implicit else 9
        await self._until_taken(
            lambda: self.client.call("produce", version, **produce(partition, bytes(data), self.id)),
            lambda answer: answer.responses[0].partition_responses[0].error_code,
        )

    async def _add(self, partition: TopicPartition) -> None:
        topics = [{"name": partition[0], "partitions": [partition[1]]}]
        await self._until_taken(
            lambda: self.client.call(
                "add_partitions_to_txn",
                3,
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=self._session.producer_id,
                v3_and_below_producer_epoch=self._session.epoch,
                v3_and_below_topics=topics,
            ),
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )

    async def commit_offsets(
        self, transaction: WrittenTransaction, group: str, offsets: dict[TopicPartition, int]
    ) -> None:
        """Commit the positions of a group, as part of the transaction. Raises NoResponse, TransactionFailed."""
        identity = self._identity()
        if not self._implicit:
            await self._until_taken(
                lambda: self.client.call("add_offsets_to_txn", 3, group_id=group, **identity),
                lambda answer: answer.error_code,
            )
        transaction.offsets.update(offsets)
        topic = next(iter(offsets))[0]
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            for (_, index), offset in offsets.items()
        ]
        topics = [{"name": topic, "partitions": partitions}]
        version = 5 if self._implicit else 3
        await self._until_taken(
            lambda: self.client.call("txn_offset_commit", version, group_id=group, topics=topics, **identity),
            lambda answer: next((p.error_code for p in answer.topics[0].partitions if p.error_code is not NONE), NONE),
        )

    async def end(self, transaction: WrittenTransaction, commit: bool) -> None:
        """End it. Raises NoResponse, TransactionFailed."""
        if commit:
            transaction.outcome = Outcome.UNKNOWN
        version = 5 if self._implicit else 3
        try:
            answer = await self._until_taken(
                lambda: self.client.call("end_txn", version, committed=commit, **self._identity()),
                lambda answer: answer.error_code,
            )
        except TransactionFailed:
            if commit:
                transaction.outcome = Outcome.NOT_COMMITTED
            raise
        if commit:
            transaction.outcome = Outcome.COMMITTED
        session = self._session
        session.added.clear()
        if self._implicit:
            session.producer_id, session.epoch = answer.producer_id, answer.producer_epoch
            session.sequences.clear()

    def _identity(self) -> dict[str, Any]:
        session = self._session
        return {
            "transactional_id": self.id,
            "producer_id": session.producer_id,
            "producer_epoch": session.epoch,
        }

    async def _until_taken(self, ask: Callable[[], Awaitable[Any]], error_of: Callable[[Any], ErrorCode]) -> Any:
        """Ask until the coordinator has time. Raises NoResponse, TransactionFailed."""
        while True:
            answer = await ask()
            error_code = error_of(answer)
            if error_code is NONE:
                return answer
            self._note_refusal(error_code)
            if error_code not in RETRIABLE | DISK_FULL:
                raise Fenced(error_code.name) if error_code in FENCED else TransactionFailed(error_code.name)
            await self.client.pause()

    def _note_refusal(self, error_code: ErrorCode) -> None:
        if error_code in DISK_FULL:
            self.history.refused(self.client.now_s, f"{self.id}: {error_code.name}")


class TransactionalProducer:
    """Writes transactions over several partitions; some it aborts. Ends after `count`, or when it is replaced."""

    def __init__(
        self,
        txn_client: TransactionalClient,
        name: str,
        partitions: list[TopicPartition],
        count: int,
        pause_s_max: float = 0.0,
        make: Callable[[str, int], Record] = numbered,
    ) -> None:
        """
        Args:
            txn_client: holds its id.
            name: no other instance has it, even if it has the same transactional id.
            partitions: where it writes.
            count: how many transactions.
            pause_s_max: between two of them.
            make: the record with a number.
        """
        self._txn_client, self._name, self._partitions, self._left = txn_client, name, partitions, count
        self._pause_s_max, self._make = pause_s_max, make
        self._number = 0
        self.replaced = False
        """Whether somebody else has been started with the same id: who is fenced then gives up."""

    async def run(self) -> None:
        """Run to the end."""
        while self._left:
            await self._txn_client.initialise()
            try:
                while self._left:
                    await self._one()
                    self._left -= 1
                    if self._pause_s_max:
                        await asyncio.sleep(self._txn_client.client.random.uniform(0, self._pause_s_max))
            except Fenced:
                if self.replaced:
                    return
            except TransactionFailed:
                await self._txn_client.client.pause()
            except NoResponse:
                self._txn_client.client.disconnect()
                await self._txn_client.client.pause()

    async def _one(self) -> None:
        random = self._txn_client.client.random
        transaction = self._txn_client.history.begin(self._name)
        for _ in range(random.randint(1, 4)):
            partition = random.choice(self._partitions)
            records = []
            for _ in range(random.randint(1, 3)):
                records.append(self._make(self._name, self._number))
                self._number += 1
            await self._txn_client.write(transaction, partition, records)
        await self._txn_client.end(transaction, commit=random.random() < 0.75)


class Copier:
    """Reads a topic with read_committed, writes each record to the same partition of another, and commits its positions
    with them. Ends when nothing is left to copy and `finishing` is set."""

    def __init__(self, txn_client: TransactionalClient, reader: SimulatedReader, group: str, to: str) -> None:
        self._txn_client, self._reader, self.group, self._to = txn_client, reader, group, to
        self._client = txn_client.client
        self.finishing = False
        self.transactions: list[WrittenTransaction] = []
        """In order. Records contain the number of their transaction, so that attempts can be distinguished."""

    async def run(self) -> None:
        """Run to the end."""
        while True:
            await self._txn_client.initialise()
            try:
                await self._seek()
                while not (self.finishing and self._has_reached_end()):
                    await self._one()
                return
            except TransactionFailed:
                await self._client.pause()
            except NoResponse:
                self._client.disconnect()
                await self._client.pause()

    def _has_reached_end(self) -> bool:
        """Return whether it has reached the end, as far as the latest poll has shown."""
        return all(self._reader.positions[each] >= reads.high_watermark for each, reads in self._reader.reads.items())

    async def _seek(self) -> None:
        found = await fetch_offsets(self._client, self.group, list(self._reader.positions), stable=True)
        self._reader.positions.update({partition: max(offset, 0) for partition, offset in found.items()})

    async def _one(self) -> None:
        before = dict(self._reader.positions)
        found = await self._reader.poll()
        moved = {each: offset for each, offset in self._reader.positions.items() if offset > before[each]}
        if not moved:
            return
        transaction = self._txn_client.history.begin(self.group)
        self.transactions.append(transaction)
        for (_, index), records in found.items():
            if records:
                copies: list[Record] = [
                    (b"k", b"copy %d of %s" % (len(self.transactions), value)) for _, value in records
                ]
                await self._txn_client.write(transaction, (self._to, index), copies)
        await self._txn_client.commit_offsets(transaction, self.group, moved)
        commit = self._client.random.random() < 0.85
        await self._txn_client.end(transaction, commit)
        if not commit:
            await self._seek()

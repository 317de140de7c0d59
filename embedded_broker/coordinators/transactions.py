"""The transaction coordinator: makes each step of `state.transactions` durable, and carries out what was decided.

Every step is one record in `__transaction_state`, on disk before it is answered or acted upon:

    Ongoing → PrepareCommit → (answer) → commit markers, on disk in every partition → CompleteCommit
    Ongoing → PrepareAbort  → (answer) → abort markers, on disk in every partition  → CompleteAbort

The prepared record is the decision. Whatever crash follows, the next start writes the markers again (a second marker
finds no open transaction and changes nothing) and completes. The completed record need not be waited for: records of
the next transaction stand behind it in the same log, so none of them can be durable without it.

A commit that has written to one partition only (and bumps no epoch) needs no prepared record: its marker there is the
decision, and readers wait for it to be on disk anyway. After a crash the next start finds the marker, and completes.

    Ongoing → commit marker, on disk → CompleteCommit → (answer)

Source: Kafka `TransactionCoordinator`, `TransactionStateManager`, `TransactionMarkerChannelManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators import one_place, orphans
from embedded_broker.coordinators.background import NO_ROOM_RETRY_MS, Background
from embedded_broker.coordinators.compaction import Compactor, Records
from embedded_broker.coordinators.markers import MarkerWriter
from embedded_broker.coordinators.ports import TRANSACTION_TOPIC, Host, Partition, TransactionConfig
from embedded_broker.coordinators.producer_ids import NoProducerId, ProducerIds
from embedded_broker.coordinators.slot import Slot
from embedded_broker.room import NoRoom, suppress_full
from embedded_broker.state import transaction_log, transactions
from embedded_broker.state.producers import NO_EPOCH, NO_PRODUCER_ID
from embedded_broker.state.transactions import Answer, Decision, Refuse, TopicPartition, Transaction
from embedded_broker.wire.batch import BatchHeader, Buffer
from embedded_broker.wire.records import decode, encode

SWEEP_INTERVAL_MS = 3_600_000
RETRY_DELAY_MS = 100
ENDING_PATIENCE_S = 0.1
"""How long the next transaction waits for the last one's markers. In Kafka only batches of transaction version 2 wait
(`add.partitions.to.txn.retry.backoff.max.ms`), not those who add partitions by request."""
NOT_THE_OWNER = frozenset({ErrorCode.invalid_producer_id_mapping, ErrorCode.producer_fenced})


Store = Callable[[Slot, Transaction], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class Identity:
    """Answer to InitProducerId and EndTxn."""

    error_code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class TransactionCoordinator:
    """All transactional ids of the broker. Called on the event loop only."""

    def __init__(self, host: Host, markers: MarkerWriter, config: TransactionConfig | None = None) -> None:
        self._host = host
        self.markers = markers
        self._config = config or TransactionConfig()
        self._slots: dict[str, Slot] = {}
        self._producer_ids = ProducerIds(host)
        self._background = Background(host.fail)
        self._compactor = Compactor(host, self._background, TRANSACTION_TOPIC, self._live)

    def replay(self, header: BatchHeader, batch: Buffer) -> None:
        """Take over a batch of `__transaction_state` at recovery, in log order.

        Raises:
            Truncated: a record is not whole although its batch's CRC is right: written by something else.
        """
        if header.is_control:
            return
        for record in decode(batch):
            found = transaction_log.decode(record.key or b"", record.value)
            if isinstance(found, transaction_log.ProducerIdsRecord):
                self._producer_ids.replay(found)
            elif found is not None and found.transaction is None:
                self._slots.pop(found.transactional_id, None)
            elif found is not None and found.transaction is not None:
                self._slots[found.transactional_id] = Slot(found.transaction)

    async def start(self) -> None:
        """Finish what a crash interrupted, then watch the timeouts. Must return before clients are let in."""
        for slot in self._slots.values():
            decided = one_place.completed(self._host.topics, slot.transaction, self._host.clock.now_ms())
            if decided is not None:
                slot.transaction = decided
                with suppress_full():  # the next start finds it out again
                    self._append(decided)
        prepared = [slot for slot in self._slots.values() if slot.transaction.state in transactions.PREPARED]
        again = self._background.attempt
        await asyncio.gather(*(again("markers", partial(self._carry_out, slot)) for slot in prepared))
        await again("orphans", self._end_orphans)
        for slot in self._slots.values():
            self._watch(slot)
        self._background.schedule("sweep", SWEEP_INTERVAL_MS, self._sweep)
        self._compactor.check()

    async def _end_orphans(self) -> None:
        aborts = self._config.aborts_orphans
        found = list(orphans.find(self._host.topics, self.all()))
        for orphan in found:
            orphans.report(orphan, aborted=aborts)
        write = self.markers.write_one
        await asyncio.gather(*(write(each.partition, each.producer_id, each.epoch, False) for each in found if aborts))

    async def stop(self) -> None:
        """Let the steps under way reach the disk; open transactions stay open for the next start."""
        await self._background.stop()

    async def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected: tuple[int, int] | None
    ) -> Identity:
        """A producer id, or a new epoch that fences the id's predecessors (see `state.transactions`)."""
        await self._producer_ids.ensure()
        try:
            if transactional_id is None:
                return Identity(ErrorCode.none, self._producer_ids.allocate(), 0)
            if not transactional_id:
                return Identity(ErrorCode.invalid_request)
            if not 0 < timeout_ms <= self._config.max_timeout_ms:
                return Identity(ErrorCode.invalid_transaction_timeout)
            slot = self._slots.get(transactional_id)
            if slot is None:
                fresh = Transaction(transactional_id, self._producer_ids.allocate(), NO_EPOCH, timeout_ms)
                slot = self._slots[transactional_id] = Slot(fresh)
            if slot.pending is not None:
                return Identity(ErrorCode.concurrent_transactions)
            decision = transactions.init_producer_id(
                slot.transaction, expected, timeout_ms, self._host.clock.now_ms(), self._producer_ids.allocate
            )
        except NoProducerId:
            return Identity(ErrorCode.coordinator_load_in_progress)
        if isinstance(decision, Refuse):
            return Identity(decision.error_code)
        made = await self._make(slot, decision)
        if made.state in transactions.PREPARED:
            # The predecessor's transaction is being aborted; the epoch made for that is nobody's.
            return Identity(ErrorCode.concurrent_transactions)
        return Identity(ErrorCode.none, made.producer_id, made.epoch)

    async def add_partitions(
        self,
        transactional_id: str | None,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int = 0,
    ) -> ErrorCode:
        """Make partitions part of the open transaction, or open one.

        Clients begin their next transaction right behind the end of the last one. CONCURRENT_TRANSACTIONS would make
        them wait for 20 ms or more; the markers are written sooner, so they are waited for, up to `ENDING_PATIENCE_S`.

        Args:
            transactional_id: whose.
            producer_id: as the client believes.
            epoch: as the client believes.
            partitions: all or none of them are added.
            client_version: 2 if it is the first batch or offset that adds its partition, else 0.
        """
        names = frozenset(partitions)
        deadline = asyncio.get_running_loop().time() + ENDING_PATIENCE_S
        while True:
            error_code = await self._add(transactional_id, producer_id, epoch, names, client_version)
            if error_code is not ErrorCode.concurrent_transactions:
                return error_code
            try:
                async with asyncio.timeout_at(deadline):
                    await self._slots[transactional_id or ""].settled.wait()
            except TimeoutError:
                return error_code

    async def _add(
        self,
        transactional_id: str | None,
        producer_id: int,
        epoch: int,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.invalid_request
        slot = self._slots.get(transactional_id)
        if slot is None or slot.transaction.producer_id != producer_id:
            return ErrorCode.invalid_producer_id_mapping
        if slot.transaction.epoch != epoch:
            return ErrorCode.producer_fenced
        if slot.pending is not None:
            return ErrorCode.concurrent_transactions
        now_ms, begun_at = self._host.clock.now_ms(), one_place.begins_at(self._host.topics, partitions)
        decision = transactions.add_partitions(
            slot.transaction, producer_id, epoch, partitions, now_ms, client_version, begun_at
        )
        if isinstance(decision, Refuse):
            return decision.error_code
        await self._make(slot, decision)
        return ErrorCode.none

    def verify(
        self, transactional_id: str | None, producer_id: int, epoch: int, partition: TopicPartition
    ) -> ErrorCode:
        """Whether the first batch of a transaction may enter a partition (KIP-890)."""
        slot = self._slots.get(transactional_id or "")
        if not transactional_id:
            return ErrorCode.invalid_request
        if slot is None:
            return ErrorCode.invalid_producer_id_mapping
        known = slot.transaction
        if slot.pending is not None and slot.pending.state in transactions.PREPARED:
            known = slot.pending
        return transactions.verify(known, producer_id, epoch, partition)

    async def end(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, bump: bool = False
    ) -> Identity:
        """Decide the open transaction. Returns once the decision is on disk; markers follow by themselves.

        Args:
            transactional_id: whose.
            producer_id: as the client believes.
            epoch: as the client believes.
            commit: commit or abort.
            bump: EndTxn 5 or later (transaction version 2).
        """
        if not transactional_id:
            return Identity(ErrorCode.invalid_request)
        slot = self._slots.get(transactional_id)
        if slot is None:
            return Identity(ErrorCode.invalid_producer_id_mapping)
        now_ms = self._host.clock.now_ms()
        try:
            if bump:
                await self._producer_ids.ensure()
                decision = transactions.end_v2(
                    slot.transaction, producer_id, epoch, commit, now_ms, self._producer_ids.allocate
                )
            else:
                decision = transactions.end(slot.transaction, producer_id, epoch, commit, now_ms)
        except NoProducerId:
            return Identity(ErrorCode.coordinator_load_in_progress)
        if slot.pending is not None and not (isinstance(decision, Refuse) and decision.error_code in NOT_THE_OWNER):
            return Identity(ErrorCode.concurrent_transactions)
        if isinstance(decision, Refuse):
            return Identity(decision.error_code)
        if isinstance(decision, Answer):
            return Identity(ErrorCode.none, decision.producer_id, decision.epoch)
        if not bump and commit and one_place.is_open(self._host.topics, decision.next):
            made = await self._make(slot, decision, self._commit_in_one_place)
        else:
            made = await self._make(slot, decision)
        return Identity(ErrorCode.none, *transactions.identity_after_end(made))

    def get(self, transactional_id: str) -> Transaction | None:
        """What is known of an id that has been initialised, for DescribeTransactions."""
        slot = self._slots.get(transactional_id)
        return None if slot is None else slot.transaction

    def all(self) -> list[Transaction]:
        """All transactional ids, for ListTransactions."""
        return [slot.transaction for slot in self._slots.values()]

    async def _make(self, slot: Slot, decision: Decision, store: Store | None = None) -> Transaction:
        """Make a step durable; if it is a decision, have it carried out. Survives the caller's cancellation.

        Raises NoRoom, the step not made.
        """
        if not isinstance(decision, transactions.Step):
            return slot.transaction
        made = decision.next
        slot.pending = made
        slot.settled.clear()
        storing = self._or_undone(slot, (store or self._store)(slot, made))
        await self._background.finish(f"transaction {made.transactional_id}", storing)
        return made

    async def _or_undone(self, slot: Slot, storing: Coroutine[None, None, None]) -> None:
        try:
            await storing
        except NoRoom:
            slot.pending = None
            slot.settle()
            if slot.transaction.epoch == NO_EPOCH:
                del self._slots[slot.transaction.transactional_id]
            raise

    async def _store(self, slot: Slot, made: Transaction) -> None:
        log = self._append(made)
        await self._host.durable(log)
        slot.reach(made)
        self._watch(slot)
        if made.state in transactions.PREPARED:
            self._background.insist(f"markers {made.transactional_id}", partial(self._carry_out, slot))

    async def _commit_in_one_place(self, slot: Slot, prepared: Transaction) -> None:
        """Marker and completion at once; see the module."""
        (name,) = prepared.partitions
        if await self.markers.write_one(name, prepared.producer_id, prepared.epoch, commit=True):
            await self._store(slot, prepared)  # the partition has gone, or is damaged: nothing was written
            return
        completed = transactions.complete(prepared, self._host.clock.now_ms())
        with suppress_full():  # a crash would have lost it, too
            self._append(completed)
        slot.reach(completed)
        self._watch(slot)

    def _append(self, made: Transaction) -> Partition:
        log = self._host.internal_log(TRANSACTION_TOPIC)
        log.append(encode([_record(made)], self._host.clock.now_ms()))
        return log

    async def _carry_out(self, slot: Slot) -> None:
        """Markers, then completion: the way on from a prepared transaction, now or after a restart."""
        prepared = slot.transaction
        await self.markers.write(prepared)
        completed = transactions.complete(prepared, self._host.clock.now_ms())
        self._append(completed)
        slot.reach(completed)

    def _live(self) -> Records:
        """What the log must hold: the reservation of producer ids, and each id's latest record."""
        latest = [slot.pending or slot.transaction for slot in self._slots.values()]
        known = [transaction for transaction in latest if transaction.epoch != NO_EPOCH]
        return [self._producer_ids.snapshot(), *map(_record, known)]

    def _watch(self, slot: Slot) -> None:
        """Have the transaction aborted at its deadline, or stop watching if none is open."""
        key = ("deadline", slot.transaction.transactional_id)
        deadline_ms = transactions.deadline_ms(slot.transaction)
        if deadline_ms is None:
            self._background.cancel(key)
            return
        delay_ms = deadline_ms - self._host.clock.now_ms()
        self._background.schedule(key, delay_ms, lambda: self._time_out(slot))

    def _time_out(self, slot: Slot) -> None:
        now_ms = self._host.clock.now_ms()
        deadline_ms = transactions.deadline_ms(slot.transaction)
        if deadline_ms is None:
            return
        if slot.pending is not None or now_ms < deadline_ms:
            key = ("deadline", slot.transaction.transactional_id)
            self._background.schedule(key, max(deadline_ms - now_ms, RETRY_DELAY_MS), lambda: self._time_out(slot))
            return
        decision = transactions.fence(slot.transaction, now_ms)
        self._background.spawn(f"timeout {slot.transaction.transactional_id}", self._fence(slot, decision))

    async def _fence(self, slot: Slot, decision: Decision) -> None:
        try:
            await self._make(slot, decision)
        except NoRoom:
            key = ("deadline", slot.transaction.transactional_id)
            self._background.schedule(key, NO_ROOM_RETRY_MS, lambda: self._time_out(slot))

    def _sweep(self) -> None:
        """Forget ids that have been idle for longer than `transactional.id.expiration.ms`."""
        now_ms = self._host.clock.now_ms()
        for transactional_id, slot in list(self._slots.items()):
            idle = transactions.is_forgettable(slot.transaction, now_ms, self._config.id_expiration_ms)
            if idle and slot.pending is None:
                with suppress_full():  # the next sweep will find it
                    log = self._host.internal_log(TRANSACTION_TOPIC)
                    log.append(encode([(transaction_log.encode_key(transactional_id), None)], now_ms))
                    del self._slots[transactional_id]
        self._background.schedule("sweep", SWEEP_INTERVAL_MS, self._sweep)


def _record(transaction: Transaction) -> tuple[bytes, bytes]:
    key = transaction_log.encode_key(transaction.transactional_id)
    return key, transaction_log.encode_transaction(transaction)

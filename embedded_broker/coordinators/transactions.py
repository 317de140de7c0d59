"""The transaction coordinator: makes each step of `state.transactions` durable, and carries out decisions.

Called by the handlers of transactional APIs. Every step is one record in `__transaction_state`, on disk before it is
answered or acted upon:

    Ongoing → PrepareCommit → (answer) → commit markers, on disk in every partition → CompleteCommit
    Ongoing → PrepareAbort  → (answer) → abort markers, on disk in every partition  → CompleteAbort

The prepared record is the decision, and `Completion` carries it out. After a crash the next start writes the markers
again (a second marker finds no open transaction and changes nothing) and completes. No request waits for the completed
record: records of the next transaction come after it in the same log, so none of them can be durable without it.

A commit of a transaction with one partition (that bumps no epoch) needs no prepared record: its marker there is the
decision, and readers wait for it to be on disk anyway (`single_partition_commit`). After a crash the next start finds
the marker, and completes.

    Ongoing → commit marker, on disk → CompleteCommit → (answer)

Source: Kafka `TransactionCoordinator`, `TransactionStateManager`, `TransactionMarkerChannelManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators import hanging_transactions, single_partition_commit
from embedded_broker.coordinators.background import Background
from embedded_broker.coordinators.compaction import Compactor, LiveRecords
from embedded_broker.coordinators.completion import Completion
from embedded_broker.coordinators.deadlines import Deadlines
from embedded_broker.coordinators.markers import MarkerWriter
from embedded_broker.coordinators.memory_quota import MemoryQuota
from embedded_broker.coordinators.ports import CoordinatorHost, Partition, TransactionConfig
from embedded_broker.coordinators.producer_ids import NoProducerId, ProducerIds
from embedded_broker.coordinators.transaction_entry import PARTITION_BYTES, TransactionEntry, is_not_the_owner, size_of
from embedded_broker.metadata.topic_names import TRANSACTION_TOPIC
from embedded_broker.state import transaction_log, transactions
from embedded_broker.state.owners import SOMEBODY, Owner
from embedded_broker.state.producers import NO_EPOCH, NO_PRODUCER_ID
from embedded_broker.state.transactions import Answer, Decision, RefuseRequest, TopicPartition, Transaction
from embedded_broker.storage.disk_space import NoSpace, suppress_disk_full
from kafka_records.batch import BatchHeader, Buffer
from kafka_records.records import body_of, decode_body, encode

ENDING_PATIENCE_S = 0.1
"""How long the next transaction waits for the last one's markers. In Kafka only batches of transaction version 2 wait
(`add.partitions.to.txn.retry.backoff.max.ms`), not those who add partitions by request."""


Store = Callable[[TransactionEntry, Transaction, tuple[bytes, bytes]], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class Identity:
    """Answer to InitProducerId and EndTxn."""

    error_code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class TransactionCoordinator:
    """All transactional ids of the broker. Called on the event loop only."""

    def __init__(self, host: CoordinatorHost, markers: MarkerWriter, config: TransactionConfig | None = None) -> None:
        self._host = host
        self.markers = markers
        self._config = config or TransactionConfig()
        self._entries: dict[str, TransactionEntry] = {}
        self._quota = MemoryQuota(self._config.ids_max_bytes)
        self._producer_ids = ProducerIds(host)
        self._background = Background(host.fail)
        self._deadlines = Deadlines(host, self._background, self._make)
        self._completion = Completion(host.clock, markers, self._background, lambda made: self._append(_record(made)))
        self._compactor = Compactor(host, self._background, TRANSACTION_TOPIC, self._live)

    def replay(self, header: BatchHeader, batch: Buffer) -> None:
        """Take over a batch of `__transaction_state` at recovery, in log order.

        Raises:
            Truncated: a record is not whole although its batch's CRC is right: written by something else.
        """
        if header.is_control:
            return
        for record in decode_body(header, body_of(header, batch)):
            found = transaction_log.decode(record.key or b"", record.value)
            if isinstance(found, transaction_log.ProducerIdsRecord):
                self._producer_ids.replay(found)
            elif found is not None and found.transaction is None:
                self._entries.pop(found.transactional_id, None)
            elif found is not None and found.transaction is not None:  # `start` counts the last of each id
                self._entries[found.transactional_id] = TransactionEntry(found.transaction, quota=self._quota)

    async def start(self) -> None:
        """Complete what a crash interrupted, then start the timeouts. Must return before connections are accepted."""
        for entry in self._entries.values():
            decided = single_partition_commit.completed_after_crash(
                self._host.topics, entry.transaction, self._host.clock.now_ms()
            )
            if decided is not None:
                entry.transaction = decided
                with suppress_disk_full():  # the next start finds it out again
                    self._append(_record(decided))
            entry.count()
        prepared = [entry for entry in self._entries.values() if entry.transaction.state in transactions.PREPARED]
        try_once, carry_out = self._background.try_once, self._completion.carry_out
        await asyncio.gather(*(try_once("markers", partial(carry_out, each, each.transaction)) for each in prepared))
        await try_once("hanging transactions", self._end_hanging)
        for entry in self._entries.values():
            self._deadlines.watch(entry)
        self._background.schedule("sweep", self._host.thresholds.transactions_sweep_interval_ms, self._sweep)
        self._compactor.check()

    async def _end_hanging(self) -> None:
        aborts = self._config.aborts_hanging
        found = list(hanging_transactions.find(self._host.topics, self.all()))
        for each in found:
            hanging_transactions.report(each, aborted=aborts)
        write = self.markers.write_one
        await asyncio.gather(*(write(each.partition, each.producer_id, each.epoch, False) for each in found if aborts))

    async def stop(self) -> None:
        """Wait for the steps that are being written; open transactions stay open for the next start."""
        await self._background.stop()

    def on_topic_deleted(self, name: str) -> None:
        """Go on with transactions that its partitions have held up: see `Completion`."""
        self._completion.on_topic_deleted(name)

    async def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected: tuple[int, int] | None, owner: Owner = SOMEBODY
    ) -> Identity:
        """Return a producer id, or a new epoch that fences the id's predecessors (see `state.transactions`).

        POLICY_VIOLATION for a new id when those that are known take all the memory there is for them, or those of the
        client their part of it.
        """
        await self._producer_ids.ensure()
        try:
            if transactional_id is None:
                return Identity(ErrorCode.none, self._producer_ids.allocate(), 0)
            if not transactional_id:
                return Identity(ErrorCode.invalid_request)
            if not 0 < timeout_ms <= self._config.max_timeout_ms:
                return Identity(ErrorCode.invalid_transaction_timeout)
            entry = self._entries.get(transactional_id)
            if entry is None:
                fresh = Transaction(transactional_id, self._producer_ids.allocate(), NO_EPOCH, timeout_ms)
                if not self._quota.fits(owner, size_of(fresh)):
                    return Identity(ErrorCode.policy_violation)
                entry = TransactionEntry(fresh, quota=self._quota, owner=owner)
            if entry.pending is not None:
                return Identity(ErrorCode.concurrent_transactions)
            decision = transactions.init_producer_id(
                entry.transaction, expected, timeout_ms, self._host.clock.now_ms(), self._producer_ids.allocate
            )
        except NoProducerId:
            return Identity(ErrorCode.coordinator_load_in_progress)
        if isinstance(decision, RefuseRequest):
            return Identity(decision.error_code)
        made = await self._make(entry, decision)
        if made.state in transactions.PREPARED:
            # The previous producer's transaction is being aborted; no producer gets the epoch of that abort.
            return Identity(ErrorCode.concurrent_transactions)
        return Identity(ErrorCode.none, made.producer_id, made.epoch)

    async def add_partitions(
        self,
        transactional_id: str | None,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int = 0,
        owner: Owner = SOMEBODY,
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
            owner: the client's connection.
        """
        names = frozenset(partitions)
        deadline = asyncio.get_running_loop().time() + ENDING_PATIENCE_S
        while True:
            error_code = await self._add(transactional_id, producer_id, epoch, names, client_version, owner)
            is_busy = error_code is ErrorCode.concurrent_transactions
            if not is_busy or not await self._settles(transactional_id or "", deadline):
                return error_code

    async def _settles(self, transactional_id: str, deadline: float) -> bool:
        """Wait until the next step of a known id can be made; False when that is not before `deadline`."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._entries[transactional_id].settled.wait()
        except TimeoutError:
            return False

    async def _add(
        self,
        transactional_id: str | None,
        producer_id: int,
        epoch: int,
        partitions: frozenset[TopicPartition],
        client_version: int,
        owner: Owner,
    ) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.invalid_request
        entry = self._entries.get(transactional_id)
        if entry is None:
            return ErrorCode.invalid_producer_id_mapping
        more = partitions - entry.transaction.partitions
        if not self._quota.fits(owner, len(more) * PARTITION_BYTES):
            return ErrorCode.policy_violation
        now_ms = self._host.clock.now_ms()
        begun_at = single_partition_commit.begin_offset(self._host.topics, partitions)
        decision = transactions.add_partitions(
            entry.transaction, producer_id, epoch, partitions, now_ms, client_version, begun_at
        )
        if entry.pending is not None and not is_not_the_owner(decision):
            return ErrorCode.concurrent_transactions
        if isinstance(decision, RefuseRequest):
            return decision.error_code
        entry.added_by.update(dict.fromkeys(sorted(more), owner))
        await self._make(entry, decision)
        return ErrorCode.none

    def verify(
        self, transactional_id: str | None, producer_id: int, epoch: int, partition: TopicPartition
    ) -> ErrorCode:
        """Return whether the first batch of a transaction may enter a partition (KIP-890)."""
        entry = self._entries.get(transactional_id or "")
        if not transactional_id:
            return ErrorCode.invalid_request
        if entry is None:
            return ErrorCode.invalid_producer_id_mapping
        known = entry.transaction
        if entry.pending is not None and entry.pending.state in transactions.PREPARED:
            known = entry.pending
        return transactions.verify(known, producer_id, epoch, partition)

    async def end(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, bump: bool = False
    ) -> Identity:
        """Decide the open transaction. Returns once the decision is on disk; markers follow by themselves.

        While the markers of the last one are being written the next can't be ended, and up to version 1 a client would
        not know of it: with `bump` that is waited for, as when partitions are added.

        Args:
            transactional_id: whose.
            producer_id: as the client believes.
            epoch: as the client believes.
            commit: commit or abort.
            bump: EndTxn 5 or later (transaction version 2).
        """
        deadline = asyncio.get_running_loop().time() + ENDING_PATIENCE_S
        while True:
            identity = await self._end(transactional_id, producer_id, epoch, commit, bump)
            is_busy = bump and identity.error_code is ErrorCode.concurrent_transactions
            if not is_busy or not await self._settles(transactional_id, deadline):
                return identity

    async def _end(self, transactional_id: str, producer_id: int, epoch: int, commit: bool, bump: bool) -> Identity:
        if not transactional_id:
            return Identity(ErrorCode.invalid_request)
        if bump:
            await self._producer_ids.ensure()
        entry = self._entries.get(transactional_id)
        if entry is None:
            return Identity(ErrorCode.invalid_producer_id_mapping)
        now_ms = self._host.clock.now_ms()
        try:
            if bump:
                decision = transactions.end_v2(
                    entry.transaction, producer_id, epoch, commit, now_ms, self._producer_ids.allocate
                )
            else:
                decision = transactions.end(entry.transaction, producer_id, epoch, commit, now_ms)
        except NoProducerId:
            return Identity(ErrorCode.coordinator_load_in_progress)
        if entry.pending is not None and not is_not_the_owner(decision):
            return Identity(ErrorCode.concurrent_transactions)
        if isinstance(decision, RefuseRequest):
            return Identity(decision.error_code)
        if isinstance(decision, Answer):
            return Identity(ErrorCode.none, decision.producer_id, decision.epoch)
        if not bump and commit and single_partition_commit.applies_to(self._host.topics, decision.next):
            made = await self._make(entry, decision, self._commit_single_partition)
        else:
            made = await self._make(entry, decision)
        return Identity(ErrorCode.none, *transactions.identity_after_end(made))

    def get(self, transactional_id: str) -> Transaction | None:
        """Return what is known of an id that has been initialised, for DescribeTransactions."""
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.transaction

    def all(self) -> list[Transaction]:
        """Return all transactional ids, for ListTransactions."""
        return [entry.transaction for entry in self._entries.values()]

    async def _make(self, entry: TransactionEntry, decision: Decision, store: Store | None = None) -> Transaction:
        """Make a step durable; if it is a decision, carry it out. Continues if the caller is cancelled.

        `decision` must be of the state that holds now: nothing may be awaited between the two. Raises NoSpace, the step
        not made; IllegalTransactionStep if another one is being written.
        """
        if not isinstance(decision, transactions.Step):
            return entry.transaction
        made = decision.next
        record = _record(made)  # what can't be written changes nothing
        entry.begin(made)
        self._entries[made.transactional_id] = entry
        storing = partial(self._or_roll_back, entry, partial(store or self._store, entry, made, record))
        await self._background.finish(f"transaction {made.transactional_id}", storing)
        return made

    async def _or_roll_back(self, entry: TransactionEntry, store: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await store()
        except NoSpace:
            entry.rolled_back()
            if entry.transaction.epoch == NO_EPOCH:
                del self._entries[entry.transaction.transactional_id]
                entry.forgotten()
            raise

    async def _store(self, entry: TransactionEntry, made: Transaction, record: tuple[bytes, bytes]) -> None:
        log = self._append(record)
        entry.appended = made
        await self._host.durable(log)
        entry.stored(made)
        self._deadlines.watch(entry)
        if made.state in transactions.PREPARED:
            carry_out = partial(self._completion.carry_out, entry, made)
            self._background.retry_until_done(f"markers {made.transactional_id}", carry_out)

    async def _commit_single_partition(
        self, entry: TransactionEntry, prepared: Transaction, record: tuple[bytes, bytes]
    ) -> None:
        """Write the marker, which is the decision, and the completed record; see the module's docstring."""
        (name,) = prepared.partitions
        if await self.markers.write_one(name, prepared.producer_id, prepared.epoch, commit=True):
            await self._store(entry, prepared, record)  # the partition has gone, or is stopped
            return
        completed = transactions.complete(prepared, self._host.clock.now_ms())
        with suppress_disk_full():  # a crash would have lost it, too
            self._append(_record(completed))
        entry.stored(completed)
        self._deadlines.watch(entry)

    def _append(self, record: tuple[bytes, bytes]) -> Partition:
        log = self._host.internal_log(TRANSACTION_TOPIC)
        log.append(encode([record], self._host.clock.now_ms()))
        return log

    def _live(self) -> Iterator[LiveRecords]:
        """Yield what the log must hold: the reservation of producer ids, and each id's latest record."""
        yield LiveRecords([self._producer_ids.snapshot()])
        ids, count = list(self._entries), self._host.thresholds.compaction_part_records
        for first in range(0, len(ids), count):
            logged = [self._entries[each].logged for each in ids[first : first + count] if each in self._entries]
            yield LiveRecords([_record(each) for each in logged if each.epoch != NO_EPOCH])

    def _sweep(self) -> None:
        """Forget ids that have been idle for longer than `transactional.id.expiration.ms`."""
        now_ms = self._host.clock.now_ms()
        for transactional_id, entry in list(self._entries.items()):
            idle = transactions.is_forgettable(entry.transaction, now_ms, self._config.id_expiration_ms)
            if idle and entry.pending is None:
                with suppress_disk_full():  # the next sweep will find it
                    log = self._host.internal_log(TRANSACTION_TOPIC)
                    log.append(encode([(transaction_log.encode_key(transactional_id), None)], now_ms))
                    del self._entries[transactional_id]
                    entry.forgotten()
        self._background.schedule("sweep", self._host.thresholds.transactions_sweep_interval_ms, self._sweep)


def _record(transaction: Transaction) -> tuple[bytes, bytes]:
    key = transaction_log.encode_key(transaction.transactional_id)
    return key, transaction_log.encode_transaction(transaction)

"""The `records` plane: wires source reader, writers and position reader of one lane behind the plane contract.

Made by the flow's wiring, one for each producer session of a lane.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from confluent_kafka import KafkaError, KafkaException

from replicator.config import Delivery
from replicator.kafka import failures, metadata, properties
from replicator.kafka.offset_reader import OffsetReader
from replicator.kafka.producer import TransactionalProducer
from replicator.model import names
from replicator.model.checkpoint import Stored
from replicator.model.errors import Abortable, NotAllowed, ReplicatorError, UnknownOutcome
from replicator.model.partition import Committed, Partition, Seek
from replicator.model.timestamps import UNBOUNDED
from replicator.offset_map.runs import add_runs
from replicator.planes.contract import AsideRecord, Copied, Flushed, MapBlocks, PollResult, ReadPlan, Written
from replicator.planes.records.acks import AckWatch
from replicator.planes.records.blocks import wait_for_blocks, write_blocks
from replicator.planes.records.copying import Run, Writer, copy_run, new_run, offsets_of, portions
from replicator.planes.records.digest import Chain
from replicator.planes.records.losses import IF_APPLIED, NOT_WRITTEN, LostRecords, all_lost
from replicator.planes.records.message import Record
from replicator.planes.records.plain import PlainWriter
from replicator.planes.records.refusals import Refusals
from replicator.planes.records.source import Source
from replicator.planes.settings import PlaneSettings


class RecordsPlane:
    """Implements `planes.contract.Plane` for one producer session of one lane.

    Invariant: where records go by themselves (`at_least_once`, `at_most_once`) the order of the two writes is
    the delivery mode: records, acks, position; or position, records.
    """

    def __init__(
        self,
        settings: PlaneSettings,
        on_client_error: Callable[[str], None],
        on_lost_records: Callable[[LostRecords], None],
    ) -> None:
        """`on_client_error` takes what librdkafka reports by its error callback.

        `on_lost_records`: what at_most_once has lost.
        """
        flow, limits = settings.flow, (settings.batch_bytes_max, settings.record_bytes_max)
        self._settings, self._flow, self._routes = settings, flow, settings.routes
        self._on_lost_records = on_lost_records
        self._record_bytes_max = max(flow.limits.record_bytes_max, settings.record_bytes_max)
        self._watch = AckWatch()
        self._transactions = TransactionalProducer(
            flow,
            properties.lane_producer(
                flow,
                settings.transactional_id,
                batch_bytes_max=limits[0],
                record_bytes_max=limits[1],
                bulk=settings.bulk,
                compress=settings.compress,
            ),
            on_client_error,
            self._explain,
            settings.patience,
        )
        self._positions = OffsetReader(flow)
        self._source = Source(
            flow, on_client_error, record_bytes_max=limits[1], bulk=settings.bulk, fetch_size=settings.fetch_size
        )
        self._plain: PlainWriter | None = None
        if flow.delivery is not Delivery.EXACTLY_ONCE:
            self._plain = PlainWriter(flow, *limits, on_client_error, compress=settings.compress)
        self._refusals = Refusals(flow.target.name, settings.routes)
        self._read_plans: Mapping[Partition, ReadPlan] = {}
        self._held: list[list[Record]] = []  # at_most_once: read, not yet written
        self._digests: dict[Partition, str] = {}  # of the block that was committed last, since the last seek
        self._chains: dict[Partition, Chain] = {}
        self._runs: list[Run] = []
        self._written_s = 0.0  # when the first of them was written, monotonic
        self._ends: dict[Partition, Seek] = {}

    def connections(self) -> Iterator[Callable[[], None]]:
        """Return functions that make the connections of its clients, each from a thread of its own if need be."""
        yield self._positions.connect
        control = names.control_topic(self._flow.name)
        yield partial(metadata.connect_to_broker, self._transactions.producer, control)
        for at in self._routes:
            yield partial(self._source.connect, at.topic)
            return

    def fence(self) -> None:
        """Initialise the transactional id: ends the predecessor's open transaction and fences it."""
        self._transactions.fence()

    def on_stall(self, call: Callable[[Written], None]) -> None:
        """Have `call` made now and then while the target's acknowledgements are late."""
        for writer in (self._transactions, self._plain):
            if writer is not None:
                writer.stalled = lambda: call(self.written())

    def queued_bytes(self) -> int | None:
        """See `Plane`. The two weaker delivery modes write with another producer, which isn't asked."""
        return self._transactions.queued_bytes if self._plain is None else None

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, Stored | ReplicatorError | None]:
        """Read the stable positions by *target* partition; each has its own error as its value."""
        return self._positions.positions(partitions)

    def seek(self, read_plans: Mapping[Partition, ReadPlan]) -> None:
        """Read exactly these source partitions; forgets everything of the transaction that was open."""
        self._forget()
        self._ends, self._read_plans = {}, dict(read_plans)
        self._digests = {at: plan.digest for at, plan in read_plans.items()}
        self._source.seek(self._read_plans)

    def poll(self, records_max: int, timeout_s: float) -> PollResult:
        """Read up to `records_max` source records and hand them to the writer; opens a transaction with the first."""
        if not (self._runs or self._held):
            self._source.check_fetches()
        batch = self._source.poll(records_max, timeout_s)
        result = PollResult(drained=batch.drained, failed=batch.failed, heard=batch.heard)
        if batch.groups and not self._transactions.open:
            self._transactions.begin()
        blocked = {run.source for run in self._runs if run.blocked}
        for source, messages in batch.groups.items():
            if source in blocked:
                continue
            if self._flow.delivery is Delivery.AT_MOST_ONCE:
                self._held.append(messages)
                result.records += len(messages)
                result.bytes += sum(len(message) for message in messages)
                continue
            for part in portions(messages, self._read_plans.get(source)):
                run = self._copy(source, part)
                result.records += run.acks.count
                result.bytes += run.bytes
                result.runs += len(run.offsets)
                if len(part) < len(messages):
                    self._acknowledged()
                if run.blocked is not None:
                    break
        if batch.groups:
            with self._raising_cause():
                self._serve()
        else:
            self._serve()
        self._ends.update(batch.ends)
        self._raise_failed()
        result.pending, result.ends = bool(self._runs or self._held), self._ends
        return result

    def _copy(self, source: Partition, messages: list[Record]) -> Run:
        chain = self._chains.get(source)
        if chain is None:
            chain = self._chains[source] = Chain(self._digests.get(source, ""))
        plan, target, plain = self._read_plans.get(source), self._routes[source], self._plain
        run = new_run(messages, self._watch, every_ack=plain is not None or (plan is not None and plan.every_ack))
        if self._flow.delivery is Delivery.AT_MOST_ONCE:
            run.acks.stored = set()
        self._written_s = self._written_s if self._runs else time.monotonic()
        self._runs.append(run)
        out = plain or self._transactions
        bounds = self._settings.timestamps.get(source, UNBOUNDED)
        writer = Writer(out.producer, out.wait_for_space, self._record_bytes_max, bounds)
        try:
            copy_run(writer, run, messages, target, chain)
        except (Abortable, NotAllowed) as error:
            raise self._failure() or error from error
        except failures.SERVING as error:
            raise self._write_error(failures.served(error), target) from error
        finally:
            if plain is None and run.acks.count:
                self._transactions.written = True
        if plain is None or (plan is not None and plan.spans):
            run.offsets = offsets_of(messages, run.acks.count)
        return run

    def _write_error(self, error: KafkaException, target: Partition) -> ReplicatorError:
        """Say what an exception of `produce` means: an error of its own, or that the transaction has failed before."""
        inner = failures.kafka_error(error)
        if inner.code() in failures.NOT_ALLOWED:
            return self._refusals.not_allowed(inner, {target}, f"write to {target}")
        before = self._failure()
        if before is not None:
            return before
        if self._plain is None:
            return self._transactions.produce_error(error, target)
        return self._plain.classified(error, f"write to {target}")

    @contextmanager
    def _raising_cause(self) -> Iterator[None]:
        """Raise the cause of an error of the open transaction, once all acks under way have come."""
        try:
            yield
        except (Abortable, NotAllowed) as error:
            raise self._failure() or error from error

    def _failure(self) -> ReplicatorError | None:
        """Say why the open transaction cannot be committed: refused records first. None when nothing has failed."""
        (self._plain or self._transactions).settle()
        failure = self._transactions.failure() if self._transactions.open else None
        found: ReplicatorError | None = self._refusals.of_runs(self._runs, failure)
        if found is None and failure is not None:
            found = self._explain(failure) or failures.classify_open(
                failure, self._flow.target.name, "write records", self._transactions.right_for(failure)
            )
        return found or self._refusals.of_errors(self._runs, transactional=self._plain is None)

    def _raise_failed(self) -> None:
        if self._watch.failed:
            raise self._failure() or Abortable(f"cluster {self._flow.target.name!r}: a record was not written")

    def _explain(self, error: KafkaError) -> ReplicatorError | None:
        """Say what the reason of a failed transaction means for the partitions that it names."""
        return self._refusals.explain(error, self._transactions.denied)

    def _serve(self) -> None:
        """Let the writers' callbacks run while nothing is written. Raises what they found."""
        self._transactions.serve()
        if self._plain is not None:
            self._plain.serve()

    def written(self) -> Written:
        """Say what was written since the last commit, abort or seek."""
        records, size = sum(run.acks.count for run in self._runs), sum(run.bytes for run in self._runs)
        overdue = self._transactions.overdue()
        if not records:
            return Written(overdue=overdue)
        left = min(records, (self._plain or self._transactions).unacknowledged)
        limits = self._flow.limits
        limit_ms = limits.transaction_timeout_ms if self._plain is None else limits.request_timeout_ms
        acknowledged, took_s = size * (records - left) // records, time.monotonic() - self._written_s
        late = frozenset(run.source for run in self._runs if run.acks.count and run.acks.last < 0)
        written = frozenset(run.source for run in self._runs)
        return Written(records, size, acknowledged, took_s, limit_ms / 1000, written, late, overdue)

    def flush(self) -> Flushed:
        """Wait until all handed-over records are acknowledged; what happened, by source partition."""
        self._acknowledged()
        copied: dict[Partition, Copied] = {}
        for run in self._runs:
            self._add(copied, run)
        for messages in self._held:
            last = messages[-1]
            at = Partition(last.topic(), last.partition())
            total = copied.setdefault(at, Copied(next_offset=0))
            total.next_offset, total.records = last.offset() + 1, total.records + len(messages)
        for source, chain in self._chains.items():
            if source in copied:
                copied[source].digest = chain.hexdigest()
        return Flushed(copied, self.written())

    def _acknowledged(self) -> None:
        """Wait until all handed-over records are acknowledged; raises what failed of them."""
        with self._raising_cause():
            if self._plain is not None:
                self._plain.flush(self._has_failed)
            if self._transactions.open:
                self._transactions.flush(self._has_failed)
        self._raise_failed()

    def _has_failed(self) -> bool:
        return self._watch.failed

    def _add(self, copied: dict[Partition, Copied], run: Run) -> None:
        """Check a run's acks and add it to its partition's sum.

        Invariants, under exactly_once: no ack counts without its offset, and the acks of a partition are contiguous
        over the whole transaction: otherwise somebody else writes between, or a record in the middle is not there.
        """
        acks, target = run.acks, self._routes[run.source]
        total = copied.setdefault(run.source, Copied(next_offset=run.next_offset))
        total.next_offset, total.blocked, total.leader_epoch = run.next_offset, run.blocked, run.leader_epoch
        if not acks.count:
            return
        total.restamped = total.restamped or acks.restamped
        if self._plain is None:
            if acks.without_offset:
                raise UnknownOutcome(f"{target}: an ack came without its offset")
            follows = total.next_target in (-1, acks.first)
            if not follows or acks.first < 0 or acks.last - acks.first + 1 != acks.count:
                raise Abortable(
                    f"{target}: {acks.count} records got offsets {acks.first} to {acks.last}"
                    + ("" if follows else f", after {total.next_target - 1}")
                )
        total.records += acks.count
        add_runs(total.runs, run.offsets)
        total.bytes += run.bytes
        total.first_target = acks.first if total.first_target < 0 else total.first_target
        total.next_target = acks.last + 1

    def commit(
        self,
        offsets: Mapping[Partition, Committed],
        entries: Sequence[tuple[bytes, bytes]] = (),
        before_end: Callable[[], None] = lambda: None,
        blocks: MapBlocks | None = None,
    ) -> None:
        """Commit, with `offsets` (by target partition), records of the flow's claims topic, and blocks of its map."""
        self._add_positions(offsets, entries, blocks)
        before_end()
        try:
            self._transactions.end()
        except ReplicatorError as error:
            if isinstance(error, UnknownOutcome) or not self._transactions.open:  # it may have moved the positions
                held, self._held = self._held, []
                self._tell_lost(held, f"{IF_APPLIED}{error}", certain=False)
            raise
        written = {run.source for run in self._runs if run.acks.count}
        self._digests |= {source: self._chains[source].hexdigest() for source in written}
        held = self._held
        self._forget()
        self._held = held

    def _add_positions(
        self,
        offsets: Mapping[Partition, Committed],
        entries: Sequence[tuple[bytes, bytes]],
        blocks: MapBlocks | None,
    ) -> None:
        transactions = self._transactions
        if not transactions.open:
            transactions.begin()
        topic, group = names.claims_topic(self._flow.name), names.position_group(self._flow.name)
        with self._raising_cause():
            if blocks is not None:
                write_blocks(transactions, names.offsets_topic(self._flow.name), blocks)
            for key, value in entries:
                transactions.write(topic, value, key, self._settings.claim_partition)
            if entries:
                transactions.flush(self._has_failed)
            transactions.send_positions(group, offsets, self._positions.group_metadata)
            if blocks is not None:
                wait_for_blocks(transactions, blocks)

    def set_aside(self, record: AsideRecord) -> None:
        """Add a record to the flow's topic for those that were set aside; `commit` waits for it."""
        if not self._transactions.open:
            self._transactions.begin()
        topic = names.aside_topic(self._flow.name)
        with self._raising_cause():
            self._transactions.write(topic, record.value, record.key, 0, headers=record.headers)

    def deliver(self) -> Collection[Partition]:
        """Write, under at_most_once, the records whose positions are committed, once; see `Plane`."""
        held, self._held = self._held, []
        return self._write_unsafely(self._plain, held) if held and self._plain is not None else ()

    def _write_unsafely(self, plain: PlainWriter, held: list[list[Record]]) -> set[Partition]:
        """Write what is `held`, and tell what is lost of it, also where the writing ends with an error."""
        try:
            try:
                for messages in held:
                    while messages:  # a record that can't be carried is lost alone
                        at = Partition(messages[0].topic(), messages[0].partition())
                        messages = messages[self._copy(at, messages).through :]
            finally:
                plain.flush_once()
        except Exception as error:
            self._tell_lost(held, f"{NOT_WRITTEN}{error}")
            raise
        self._tell_lost(held, "")
        restamped = {run.source for run in self._runs if run.acks.restamped}
        self._forget()
        return restamped

    def _tell_lost(self, held: list[list[Record]], ended: str, *, certain: bool = True) -> None:
        for lost in all_lost(self._runs, held, ended, certain=certain):
            self._on_lost_records(lost)

    def abort(self) -> None:
        """Abort the open transaction; what is queued is purged first. Raises UnknownOutcome when it is not certain."""
        if self._transactions.open:
            self._transactions.abort()
        if self._plain is not None:
            self._plain.discard()
        self._forget()

    def _forget(self) -> None:
        self._runs, self._held, self._chains = [], [], {}
        self._watch = AckWatch()

    def close(self) -> None:
        """Let go of all connections without committing or aborting anything."""
        with ExitStack() as closing:  # all of them, whatever one of them raises
            if self._plain is not None:
                closing.callback(self._plain.discard)
            closing.callback(self._transactions.close)
            closing.callback(self._positions.close)
            closing.callback(self._source.close)

"""The `batches` plane: fetched record batches go to the target as they are, under the lane's own transactions.

Made by the flow's wiring, one for each producer session of a lane. Everything runs in the lane's thread: a call of the
plane turns one loop over all connections, so the source is read ahead while the target is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from kafka_records.batch import BatchHeader, read_header
from kafka_records.rebuild import rebuild
from kafka_records.records import Record
from replicator.kafka import properties
from replicator.kafka.coordinator_patience import CoordinatorPatience
from replicator.model import names
from replicator.model.checkpoint import Stored
from replicator.model.errors import Abortable, ReplicatorError
from replicator.model.partition import Committed, Partition
from replicator.planes.batches.decoding import WritableBatch
from replicator.planes.batches.fetcher_terms import FetcherSettings
from replicator.planes.batches.merge import MergeLimits
from replicator.planes.batches_io.brokers import Brokers, BrokerSettings
from replicator.planes.batches_io.budget import FetchBudget
from replicator.planes.batches_io.coordinators import Coordinators, TransactionTerms
from replicator.planes.batches_io.digest import Chains, DecodedChain, PayloadChain
from replicator.planes.batches_io.intake import Intake
from replicator.planes.batches_io.loop import LinkLoop
from replicator.planes.batches_io.outcomes import Outcomes
from replicator.planes.batches_io.position_reader import PositionReader
from replicator.planes.batches_io.producing import Producing
from replicator.planes.batches_io.reader import ReaderSettings, SourceReader
from replicator.planes.batches_io.writer import TransactionWriter, WriterLimits
from replicator.planes.contract import AsideRecord, Copied, Flushed, MapBlocks, PollResult, ReadPlan, Written
from replicator.planes.fetch_watch import FetchWatch
from replicator.planes.settings import PlaneSettings
from replicator.wire.access import access
from replicator.wire.fetch import FetchLimits

FETCH_WAIT_MS = 500
BEHIND_S = 0.05
"""How long a poll waits for records that are there, although it was asked to wait for none."""
SEND_BYTES = 1 << 20
RESPONSE_OVERHEAD_BYTES = 1 << 20
_ZSTD = 4
_MAGIC = 2


@dataclass(slots=True)
class _Sent:
    """What was handed over of one source partition in the open transaction."""

    chain: PayloadChain | DecodedChain
    next_offset: int = -1
    leader_epoch: int = -1
    records: int = 0
    bytes: int = 0


class BatchesPlane:
    """Implements `planes.contract.Plane` for one producer session of one lane, with exactly_once delivery only."""

    def __init__(self, settings: PlaneSettings, budget: FetchBudget, on_client_error: Callable[[str], None]) -> None:
        """`budget` is shared by all lanes of the process; `on_client_error` takes what is to be known of connections.

        Raises Unsupported, ConfigError: a cluster can't be reached from here as its properties say.
        """
        flow = settings.flow
        self._settings, self._flow, self._routes = settings, flow, settings.routes
        self._loop = LinkLoop()
        client_id = f"eos-replicate.{flow.name}"
        fetched = properties.fetch_bytes_max(flow, settings.record_bytes_max)
        limits = flow.limits
        connect_s, request_s = limits.connect_timeout_ms / 1000, limits.request_timeout_ms / 1000
        self._transaction_s = limits.transaction_timeout_ms / 1000
        self._source_brokers, self._target_brokers = (
            Brokers(
                BrokerSettings(cluster, access(cluster), f"{client_id}.{role}", fetched + RESPONSE_OVERHEAD_BYTES,
                               min(connect_s, 10.0)),
                self._loop,
                on_client_error,
            )
            for cluster, role in ((flow.source, "source"), (flow.target, "lane"))
        )  # fmt: skip
        self._fetches = FetchWatch(flow.source.name, settings.fetch_size)
        step = self._fetches.step
        in_all, of_partition = properties.fetch_bytes(flow, settings.record_bytes_max, bulk=settings.bulk, step=step)
        reader = ReaderSettings(
            FetcherSettings(flow.source.name, of_partition, patience_s=request_s),
            FetchLimits(in_all, FETCH_WAIT_MS, flow.source.properties.get("client.rack", "")),
            f"{client_id}.source",
            limits.fetch_queue_bytes_max,
            request_s,
        )
        self._reader = SourceReader(reader, self._source_brokers, budget, self._fetches)
        merging = MergeLimits(
            settings.batch_bytes_max,
            codec=_ZSTD if settings.compress else None,
            record_bytes_max=max(limits.record_bytes_max, settings.record_bytes_max),
        )
        self._intake = Intake(merging, settings.timestamps, settings.routes)
        group = names.position_group(flow.name)
        terms = TransactionTerms(settings.transactional_id, group, f"{client_id}.lane", limits.transaction_timeout_ms)
        producing = Producing(
            self._target_brokers, terms.client_id, settings.transactional_id, limits.request_timeout_ms,
            lambda effects: self._writer.take(effects),
        )  # fmt: skip
        coordinators = Coordinators(terms, self._target_brokers)
        self._writer = TransactionWriter(
            flow.target.name,
            WriterLimits(connect_s, request_s, self._transaction_s),
            self._target_brokers,
            coordinators,
            Outcomes(flow.name, flow.target.name, settings.transactional_id, settings.routes),
            producing,
            settings.patience or CoordinatorPatience(self._transaction_s),
            self._turn,
        )
        self._positions = PositionReader(flow.target.name, group, terms.client_id, coordinators, request_s, self._turn)
        self._plans: Mapping[Partition, ReadPlan] = {}
        self._chains = Chains(settings.compression)
        self._digests: dict[Partition, str] = {}  # of the block that was committed last, since the last seek
        self._sent: dict[Partition, _Sent] = {}
        self._own: dict[Partition, int] = {}  # records of the flow's own topics in the open transaction
        self._first_s = 0.0  # when the first record of the transaction was handed over, monotonic
        self._unsent = 0  # bytes that were handed over since the last turn
        self._queued = 0  # bytes that wait for acknowledgements, as was seen last

    def connections(self) -> Iterator[Callable[[], None]]:
        """Return nothing that would have to connect beforehand: connections are made beside each other."""
        return iter(())

    def _turn(self, timeout_s: float) -> None:
        now_s = time.monotonic()
        self._reader.pump(now_s)
        self._writer.pump(now_s)
        self._loop.turn(min(timeout_s, self._reader.wake_s(now_s), self._writer.wake_s(now_s)))

    def fence(self) -> None:
        """Initialise the transactional id: ends the predecessor's open transaction and fences it."""
        self._writer.fence()

    def on_stall(self, call: Callable[[Written], None]) -> None:
        """Have `call` made now and then while the target's acknowledgements are late."""
        self._writer.stalled = lambda: call(self.written())

    def queued_bytes(self) -> int | None:
        """Say how many bytes wait for the target's acknowledgement, as was seen last. From any thread."""
        return self._queued

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, Stored | ReplicatorError | None]:
        """Read the stable positions by *target* partition; each has its own error as its value."""
        return self._positions.positions(partitions)

    def seek(self, read_plans: Mapping[Partition, ReadPlan]) -> None:
        """Read exactly these source partitions; forgets everything of the transaction that was open."""
        self._forget()
        self._plans = dict(read_plans)
        self._digests = {at: plan.digest for at, plan in read_plans.items()}
        self._intake.seek(self._plans)
        self._reader.seek(self._plans)

    def poll(self, records_max: int, timeout_s: float) -> PollResult:
        """Read batches of up to `records_max` records and hand them over; opens a transaction with the first."""
        if not self._sent:
            self._fetches.check()
        result, began_s = PollResult(), time.monotonic()
        until_s = began_s + timeout_s
        self._turn(0.0)
        while True:
            self._reader.check()
            self._writer.check()
            self._take(result, records_max)
            now_s = time.monotonic()
            behind = self._reader.under_way or self._intake.waiting
            if result.records or result.failed or now_s >= max(until_s, began_s + BEHIND_S if behind else 0.0):
                break
            if result.heard and not behind:
                break
            self._turn(max(until_s, began_s + BEHIND_S if behind else until_s) - now_s)
        if result.records:
            self._turn(0.0)
        self._writer.check()
        result.drained = not (self._reader.under_way or self._intake.waiting)
        result.pending = bool(self._sent) or self._intake.merging or bool(self._intake.blocked())
        result.ends = self._intake.ends
        return result

    def _take(self, result: PollResult, records_max: int) -> None:
        news = self._reader.take()
        result.heard |= news.heard
        result.failed |= self._intake.add(news)
        before = {at: sent.records for at, sent in self._sent.items()}
        self._queued = sum(self._writer.unacknowledged.values()) if self._sent else 0
        # A batch of more records than the whole transaction may have is divided: the target is slow, or the flow is
        # limited. To decode others would be worth little: none makes a transaction twice as large as it may be.
        whole_max = sum(sent.records for sent in self._sent.values()) + max(1, records_max)
        taken = self._intake.take(max(1, records_max), self._write, self._writer.flush, self._full, whole_max)
        self._reader.took(taken.bytes)
        for at in self._intake.blocked():
            self._reader.stop(at)
        result.heard |= taken.partitions  # they may have been fetched while another transaction was open
        result.records += taken.records
        result.bytes += taken.bytes
        result.runs += sum(sent.records != before.get(at, 0) for at, sent in self._sent.items())
        self._queued = sum(self._writer.unacknowledged.values()) if self._sent else 0

    def _full(self) -> bool:
        """Tell whether enough waits for acknowledgements. Asked of each batch: it isn't summed up each time."""
        return self._queued >= self._flow.limits.produce_queue_bytes_max

    def _write(self, at: Partition, batch: WritableBatch) -> None:
        sent = self._sent.get(at)
        if sent is None:
            self._first_s = self._first_s if self._sent else time.monotonic()
            sent = self._sent[at] = _Sent(self._chains.begun(at, batch.header, self._digests.get(at, "")))
        self._chains.look(at, batch.header)
        sent.chain.update(batch.header, batch.data)
        sent.next_offset, sent.leader_epoch = batch.next_offset, batch.leader_epoch
        sent.records += batch.records
        sent.bytes += len(batch.data)
        self._queued += len(batch.data)
        self._writer.write(self._routes[at], batch)
        self._unsent += len(batch.data)
        if self._unsent >= SEND_BYTES:  # the target begins with the first while the next ones are digested
            self._unsent = 0
            self._turn(0.0)

    def written(self) -> Written:
        """Say what was written since the last commit, abort or seek."""
        overdue, sent = self._writer.overdue(), self._sent
        if not sent:
            return Written(overdue=overdue)
        late = self._writer.unacknowledged
        size = sum(each.bytes for each in sent.values())
        left = sum(late.get(self._routes[at], 0) for at in sent)
        unacknowledged = frozenset(at for at in sent if self._routes[at] in late)
        records, took_s = sum(each.records for each in sent.values()), time.monotonic() - self._first_s
        return Written(
            records, size, max(0, size - left), took_s, self._transaction_s, frozenset(sent), unacknowledged, overdue
        )

    def flush(self) -> Flushed:
        """Wait until all handed-over records are acknowledged; what happened, by source partition."""
        self._intake.drain(self._write)
        if self._sent:
            self._writer.flush()
        acknowledged = self._writer.acknowledged
        copied: dict[Partition, Copied] = {}
        for at, sent in self._sent.items():
            acked = acknowledged[self._routes[at]]
            if acked.records != sent.records:
                raise Abortable(f"{self._routes[at]}: {acked.records} of {sent.records} records were acknowledged")
            copied[at] = Copied(
                sent.next_offset, sent.leader_epoch, sent.records, sent.bytes, sent.chain.hexdigest(),
                acked.first_target, acked.next_target, None, list(acked.runs), acked.restamped, sent.chain.kind,
                sent.chain.codecs,
            )  # fmt: skip
        for at, blocked in self._intake.blocked().items():
            copied.setdefault(at, Copied(next_offset=blocked.offset)).blocked = blocked
        return Flushed(copied, self.written())

    def commit(
        self,
        offsets: Mapping[Partition, Committed],
        entries: Sequence[tuple[bytes, bytes]] = (),
        before_end: Callable[[], None] = lambda: None,
        blocks: MapBlocks | None = None,
    ) -> None:
        """Commit, with `offsets` (by target partition), records of the flow's claims topic, and blocks of its map."""
        name, writer = self._flow.name, self._writer
        if not (offsets or entries or blocks is not None or writer.open):  # a coordinator knows no empty transaction
            before_end()
            self._forget()
            return
        map_at = None if blocks is None else Partition(names.offsets_topic(name), blocks.partition)
        try:
            if blocks is not None and map_at is not None:
                blocks.left = len(blocks.values)
                for value in blocks.values:
                    self._write_own(map_at, [Record(0, 0, None, value)])
            if entries:
                claims = Partition(names.claims_topic(name), self._settings.claim_partition)
                self._write_own(claims, [Record(0, 0, key, value) for key, value in entries])
            writer.store(names.position_group(name), offsets)
        except Abortable as error:
            if blocks is not None and map_at is not None and str(map_at) in str(error):
                blocks.refused = blocks.refused or str(error)
            raise
        finally:
            if blocks is not None and map_at is not None and (acked := writer.acknowledged.get(map_at)) is not None:
                blocks.left, blocks.last = len(blocks.values) - acked.records, acked.next_target - 1
        before_end()
        writer.end()
        self._digests |= {at: sent.chain.hexdigest() for at, sent in self._sent.items()}
        self._forget()

    def _write_own(self, at: Partition, records: Sequence[Record]) -> None:
        """Write to a topic of the flow's own, which others write, too: stamped now."""
        now_ms, begun = time.time_ns() // 1_000_000, self._own.get(at, 0)
        numbered = [each._replace(offset=place, timestamp_ms=now_ms) for place, each in enumerate(records)]
        plain = BatchHeader(0, 0, -1, _MAGIC, 0, 0, len(numbered) - 1, now_ms, now_ms, -1, -1, -1, len(numbered))
        data = rebuild(plain, numbered)
        self._own[at] = begun + len(numbered)
        self._writer.write(at, WritableBatch(read_header(data), data, ((begun, self._own[at]),)), shared=True)

    def set_aside(self, record: AsideRecord) -> None:
        """Add a record to the flow's topic for those that were set aside; `commit` waits for it."""
        headers = tuple((key.encode(), value) for key, value in record.headers)
        aside = Partition(names.aside_topic(self._flow.name), 0)
        self._write_own(aside, [Record(0, 0, record.key, record.value, headers)])

    def deliver(self) -> Collection[Partition]:
        """Do nothing: there is nothing to deliver behind a commit, with exactly_once only."""
        return ()

    def abort(self) -> None:
        """Abort the open transaction; what isn't sent is dropped. Raises UnknownOutcome when it is not certain."""
        self._writer.abort()
        self._forget()

    def _forget(self) -> None:
        self._sent, self._own, self._queued = {}, {}, 0

    def close(self) -> None:
        """Let go of all connections without committing or aborting anything."""
        with ExitStack() as closing:  # all of them, whatever one of them raises
            closing.callback(self._reader.close)
            closing.callback(self._loop.close)

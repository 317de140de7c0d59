"""The `records` plane: wires source, writers and position reader of one lane behind the plane contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from confluent_kafka import Producer

from replicator import names
from replicator.config import Delivery, Flow
from replicator.errors import Abortable, RecordRefused, Retriable, UnknownOutcome
from replicator.planes.contract import Committed, Copied, Partition, Polled, Seek, Span
from replicator.planes.records import failures, properties
from replicator.planes.records.copying import Run, add_offsets, copy_run
from replicator.planes.records.digest import Chain
from replicator.planes.records.message import Record
from replicator.planes.records.source import Harvest, Source
from replicator.planes.records.target import Positions, Transactions, backlog_wait


class RecordsPlane:
    """Implements `planes.contract.Plane` for one lane and one incarnation of its producer.

    Invariant: where records go by themselves (`at_least_once`, `at_most_once`) the order of the two writes is
    the delivery mode: records, acks, position; or position, records.
    """

    def __init__(
        self,
        flow: Flow,
        transactional_id: str,
        map_partition: int,
        routes: Mapping[Partition, Partition],
        digests: Mapping[Partition, str],
        on_error: Callable[[str], None],
        on_loss: Callable[[Partition, str], None],
        until: Mapping[Partition, int],
    ) -> None:
        """`routes` maps source to target partitions, `digests` (filled by the lane) starts each block's chain.

        `until`: source offsets (exclusive) at which reading ends, for partitions that are not copied to their end: then
        it is a bulk copy.
        """
        self._flow, self._map_partition, self._routes, self._digests = flow, map_partition, routes, digests
        self._on_loss = on_loss
        self._transactions = Transactions(
            flow, properties.lane_producer(flow, transactional_id, bulk=bool(until)), on_error
        )
        self._positions = Positions(flow)
        self._source = Source(flow, on_error, until)
        self._plain: Producer | None = None
        if flow.delivery is not Delivery.EXACTLY_ONCE:
            self._plain = Producer(properties.plain_producer(flow))
        self._held: list[list[Record]] = []  # at_most_once: read, not yet written
        self._chains: dict[Partition, Chain] = {}
        self._runs: list[Run] = []
        self._first: tuple[Partition, int] | None = None
        self._ends: dict[Partition, Seek] = {}
        self._some = False  # only some records were asked for: which of them were copied is told

    def fence(self) -> None:
        """See the contract."""
        self._transactions.fence()

    def committed(self, partitions: Sequence[Partition]) -> dict[Partition, Committed | None]:
        """See the contract."""
        return self._positions.committed(partitions)

    def seek(self, positions: Mapping[Partition, Seek], only: Mapping[Partition, Sequence[Span]] | None = None) -> None:
        """See the contract; forgets everything of the transaction that was open."""
        self._forget()
        self._ends, self._some = {}, bool(only)
        self._source.seek(positions, only)

    def begin(self) -> None:
        """See the contract."""
        self._transactions.begin()

    def poll(self, records_max: int, timeout_s: float) -> Polled:
        """See the contract."""
        harvest = self._source.harvest(records_max, timeout_s)
        if not harvest.groups:
            self.serve()
        polled = Polled(drained=harvest.drained, incidents=harvest.incidents)
        if harvest.groups and not self._transactions.open:
            self.begin()
        blocked = {run.source for run in self._runs if run.blocked}
        for (topic, number), messages in harvest.groups.items():
            source = Partition(topic, number)
            if source in blocked:
                continue
            if self._flow.delivery is Delivery.AT_MOST_ONCE:
                self._held.append(messages)
                polled.records += len(messages)
                polled.bytes += sum(len(message) for message in messages)
                continue
            run = self._copy(messages)
            self._runs.append(run)
            if self._some:
                run.offsets = [message.offset() for message in messages[: run.acks.count]]
            if self._first is None and run.acks.count:
                self._first = (source, messages[0].offset())
            if self._plain is None and run.acks.count:
                self._transactions.written = True
            polled.records += run.acks.count
            polled.bytes += run.bytes
        self._note_ends(harvest)
        return polled

    def _note_ends(self, harvest: Harvest) -> None:
        for (topic, number), end in harvest.ends.items():
            self._ends[Partition(topic, number)] = end

    def _copy(self, messages: list[Record]) -> Run:
        source = Partition(messages[0].topic(), messages[0].partition())
        chain = self._chains.get(source)
        if chain is None:
            chain = self._chains[source] = Chain(self._digests.get(source, ""))
        producer = self._plain or self._transactions.producer
        cluster, limits = self._flow.target.name, self._flow.limits
        try:
            run = copy_run(
                producer,
                messages,
                self._routes[source],
                chain,
                backlog_wait(producer, limits.transaction_timeout_ms / 1000, cluster),
                limits.record_bytes_max,
                every_ack=self._plain is not None,
            )
            producer.poll(0)
        except failures.SERVING as error:
            inner, doing = failures.served(error), f"produce to {self._routes[source]}"
            if self._plain is None:
                raise self._transactions.judged(inner, failures.classify_open, doing) from error
            raise failures.classify_open(inner, cluster, doing) from error
        return run

    def serve(self) -> None:
        """See the contract."""
        self._transactions.serve()
        if self._plain is not None:
            self._plain.poll(0)

    def overdue(self) -> bool:
        """Whether the open transaction is older than its timeout: being fenced may mean no more than that."""
        return self._transactions.overdue()

    def pending(self) -> bool:
        """See the contract."""
        return bool(self._runs or self._held)

    def first(self) -> tuple[Partition, int] | None:
        """See the contract."""
        return self._first

    def ends(self) -> dict[Partition, Seek]:
        """See the contract."""
        return dict(self._ends)

    def flush(self) -> dict[Partition, Copied]:
        """See the contract."""
        if self._plain is not None:
            left = self._plain.flush(self._flow.limits.transaction_timeout_ms / 1000)
            if left:
                raise Retriable(f"cluster {self._flow.target.name}: {left} records without ack")
        self._transactions.flush()
        copied: dict[Partition, Copied] = {}
        for run in self._runs:
            self._add(copied, run)
        for messages in self._held:
            last = messages[-1]
            at = Partition(last.topic(), last.partition())
            sum_ = copied.setdefault(at, Copied(next_offset=0))
            sum_.next_offset, sum_.records = last.offset() + 1, sum_.records + len(messages)
        for source, chain in self._chains.items():
            if source in copied:
                copied[source].digest = chain.hexdigest()
        return copied

    def _add(self, copied: dict[Partition, Copied], run: Run) -> None:
        """Check a run's acks and add it to its partition's sum. Invariant: no ack without its offset counts."""
        acks, target = run.acks, self._routes[run.source]
        if acks.error is not None:
            text = failures.describe(acks.error, self._flow.target.name, f"record refused by {target}")
            if acks.error.code() in failures.NOT_ALLOWED:
                raise failures.classify_open(acks.error, self._flow.target.name, f"produce to {target}")
            if acks.error.code() in failures.REFUSED_RECORD:
                raise RecordRefused(text)
            raise Abortable(text) if self._plain is None else Retriable(text)
        total = copied.setdefault(run.source, Copied(next_offset=run.next_offset))
        total.next_offset, total.blocked, total.leader_epoch = run.next_offset, run.blocked, run.leader_epoch
        if not acks.count:
            return
        if self._plain is None and acks.without_offset:
            raise UnknownOutcome(f"{target}: an ack came without its offset")
        if self._plain is None and (acks.first < 0 or acks.last - acks.first + 1 != acks.count):
            # A record in the middle was refused, or somebody else writes between: smaller transactions tell.
            raise RecordRefused(f"{target}: {acks.count} records got offsets {acks.first} to {acks.last}")
        total.records += acks.count
        add_offsets(total.runs, run.offsets)
        total.bytes += run.bytes
        total.first_target = acks.first if total.first_target < 0 else total.first_target
        total.next_target = acks.last + 1

    def send_positions(self, offsets: Mapping[Partition, Committed], entries: Sequence[tuple[bytes, bytes]]) -> None:
        """See the contract."""
        if not self._transactions.open:
            self.begin()
        for key, value in entries:
            self._transactions.write(names.map_topic(self._flow.name), value, key, self._map_partition)
        if entries:
            self._transactions.flush()
        group = names.position_group(self._flow.name)
        self._transactions.send_positions(group, offsets, self._positions.group_metadata)

    def end(self) -> None:
        """See the contract."""
        self._transactions.end()
        held = self._held
        self._forget()
        self._held = held

    def deliver(self) -> None:
        """See the contract."""
        held, self._held = self._held, []
        if held:
            self._write_unsafely(held)

    def _write_unsafely(self, held: list[list[Record]]) -> None:
        runs: list[Run] = []
        for messages in held:
            while messages:  # a record that can't be carried is lost alone
                run = self._copy(messages)
                runs.append(run)
                messages = messages[run.acks.count + 1 :] if run.blocked is not None else []
        assert self._plain is not None
        left = self._plain.flush(self._flow.limits.request_timeout_ms / 1000)
        for run in runs:
            if run.acks.error is not None or run.blocked is not None:
                why = run.blocked.detail if run.blocked else run.acks.error.str() if run.acks.error else ""
                self._on_loss(run.source, why)
        if left:
            self._on_loss(runs[-1].source, f"{left} records without ack")
        self._chains = {}

    def abort(self) -> None:
        """See the contract."""
        if self._transactions.open:
            self._transactions.flush()
            self._transactions.abort()
        self._forget()

    def _forget(self) -> None:
        self._runs, self._held, self._chains, self._first = [], [], {}, None

    def close(self) -> None:
        """See the contract."""
        with ExitStack() as closing:  # all of them, whatever one of them raises
            if self._plain is not None:
                closing.callback(self._plain.flush, 0)
                closing.callback(self._plain.purge, True, True)
            closing.callback(self._transactions.close)
            closing.callback(self._positions.close)
            closing.callback(self._source.close)

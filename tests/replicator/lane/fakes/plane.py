"""A data plane between two simulated clusters.

It reads and writes as librdkafka does: that a topic was made again under the same name, it does not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from replicator.model.checkpoint import Stored
from replicator.model.errors import (
    Abortable,
    Fenced,
    Incident,
    NotAllowed,
    ReplicatorError,
    TopicMissing,
    UnknownOutcome,
)
from replicator.model.partition import Committed, Partition, Seek
from replicator.planes.contract import (
    AsideRecord,
    Copied,
    Flushed,
    MapBlocks,
    PollResult,
    ReadPlan,
    RecordsRefused,
    Refusal,
    Written,
)
from tests.replicator.lane.fakes.blocks_of import digest_of, runs_of
from tests.replicator.lane.fakes.cluster import FakeCluster
from tests.replicator.lane.fakes.log import FakeEntry, Fate

TIMEOUT_S = 60.0  # of a transaction, as the flow's default
REQUEST_S = 30.0
PROPAGATION_S = 30.0  # librdkafka's topic.metadata.propagation.max.ms: a topic may not be known yet
MAP = "__eos.f.offsets"
RECORDS_POLLED_MAX = 3  # small, so that a few records make several polls


@dataclass(slots=True)
class _Run:
    """What was written of one source partition in the open transaction."""

    offsets: list[int] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    epoch: int = -1


class FakePlane:
    """Implements `contract.Plane`."""

    def __init__(
        self,
        source: FakeCluster,
        target: FakeCluster,
        transactional_id: str,
        routes: Mapping[Partition, Partition],
        fault: Callable[[str], None],
        advance: Callable[[float], None],
    ) -> None:
        """`fault` is told of each call and may raise; `advance` lets simulated time pass."""
        self._source, self._target, self._id = source, target, transactional_id
        self._routes, self._fault, self._advance = dict(routes), fault, advance
        self._digests: dict[Partition, str] = {}
        self._epoch = 0
        self._stalled: Callable[[Written], None] = lambda written: None
        self._unsent: list[tuple[Partition, int, FakeEntry]] = []
        self._took_s = 0.0  # of the open transaction, on a slow line
        self._read_plans: dict[Partition, ReadPlan] = {}
        self._next: dict[Partition, int] = {}
        self._ends: dict[Partition, Seek] = {}
        self._runs: dict[Partition, _Run] = {}
        self._refused: dict[Partition, list[int]] = {}
        self._denied: dict[Partition, str] = {}
        self.trace: list[str] = []

    def _call(self, name: str) -> None:
        self.trace.append(name)
        self._fault(f"plane.{name}")
        if self._target.down and name not in ("poll", "seek"):
            raise UnknownOutcome(f"{name}: no answer")

    def _transaction_check(self) -> None:
        if self._target.transactions[self._id].epoch != self._epoch:
            raise Fenced(f"{self._id}: epoch {self._epoch} is fenced")

    def fence(self) -> None:
        """InitProducerId."""
        self._call("fence")
        self._epoch = self._target.init(self._id)

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, Stored | ReplicatorError | None]:
        """Stable positions."""
        self._call("positions")
        return {at: self._target.position(at) for at in partitions}

    def seek(self, read_plans: Mapping[Partition, ReadPlan]) -> None:
        """Forget what was read."""
        self._call("seek")
        self._forget()
        self._read_plans = dict(read_plans)
        self._digests = {at: plan.digest for at, plan in read_plans.items()}
        self._next = {at: plan.start.offset for at, plan in read_plans.items()}
        self._ends = {}

    def poll(self, records_max: int, timeout_s: float) -> PollResult:
        """A few records of each partition, `records_max` in all."""
        self._call("poll")
        found = PollResult()
        if not self._source.down:
            for at in self._read_plans:
                self._poll_one(at, min(records_max - found.records, RECORDS_POLLED_MAX), found)
        if not found.records:
            self._advance(timeout_s)
        found.pending, found.ends = bool(self._runs), self._ends
        return found

    def _poll_one(self, at: Partition, records_max: int, found: PollResult) -> None:
        if "Read" in self._source.denied.get(at.topic, ()):
            found.failed[at] = NotAllowed(f"cluster {self._source.name!r}: Read on topic {at.topic!r}", [at])
            return
        if at.topic not in self._source.topics:
            found.failed[at] = TopicMissing(f"no topic {at.topic!r}")
            return
        if self._source.topics[at.topic].silent:
            return
        log, here = self._source.log(at), self._next[at]
        if log.leaderless or log.damaged or log.stuck:
            return
        if not log.start <= here <= log.end:
            name = "source_records_gone"
            found.failed[at] = Incident(name, "out of range", topic=at.topic, partition=at.partition, offset=here)
            return
        until = self._read_plans[at].until
        spans = self._read_plans[at].spans or ((0, log.end),)
        wanted = [(o, e) for o, e in log.committed() if any(first <= o < end for first, end in spans)]
        ready = [(o, e) for o, e in wanted if o >= here and (until is None or o < until)][:records_max]
        for offset, entry in ready:
            self._write(at, offset, entry)
        found.records += len(ready)
        found.runs += len(runs_of([offset for offset, _ in ready]))
        found.bytes += sum(len(entry.value) for _, entry in ready)
        end = log.stable if until is None else min(until, log.stable)
        if ready:
            found.heard.add(at)
            self._next[at] = ready[-1][0] + 1
            found.drained = found.drained and len(ready) < records_max
        if len(ready) < records_max and end >= self._next[at] and self._ends.get(at, Seek(-1, -1)).offset != end:
            found.heard.add(at)
            epoch = log.entries[-1].epoch if log.entries else -1
            self._ends[at], self._next[at] = Seek(end, epoch), end

    def on_stall(self, call: Callable[[Written], None]) -> None:
        """Called for each second without acknowledgements."""
        self._stalled = call

    def _wait_ready(self) -> None:
        """Until the last transaction has ended everywhere, and all partitions of this one take records."""
        self._took_s = 0.0
        while self._unsent and (self._target.held_up(self._id) or any(map(self._is_unready, self._unsent))):
            self._fault("plane.stalled")
            self._advance(1.0)
            self._took_s += 1.0
            self._stalled(self.written())
            if self._took_s >= TIMEOUT_S:
                raise UnknownOutcome(f"records without ack after {TIMEOUT_S} s")
        unsent, self._unsent = self._unsent, []
        for at, offset, entry in unsent:
            self._send(at, offset, entry)

    def _is_unready(self, unsent: tuple[Partition, int, FakeEntry]) -> bool:
        target = self._routes[unsent[0]]
        if target.topic not in self._target.topics:
            return False
        log = self._target.log(target)
        return bool(log.not_ready) or log.damaged or log.stuck

    def _write(self, at: Partition, offset: int, entry: FakeEntry) -> None:
        self._transaction_check()
        run = self._runs.setdefault(at, _Run())
        run.offsets.append(offset)
        run.values.append(entry.value)
        run.epoch = entry.epoch
        unready = self._is_unready((at, offset, entry))
        if unready and not self._target.held_up(self._id):  # the coordinator knows of it before its leader does
            self._target.transactions[self._id].added.append(self._target.log(self._routes[at]))
        if unready or self._unsent or self._target.held_up(self._id):
            self._unsent.append((at, offset, entry))
        else:
            self._send(at, offset, entry)

    def _send(self, at: Partition, offset: int, entry: FakeEntry) -> None:
        target, run = self._routes[at], self._runs[at]
        topic = self._target.topics.get(target.topic)
        if topic is None or "Write" in self._target.denied.get(target.topic, ()):
            self._denied[at] = f"cluster {self._target.name!r}: the user needs Write on topic {target.topic!r}"
            return
        if entry.value in topic.refuses:
            self._refused.setdefault(at, []).append(offset)
        if at in self._refused:
            return
        log, open_ = topic.logs[target.partition], self._target.transactions[self._id]
        written = FakeEntry(entry.value, Fate.OPEN, origin=offset, producer=(self._id, self._epoch))
        run.targets.append(log.end)
        log.entries.append(written)
        open_.entries.append((log, written))
        open_.open = True

    def flush(self) -> Flushed:
        """All acknowledgements at once."""
        self._call("flush")
        self._transaction_check()
        self._wait_ready()
        self._pass_line()
        if self._denied:
            at, text = next(iter(self._denied.items()))
            if self._routes[at].topic not in self._target.topics:
                raise Abortable(text)
            raise NotAllowed(text, self._denied)
        if self._refused:
            raise RecordsRefused("refused", self._refusals())
        copied: dict[Partition, Copied] = {}
        for at, run in self._runs.items():
            if run.targets[-1] - run.targets[0] + 1 != len(run.targets):
                raise Abortable(f"{at}: acks are not contiguous")
            copied[at] = Copied(
                run.offsets[-1] + 1,
                run.epoch,
                len(run.offsets),
                len(run.offsets),
                digest_of(self._digests[at], run.values),
                run.targets[0],
                run.targets[-1] + 1,
                runs=runs_of(run.offsets),
                restamped=self._target.topics[self._routes[at].topic].seems_stamped,
            )
        return Flushed(copied, self.written())

    def _pass_line(self) -> None:
        """Let the time pass that the records take; not all of them may be through before the transaction times out."""
        rate, size = self._target.bytes_per_s, self._bytes
        if rate is not None and size:
            self._took_s = min(TIMEOUT_S, size / rate)
            self._advance(self._took_s)
            if size / rate >= TIMEOUT_S:
                self._target.expire(self._id)
                raise self._target.late_as(f"{size} bytes take longer than {TIMEOUT_S} s")

    @property
    def _bytes(self) -> int:
        return sum(len(value) for run in self._runs.values() for value in run.values)

    def queued_bytes(self) -> int | None:
        """Return what was handed over and not acknowledged."""
        written = self.written()
        return written.bytes - written.acknowledged_bytes

    def written(self) -> Written:
        """What was written."""
        rate, records = self._target.bytes_per_s, sum(len(run.values) for run in self._runs.values())
        through = self._bytes if rate is None else min(self._bytes, int(rate * self._took_s))
        late, overdue = frozenset(at for at, _, _ in self._unsent), self._took_s >= TIMEOUT_S
        return Written(records, self._bytes, through, self._took_s, TIMEOUT_S, frozenset(self._runs), late, overdue)

    def _refusals(self) -> dict[Partition, Refusal]:
        found: dict[Partition, Refusal] = {}
        for at, named in self._refused.items():
            topic = self._target.topics[self._routes[at].topic]
            if not self._read_plans[at].every_ack:
                found[at] = Refusal((), "refused")
            elif topic.names_refused:
                found[at] = Refusal(tuple(named[:1]), "refused: named", for_timestamp=topic.for_timestamp)
            else:
                offsets = self._runs[at].offsets
                size = self._read_plans[at].flush_every or len(offsets)
                first = offsets.index(named[0]) // size * size
                found[at] = Refusal(tuple(offsets[first : first + size]), "refused: batch")
        return found

    def _send_blocks(self, blocks: MapBlocks) -> None:
        """To the flow's map topic, as far as the target takes them now."""
        topic, open_ = self._target.topics.get(MAP), self._target.transactions[self._id]
        if topic is None or "Write" in self._target.denied.get(MAP, ()) or self._target.held_up(self._id):
            return
        log = topic.logs[blocks.partition]
        if log.not_ready:
            open_.added.append(log)
            return
        for block in blocks.values:
            if topic.refuses:
                blocks.refused = "refused"
                return
            entry = FakeEntry("", Fate.OPEN, producer=(self._id, self._epoch), block=block)
            blocks.left, blocks.last = blocks.left - 1, log.end
            log.entries.append(entry)
            open_.entries.append((log, entry))
            open_.open = True

    def _wait_blocks(self, blocks: MapBlocks) -> None:
        """Until they are acknowledged."""
        if "Write" in self._target.denied.get(MAP, ()):
            raise NotAllowed(f"cluster {self._target.name!r}: the user needs Write on topic {MAP!r}")
        if blocks.refused:
            raise Abortable("a block of the offset map was refused")
        self._took_s = 0.0
        while blocks.left:
            self._fault("plane.stalled")
            self._advance(1.0)
            self._took_s += 1.0
            self._stalled(self.written())
            if MAP not in self._target.topics and self._took_s >= PROPAGATION_S:
                raise Abortable(f"cannot write to {MAP}")
            if self._took_s >= TIMEOUT_S:
                raise UnknownOutcome(f"records without ack after {TIMEOUT_S} s")
            self._send_blocks(blocks)

    def commit(
        self,
        offsets: Mapping[Partition, Committed],
        entries: Sequence[tuple[bytes, bytes]] = (),
        before_end: Callable[[], None] = lambda: None,
        blocks: MapBlocks | None = None,
    ) -> None:
        """What goes over the line in two steps, and with blocks in four."""
        if blocks is not None:
            self._call("write_blocks")
            self._transaction_check()
            blocks.left = len(blocks.values)
            self._send_blocks(blocks)
        self.send_positions(offsets, entries)
        if blocks is not None:
            self._call("wait_blocks")
            self._wait_blocks(blocks)
        before_end()
        self.end()

    def send_positions(self, offsets: Mapping[Partition, Committed], entries: Sequence[tuple[bytes, bytes]]) -> None:
        """TxnOffsetCommit."""
        self._call("send_positions")
        self._transaction_check()
        if self._target.held_up(self._id):
            self._advance(REQUEST_S)
            raise UnknownOutcome("CONCURRENT_TRANSACTIONS")
        for at in offsets:
            if "Read" in self._target.denied.get(at.topic, ()):
                raise NotAllowed(f"cluster {self._target.name!r}: the user needs Read on topic {at.topic!r}")
            if at.topic not in self._target.topics:
                raise Abortable(f"no topic {at.topic}")
        open_ = self._target.transactions[self._id]
        open_.offsets |= offsets
        open_.claims += entries
        open_.claims_partition = int(self._id.rpartition(".")[2])  # of a lane of the daemon
        open_.open = True

    def end(self) -> None:
        """EndTxn(commit), whose answer may be lost before or after it was applied."""
        self._call("end")
        self._transaction_check()
        self._target.end(self._id, commit=True)
        self._call("end_answered")
        self._digests |= {at: digest_of(self._digests[at], run.values) for at, run in self._runs.items()}
        self._forget()

    def set_aside(self, record: AsideRecord) -> None:
        """Into the flow's topic for such."""
        self._call("set_aside")
        self._transaction_check()
        topic, open_ = self._target.topics.get("__eos.f.aside"), self._target.transactions[self._id]
        if topic is None:
            raise Abortable("no topic __eos.f.aside")
        written = FakeEntry((record.value or b"").decode(), Fate.OPEN, producer=(self._id, self._epoch))
        topic.logs[0].entries.append(written)
        open_.entries.append((topic.logs[0], written))
        open_.open = True
        self._target.aside_headers.append(dict(record.headers))

    def deliver(self) -> Collection[Partition]:
        """Nothing is held back in exactly_once."""
        return ()

    def abort(self) -> None:
        """EndTxn(abort)."""
        self._call("abort")
        self._transaction_check()
        self._target.end(self._id, commit=False)
        self._forget()

    def _forget(self) -> None:
        self._runs, self._refused, self._denied, self._took_s, self._unsent = {}, {}, {}, 0.0, []

    def close(self) -> None:
        """Nothing is open."""
        self.trace.append("close")

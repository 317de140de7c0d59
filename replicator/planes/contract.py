"""What a lane asks of a data plane: the least that any plane must do, whatever it carries records with.

Implemented by `records` (confluent-kafka), by `batches_io`, and by a fake one in the tests. What a lane asks of a
cluster beside its plane stands in `lane.ports`.

A plane moves bytes and reports facts; it decides nothing about positions, owners or generations. All calls are made by
the one thread that owns the lane, and all block at most as long as the flow's named limits say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from replicator.model.checkpoint import DIGEST_KIND, Stored
from replicator.model.errors import Abortable, Incident, ReplicatorError
from replicator.model.partition import Committed, Partition, Seek, Span


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How one source partition is read from now on.

    `digest` is that of what was written before: the next block's chains to it, as each later one to that of the block
    that was committed last.
    Nothing at or behind `until` (None: no bound) is copied; the plan ends when the source was read up to there.
    Of `spans`, where there are any, nothing else is copied than the records in them. `every_ack`: each record's
    acknowledgement is asked for, so that a refused one can be named; costs CPU, used after a refusal. `flush_every`
    (0: never): after so many records their acknowledgements are waited for, so that a refused batch has no more.
    """

    start: Seek
    digest: str = ""
    until: int | None = None
    spans: tuple[Span, ...] = ()
    every_ack: bool = False
    flush_every: int = 0


@dataclass(slots=True)
class Copied:
    """What happened to one source partition in the open transaction.

    `next_offset` is the next source offset to read. `first_target`/`next_target` bound the acknowledged
    records on the target (-1 without records). `blocked` names the record that stops the partition: all before
    it belong to this transaction, it and all behind it do not. `runs`: the source offsets of the records, in
    exactly_once, and where only some were asked for. `digest_kind` and `block_codecs` as of `Evidence`. `restamped`: an
    acknowledgement says that the target replaced the records' timestamps.
    """

    next_offset: int
    leader_epoch: int = -1
    records: int = 0
    bytes: int = 0
    digest: str = ""
    first_target: int = -1
    next_target: int = -1
    blocked: Incident | None = None
    runs: list[Span] = field(default_factory=list)
    restamped: bool = False
    digest_kind: str = DIGEST_KIND
    block_codecs: int = 0


@dataclass(slots=True)
class PollResult:
    """One poll of the source: how many records were handed to the writer, in how many runs of consecutive source
    offsets at most, and what became of partitions.

    `pending`: whether records were read since the last commit or seek. `ends`: partition ends seen since the last seek,
    past markers and aborted records; valid until the next poll. `drained`: nothing more was waiting. `failed` has
    errors of single partitions as the client reported them: `TopicMissing`, `NotAllowed`, `Retriable`, or an `Incident`
    that names no range yet (`source_records_gone`, `source_truncated`, `source_corrupt`, `record_too_large`); the lane
    aborts and checks these partitions again. `heard`: partitions from which anything came, a record, an end or an
    error.
    """

    records: int = 0
    bytes: int = 0
    runs: int = 0
    drained: bool = True
    pending: bool = False
    ends: Mapping[Partition, Seek] = field(default_factory=dict)
    failed: dict[Partition, ReplicatorError] = field(default_factory=dict)
    heard: set[Partition] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Written:
    """What was handed to the target in the open transaction, and about how much of it was acknowledged, as it was last
    seen before a failure.

    `partitions`: source partitions with records, and `unacknowledged`: those of which some are not acknowledged.
    `took_s`: since the first record. `limit_s`: when its records, or the transaction, are given up; None: never.
    `overdue`: whether the transaction, which may have no records, is older than its timeout: being fenced may mean no
    more than that.
    """

    records: int = 0
    bytes: int = 0
    acknowledged_bytes: int = 0
    took_s: float = 0.0
    limit_s: float | None = None
    partitions: frozenset[Partition] = frozenset()
    unacknowledged: frozenset[Partition] = frozenset()
    overdue: bool = False

    @property
    def timed_out(self) -> bool:
        """Whether something of it may have been given up for its time."""
        return self.records > 0 and self.limit_s is not None and self.took_s >= self.limit_s


class Flushed(NamedTuple):
    """What was read and handed over is acknowledged: what happened, by source partition, and how much it was."""

    copied: dict[Partition, Copied]
    written: Written


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the target refused of one source partition.

    `suspects` are ascending source offsets of which at least one was refused: exactly one where the answer named it
    (KIP-467), more where it named none, empty where single acknowledgements were not asked for. `detail` is the
    client's text. `too_large`: for its size, which is `bytes` in a batch of its own, uncompressed (0: unknown).
    `for_timestamp`: for its timestamp, by bounds that the target's topic has got since its configs were read.
    """

    suspects: tuple[int, ...]
    detail: str
    too_large: bool = False
    bytes: int = 0
    for_timestamp: bool = False


class RecordsRefused(Abortable):
    """The target refused records of the open transaction, by *source* partition; empty when none was named: the next
    transaction should ask for every acknowledgement."""

    def __init__(self, message: str, refusals: Mapping[Partition, Refusal]) -> None:
        self.refusals = dict(refusals)
        super().__init__(message)


@dataclass(slots=True)
class MapBlocks:
    """Blocks of the offset map for one partition of the flow's map topic, and what the target has said of them.

    `left`: how many have no answer yet; `last`: the offset of the last one (-1: not known); why one was `refused`.
    """

    partition: int
    values: Sequence[bytes]
    left: int = 0
    last: int = -1
    refused: str = ""


class WholeRecord(NamedTuple):
    """A source record as the client returns it; `headers` None: it can't return them. `timestamp_ms` -1: none."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] | None


class UnreadRecord(NamedTuple):
    """A source record that can't be read: its batch is larger than the client takes."""

    why: str


class AsideRecord(NamedTuple):
    """What is written to the flow's topic for records that were set aside."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Plane(Protocol):
    """One producer session of a lane: source reader and target writer.

    A transaction is `poll`, once or more often, then `flush`, then `commit`; or `abort` instead, and `seek`.
    """

    def fence(self) -> None:
        """Initialise the transactional id: ends the predecessor's open transaction and fences it.

        Raises Fenced, NotAllowed, Unreachable or Retriable.
        """

    def queued_bytes(self) -> int | None:
        """Say how many bytes of records wait for the target's acknowledgement, as was told last; None if that isn't
        known. From any thread."""

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, Stored | ReplicatorError | None]:
        """Read the stable positions by *target* partition.

        None only for an explicit -1. A partition's own error (NotAllowed, Retriable) is its value; errors of the whole
        request are raised: Retriable, Unreachable, NotAllowed.
        """

    def seek(self, read_plans: Mapping[Partition, ReadPlan]) -> None:
        """Read exactly these source partitions; everything buffered is thrown away.

        At the first call positions with an epoch are checked for truncation; a partition for which that could not be
        asked is reported by the next `poll` in `failed`.
        """

    def poll(self, records_max: int, timeout_s: float) -> PollResult:
        """Read up to `records_max` source records and hand them to the writer. Waits for the first only.

        Opens a transaction with the first record. Raises RecordsRefused, NotAllowed, Abortable, UnknownOutcome, Fenced.
        """

    def flush(self) -> Flushed:
        """Wait until all handed-over records are acknowledged.

        Raises RecordsRefused, NotAllowed (with partitions where known), Abortable for other failed records, and
        UnknownOutcome when an ack came without offset. Acks of a partition must be contiguous over the whole
        transaction (exactly_once); otherwise Abortable. When the transaction has failed, it does not wait for its
        message timeout, but raises the reason at once.
        """

    def commit(
        self,
        offsets: Mapping[Partition, Committed],
        entries: Sequence[tuple[bytes, bytes]] = (),
        before_end: Callable[[], None] = lambda: None,
        blocks: MapBlocks | None = None,
    ) -> None:
        """Commit, with `offsets` (by target partition), records of the flow's claims topic (key, value) and blocks of
        the offset map, opening a transaction if needed. When this returns, it is committed and nothing broke on the
        way.

        Blocks are handed over first, and waited for last, before EndTxn.

        Offsets go in several TxnOffsetCommits of at most 256 KiB: each must fit a batch of `__consumer_offsets`.
        `before_end` is called when all but EndTxn is done. Raises as `flush` until then; after that UnknownOutcome or
        Fenced: nothing is ever sent again.
        """

    def set_aside(self, record: AsideRecord) -> None:
        """Add a record to the flow's topic for those that were set aside, to the open transaction, opening one if
        needed. Raises as `flush`, here or in `commit`, which waits for its acknowledgement."""

    def deliver(self) -> Collection[Partition]:
        """Write, under at_most_once and after `commit`, the records whose positions are committed, once and without
        retry.

        Returns the source partitions whose records the target has given other timestamps.
        """

    def abort(self) -> None:
        """Purge what is queued, then abort the open transaction. Raises UnknownOutcome when that is not certain."""

    def written(self) -> Written:
        """Say what was written since the last commit, abort or seek; also after a call has failed."""

    def on_stall(self, call: Callable[[Written], None]) -> None:
        """Have `call` made now and then while the target's acknowledgements are late; what it raises is raised by
        `poll`, `flush` or `commit`."""

    def close(self) -> None:
        """Let go of all connections without committing or aborting anything."""


class RecordIdentity(NamedTuple):
    """What tells one record from another: `digest`, 16 bytes over key, value, headers and timestamp, the same on both
    clusters (empty where the client can't return the record: it equals none); and 16 bytes over its key (None: null).
    `size` is how many bytes its key and value have.
    """

    offset: int
    digest: bytes
    key: bytes | None
    size: int = 0


class ReadStopped(Exception):
    """The lane was asked to stop while it read: what was read until then is not all."""


class RecordReader(Protocol):
    """Reads records of one cluster to compare them. Used by a lane's thread between transactions."""

    def identities(self, at: Partition, spans: Sequence[Span]) -> Iterator[Sequence[RecordIdentity]]:
        """Read committed records at these offsets, in order, some at a time; spans are sorted and disjoint.

        Raises ReadStopped, NotAllowed, TopicMissing; Retriable where an offset is gone, or the rest can't be read in
        time: because the cluster doesn't answer, or an open transaction hides it.
        """

    def record_now(self, at: Partition, offset: int) -> WholeRecord | UnreadRecord | None:
        """Read the committed record at this offset; None where there is none, or none any more.

        Raises as `identities`, but waits for no more than a moment, as the lane copies nothing meanwhile: asked for the
        same again, it goes on where it was. Otherwise it lets go of the connection.
        """

    def close(self) -> None:
        """Let go of the connection; the next use opens it again."""

"""The history of a run as its clients know it: acknowledged writes, reads, commits; the input of the checker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

TopicPartition = tuple[str, int]


class ViolationKind(StrEnum):
    """Kinds of violations."""

    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    ABORTED_READ = "aborted read"
    DIRTY_READ = "dirty read"
    REORDERING = "reordering"
    SKIPPED_POLL = "skipped poll"
    STARVED = "starved reader"
    NON_MONOTONIC = "non-monotonic offsets"
    TORN_TRANSACTION = "torn transaction"
    WRONG_GROUP_OFFSET = "wrong group offset"
    TWO_OWNERS = "two owners"
    STALE_COMMIT = "stale commit"
    SKIPPED_RECORD = "skipped record"
    UNSTABLE_GROUP = "unstable group"
    LOST_CHANGE = "lost change"
    BROKEN = "broken"
    """The broker failed, didn't start, or gave a response that no fault explains."""


@dataclass(frozen=True, slots=True)
class RunTopic:
    """A topic of a run, and how much of it must stay."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def all(self) -> list[TopicPartition]:
        """Its partitions."""
        return [(self.name, index) for index in range(self.partitions)]

    @property
    def is_compacted(self) -> bool:
        """Whether a record may go once there is a later one of its key."""
        return self.configs.get("cleanup.policy") == "compact"

    @property
    def retention_ms(self) -> int | None:
        """How old a record must be to go; None: it stays."""
        found = self.configs.get("retention.ms")
        return None if found is None else int(found)

    @property
    def forgets(self) -> bool:
        """Whether what was committed may go."""
        return self.is_compacted or self.retention_ms is not None


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation that was found."""

    kind: ViolationKind
    detail: str


class Outcome(StrEnum):
    """How a transaction ended, as far as its producer knows."""

    NOT_COMMITTED = "not committed"
    """Nobody has asked for its commit, or the broker has refused it."""
    UNKNOWN = "unknown"
    COMMITTED = "committed"


@dataclass(slots=True, eq=False)
class WrittenTransaction:
    """One transaction. `offsets` are positions that it commits, by partition."""

    name: str
    values: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    outcome: Outcome = Outcome.NOT_COMMITTED


@dataclass(slots=True)
class PartitionReads:
    """What one reader has read of one partition. Invariant: if it is `complete`, all of [0, `end`) was polled."""

    reader: str
    partition: TopicPartition
    committed: bool
    """Whether it was read with read_committed."""
    values: dict[int, bytes] = field(default_factory=dict)
    """Empty for a tombstone."""
    keys: dict[int, bytes] = field(default_factory=dict)
    log_start: int = 0
    end: int = 0
    high_watermark: int = 0
    last_stable: int = 0
    complete: bool = True


@dataclass(slots=True)
class GroupOffset:
    """Commits of one position outside of transactions, by one client: never two at a time."""

    group: str
    partition: TopicPartition
    acked: int = -1
    unknown: list[int] = field(default_factory=list)
    """Tried without an answer: one may still be on its way, behind those that were acknowledged since."""

    def allows(self, offset: int) -> bool:
        """Return whether the broker may say that this is the position."""
        return offset == self.acked or offset in self.unknown


@dataclass(slots=True)
class History:
    """The history of one run."""

    topics: dict[str, RunTopic] = field(default_factory=dict)
    acked: dict[bytes, tuple[TopicPartition, int]] = field(default_factory=dict)
    """Value → where the broker said it stands; those outside of transactions."""
    written_ms: dict[bytes, int] = field(default_factory=dict)
    """Value → timestamp of its record; all that were ever sent."""
    by_key: dict[tuple[TopicPartition, bytes], list[tuple[bytes | None, WrittenTransaction | None]]] = field(
        default_factory=dict
    )
    """In compacted topics, what was sent with each key, in order: a key has one producer only."""
    log_starts: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    """Log start → the latest time, in ms, that the clock on the wall had shown when a reader got it first."""
    producer_ids: set[int] = field(default_factory=set)
    """Those that producers without a transactional id were given."""
    transactions: list[WrittenTransaction] = field(default_factory=list)
    reads: list[PartitionReads] = field(default_factory=list)
    group_offsets: list[GroupOffset] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    crashes: int = 0
    """Of the broker, so far."""
    may_refuse_until_s: float = 0.0
    """Until when a disk that is or was full or broken explains that writes are refused."""

    def acknowledged(self) -> int:
        """Count how much has been so far: records, transactions, positions of groups."""
        committed = sum(each.outcome is Outcome.COMMITTED for each in self.transactions)
        return len(self.acked) + committed + sum(each.acked + 1 for each in self.group_offsets)

    def refused(self, now_s: float, who: str) -> None:
        """Note that a write was refused because of the disk."""
        if now_s > self.may_refuse_until_s:
            self.found(ViolationKind.BROKEN, f"{who}: refused at {now_s:.3f} s, and the disk is well")

    def found(self, kind: ViolationKind, detail: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(kind, detail))

    def sent(
        self,
        partition: TopicPartition,
        records: Iterable[tuple[bytes, bytes | None]],
        now_ms: int,
        transaction: WrittenTransaction | None = None,
    ) -> None:
        """Note that records are about to be sent, by key and value, with that timestamp."""
        is_compacted = self.topics[partition[0]].is_compacted
        for key, value in records:
            if value is not None:
                self.written_ms[value] = now_ms
            if is_compacted:
                self.by_key.setdefault((partition, key), []).append((value, transaction))

    def unsure(self, partition: TopicPartition, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Note that records, the latest that their producer has sent, may be written or not: it has given up."""
        nobody_knows = WrittenTransaction("given up", outcome=Outcome.UNKNOWN)
        for key, value in reversed(records):
            sent = self.by_key.get((partition, key), [])
            at = next((at for at in reversed(range(len(sent))) if sent[at] == (value, None)), None)
            if at is not None:
                sent[at] = value, nobody_knows

    def begin(self, name: str) -> WrittenTransaction:
        """Note that a transaction begins; in order per transactional id."""
        transaction = WrittenTransaction(name)
        self.transactions.append(transaction)
        return transaction

"""Committed offsets of groups, those that wait for a transaction, and their records in `__consumer_offsets`.

Source: Kafka `OffsetMetadataManager`. Records have Kafka's formats: OffsetCommitKey 1, OffsetCommitValue 3.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from sys import getsizeof

from embedded_broker.state.codec import FieldReader, Truncated, put_string
from embedded_broker.state.counting import add_in
from embedded_broker.state.owners import SOMEBODY, Owner
from embedded_broker.state.producers import NO_PRODUCER_ID
from embedded_broker.state.transactions import TopicPartition

OFFSET_KEY = 1
NO_OFFSET = -1
OFFSET_BYTES, GROUP_BYTES = 400, 2_000
"""What an offset takes in memory beside its metadata, and a group beside its offsets and its id."""


def group_bytes(group_id: str) -> int:
    """Compute what a group takes in memory beside its offsets."""
    return GROUP_BYTES + 2 * getsizeof(group_id)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A position; `record_offset` is where its record stood in `__consumer_offsets` when it was committed."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    record_offset: int = -1
    owner: Owner = field(default=SOMEBODY, compare=False, repr=False)
    """Who has committed it, if that wasn't before the start."""

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return OFFSET_BYTES + getsizeof(self.metadata)


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A record of `__consumer_offsets` about one partition of one group; None: the offset was deleted."""

    group_id: str
    partition: TopicPartition
    committed: CommittedOffset | None
    record_offset: int = -1


def encode_key(group_id: str, partition: TopicPartition) -> bytes:
    """Return the key of an offset's records."""
    topic, index = partition
    return struct.pack(">h", OFFSET_KEY) + put_string(group_id) + put_string(topic) + struct.pack(">i", index)


def encode_value(committed: CommittedOffset) -> bytes:
    """Return the value of an offset's record."""
    head = struct.pack(">hqi", 3, committed.offset, committed.leader_epoch)
    return head + put_string(committed.metadata) + struct.pack(">q", committed.commit_ms)


def decode(reader: FieldReader, value: bytes | None, record_offset: int) -> OffsetRecord:
    """Read a record whose key's version has been read already.

    Raises:
        Truncated: the record is not whole, or its version is unknown.
    """
    group_id, topic, index = reader.string(), reader.string(), reader.number("i")
    if value is None:
        return OffsetRecord(group_id, (topic, index), None, record_offset)
    fields = FieldReader(value)
    if (version := fields.number("h")) != 3:
        raise Truncated(f"offset commit value of version {version}")
    offset, leader_epoch, metadata = fields.number("q"), fields.number("i"), fields.string()
    committed = CommittedOffset(offset, leader_epoch, metadata, fields.number("q"), record_offset)
    return OffsetRecord(group_id, (topic, index), committed, record_offset)


class Offsets:
    """All groups' offsets. Changed by records alone, so that a replay of the log rebuilds it."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # Producer id → group → partition → offset: what its open transaction will commit.
        # Invariant: an offset in here is never visible, but makes its partition unstable.
        self._pending: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}
        # What the offsets of each group take in memory, both kinds together, by who has committed them.
        self._bytes: defaultdict[str, Counter[Owner]] = defaultdict(Counter)

    def apply(self, record: OffsetRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Take over a record that has been appended, or that is found at recovery.

        Args:
            record: what it says.
            producer_id: of the batch that holds it, if the batch is transactional.
        """
        if record.committed is None:
            self._forget(record)
        elif producer_id == NO_PRODUCER_ID:
            self._commit(record.group_id, record.partition, record.committed)
        else:
            groups = self._pending.setdefault(producer_id, {})
            pending = groups.setdefault(record.group_id, {})
            self._count(record.group_id, pending.get(record.partition), record.committed)
            pending[record.partition] = record.committed

    def end_transaction(self, producer_id: int, commit: bool) -> Collection[str]:
        """Note that a marker was written to `__consumer_offsets`: the producer's pending offsets are committed, or
        dropped.

        Returns the groups.
        """
        ended = self._pending.pop(producer_id, {})
        for group_id, partitions in ended.items():
            for partition, pending in partitions.items():
                self._count(group_id, pending, None)
                if commit:
                    self._commit(group_id, partition, pending)
        return ended.keys()

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets. Read only."""
        return self._committed.get(group_id, {})

    def held(self, group_id: str) -> Counter[Owner]:
        """Return what the offsets of a group take in memory, by who has committed them."""
        return self._bytes.get(group_id, Counter())

    def _count(self, group_id: str, before: CommittedOffset | None, now: CommittedOffset | None) -> None:
        """Count one offset in the place of another."""
        for each, times in ((now, 1), (before, -1)):
            if each is not None:
                add_in(self._bytes, group_id, each.owner, times * each.size_bytes)

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions whose offset some open transaction will change if it commits. It looks at all of them:
        ask once for a group.
        """
        return set().union(*(groups.get(group_id, ()) for groups in self._pending.values()))

    def first_pending(self) -> int | None:
        """Return where the first record stands that waits for the marker of its transaction."""
        return min(
            (each.record_offset for groups in self._pending.values() for partitions in groups.values()
             for each in partitions.values()),
            default=None,
        )  # fmt: skip

    def known(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions with a committed or a pending offset: what deleting the group must delete."""
        return self.unstable(group_id).union(self.committed(group_id))

    def group_ids(self) -> set[str]:
        """Return the groups with a committed or a pending offset."""
        return set(self._committed) | {group_id for groups in self._pending.values() for group_id in groups}

    def topics(self) -> set[str]:
        """Return the topics on which some group has an offset."""
        return {topic for group_id in self.group_ids() for topic, _ in self.known(group_id)}

    def on_topic(self, topic: str) -> Iterator[tuple[str, TopicPartition]]:
        """Return group and partition of every offset, committed or pending, on a topic."""
        found: dict[str, set[TopicPartition]] = defaultdict(set)
        for group_id in sorted(self.group_ids()):
            found[group_id] = {partition for partition in self.known(group_id) if partition[0] == topic}
        for group_id, partitions in found.items():
            for partition in sorted(partitions):
                yield group_id, partition

    def _commit(self, group_id: str, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Commit an offset, unless the one there stands later in the log: that is newer, whichever becomes visible
        first.
        """
        partitions = self._committed.setdefault(group_id, {})
        existing = partitions.get(partition)
        if existing is None or committed.record_offset > existing.record_offset:
            self._count(group_id, existing, committed)
            partitions[partition] = committed

    def _forget(self, record: OffsetRecord) -> None:
        """Drop by a tombstone what stands before it in the log, not what came after."""
        pending = [groups.get(record.group_id, {}) for groups in self._pending.values()]
        for partitions in (self._committed.get(record.group_id, {}), *pending):
            existing = partitions.get(record.partition)
            if existing is not None and existing.record_offset < record.record_offset:
                self._count(record.group_id, existing, None)
                del partitions[record.partition]
        if not self._committed.get(record.group_id, True):
            del self._committed[record.group_id]

"""Offsets of groups: commits, commits inside transactions, fetches and deletion. Part of `GroupCoordinator`.

A plain commit or a deletion becomes visible when it is on disk. A transactional commit is pending from the moment it is
appended, so that a reader that requires stable offsets is held off, and becomes visible with its commit marker.
Source: Kafka `OffsetMetadataManager`; KIP-447 (require stable, group metadata in TxnOffsetCommit).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.background import Background
from embedded_broker.coordinators.compaction import LiveRecords
from embedded_broker.coordinators.group_registry import AnyGroup
from embedded_broker.coordinators.memory_quota import MemoryQuota
from embedded_broker.coordinators.offsets_under_way import OffsetsUnderWay
from embedded_broker.coordinators.ports import CoordinatorHost, GroupConfig, Partition
from embedded_broker.metadata.topic_names import OFFSETS_TOPIC
from embedded_broker.state import offsets
from embedded_broker.state.consumer_groups import ConsumerGroup
from embedded_broker.state.offsets import CommittedOffset, OffsetRecord, Offsets, group_bytes
from embedded_broker.state.owners import SOMEBODY, Owner
from embedded_broker.state.producers import RefuseBatch
from embedded_broker.state.transactions import TopicPartition
from kafka_records.batch import TRANSACTIONAL, read_header
from kafka_records.records import encode_from_fields, record_fields


@dataclass(frozen=True, slots=True)
class Committer:
    """The client that commits: a member of the group, or any other client (generation -1, no ids)."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    """Or the member's epoch, in a consumer group."""
    version: int = 2
    """Of OffsetCommit; members of a consumer group need 9."""
    owner: Owner = SOMEBODY
    """The client's connection."""


@dataclass(frozen=True, slots=True)
class PartitionCommit:
    """One partition's offset in a commit, made by `OffsetManager.prepared`."""

    record: OffsetRecord
    topic_id: UUID
    """Of the topic that was meant. One of the same name may have been created since, to which the offset says
    nothing."""
    size_bytes: int
    """What it takes in memory once it is committed."""
    fields: bytes
    """The record as it is written, see `kafka_records.records.record_fields`; empty if the metadata is too large."""

    @property
    def partition(self) -> TopicPartition:
        """Which one."""
        return self.record.partition


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """Result of OffsetFetch for a partition; offset -1 if there is none, or none that is stable."""

    offset: int = offsets.NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.none


Results = dict[TopicPartition, ErrorCode]
NOTHING_COMMITTED = FetchedOffset()
UNSTABLE = FetchedOffset(error_code=ErrorCode.unstable_offset_commit)


class OffsetManager:
    """Committed offsets of all groups. Called on the event loop only."""

    def __init__(
        self,
        host: CoordinatorHost,
        background: Background,
        config: GroupConfig,
        find_or_create: Callable[[str], AnyGroup],
    ) -> None:
        self._host = host
        self._background = background
        self._config = config
        self._find_or_create = find_or_create
        self.state = Offsets()
        self.quota = MemoryQuota(config.offsets_max_bytes)
        self._under_way = OffsetsUnderWay()

    def is_settled(self, group_id: str) -> bool:
        """Return whether `state` holds all of the group that has been appended."""
        return not self._under_way.has_group(group_id)

    def is_under_way(self, group_id: str, partition: TopicPartition) -> bool:
        """Return whether something was appended about a partition's offset that isn't on disk yet."""
        return (group_id, partition) in self._under_way

    def has_any(self, group_id: str) -> bool:
        """Return whether a group has an offset: on disk, pending, or on its way to the disk."""
        return bool(self.state.held(group_id) or self._under_way.of_group(group_id))

    def replay(self, record: OffsetRecord, producer_id: int) -> None:
        """Apply a record found at recovery; `producer_id` of a transactional batch, else -1."""
        self.state.apply(record, producer_id)
        self._note(record.group_id)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Note that a marker was written to `__consumer_offsets`."""
        for group_id in self.state.end_transaction(producer_id, commit):
            self._note(group_id)

    def _note(self, group_id: str) -> None:
        """Note that a group has other offsets now."""
        held = self.state.held(group_id) + self._under_way.held(group_id)
        self.quota.note(group_id, held, group_bytes(group_id))

    def prepared(
        self,
        who: Committer,
        partition: TopicPartition,
        offset: int,
        leader_epoch: int,
        metadata: str,
        topic_id: UUID,
    ) -> PartitionCommit:
        """Do what can be done ahead for one partition of a commit: a request may have thousands."""
        now_ms = self._host.clock.now_ms()
        committed = CommittedOffset(offset, leader_epoch, metadata, now_ms, owner=who.owner)
        record = OffsetRecord(who.group_id, partition, committed)
        is_too_large = len(metadata) > self._config.offset_metadata_max_bytes
        return PartitionCommit(record, topic_id, committed.size_bytes, b"" if is_too_large else _fields(record))

    async def commit(
        self,
        who: Committer,
        group: AnyGroup | None,
        commits: Sequence[PartitionCommit],
        renew: Callable[[], None] = lambda: None,
    ) -> Results:
        """Handle OffsetCommit, with at most one commit for each partition. Returns only once what succeeded is on
        disk. Calls `renew` if the committer is who it says: that renews its session."""
        error_code = self._validate(who, group, commits, transactional=False)
        if error_code is ErrorCode.none:
            renew()
        results, accepted = self._sort_out(who, commits, error_code)
        if error_code is ErrorCode.none and group is None:
            self._find_or_create(who.group_id)
        if accepted:
            await self._write([each.fields for each in accepted], [each.record for each in accepted])
        return results

    async def commit_in_transaction(
        self, who: Committer, group: AnyGroup | None, producer_id: int, epoch: int, commits: Sequence[PartitionCommit]
    ) -> Results:
        """Handle TxnOffsetCommit, once the coordinator has verified the transaction; at most one commit for each
        partition. Returns only once it is on disk.
        """
        error_code = self._validate(who, group, commits, transactional=True)
        results, accepted = self._sort_out(who, commits, error_code)
        if not accepted:
            return results
        batch = encode_from_fields(
            [each.fields for each in accepted],
            self._host.clock.now_ms(),
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        log = self._host.internal_log(OFFSETS_TOPIC)
        verdict = log.producers.check(read_header(batch), self._host.clock.now_ms(), from_client=False)
        if isinstance(verdict, RefuseBatch):
            return {commit.partition: verdict.error_code for commit in commits}
        self._find_or_create(who.group_id)
        base_offset = log.append(batch)
        for delta, each in enumerate(accepted):
            self.state.apply(_placed(each.record, base_offset + delta), producer_id)
        self._note(who.group_id)
        await self._host.durable(log)
        return results

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """Handle OffsetFetch: return the given partitions, or for None all that have an offset."""
        committed = self.state.committed(group_id)
        unstable = self.state.unstable(group_id) if require_stable else ()
        fetched: dict[TopicPartition, FetchedOffset] = {}
        for partition in sorted(committed) if partitions is None else partitions:
            found = committed.get(partition)
            if partition in unstable:
                fetched[partition] = UNSTABLE
            elif found is None:
                fetched[partition] = NOTHING_COMMITTED
            else:
                fetched[partition] = FetchedOffset(found.offset, found.leader_epoch, found.metadata)
        return fetched

    async def delete(self, group_id: str, partitions: Sequence[TopicPartition]) -> None:
        """Delete offsets, also those that are pending, or on their way. Must not return before that is on disk."""
        known = self._known(group_id)
        await self._forget([(group_id, partition) for partition in partitions if partition in known])

    def forget_group(self, group_id: str, tombstones: Sequence[tuple[bytes, bytes | None]]) -> Awaitable[None]:
        """Append the deletion of a group's offsets and, in the same batch, the group's own `tombstones`: what comes
        behind it is of a new group. Await the result for the disk. Raises NoSpace with nothing changed.
        """
        records = [OffsetRecord(group_id, partition, None) for partition in sorted(self._known(group_id))]
        fields = [*map(_fields, records), *(record_fields(key, value) for key, value in tombstones)]
        return self._applied(*self._append(fields, records))

    async def forget_topic(self, topic: str) -> None:
        """Delete all groups' offsets on a topic."""
        await self._forget(sorted(set(self.state.on_topic(topic)) | self._under_way.on_topic(topic)))

    def _known(self, group_id: str) -> set[TopicPartition]:
        return self.state.known(group_id) | self._under_way.of_group(group_id)

    def live(self) -> Iterator[LiveRecords]:
        """See Compactor: a record for every committed offset, but for those about which newer records are on their way
        to the disk: these are still in the log (see `needed_from`), and a repetition after a deletion would undo it."""
        known = [
            (group_id, each) for group_id in sorted(self.state.group_ids()) for each in self.state.committed(group_id)
        ]
        count = self._host.thresholds.compaction_part_records
        for first in range(0, len(known), count):
            part = [each for each in known[first : first + count] if each not in self._under_way]
            yield LiveRecords(placed=[found for each in part if (found := self._placed(*each)) is not None])

    def _placed(self, group_id: str, partition: TopicPartition) -> tuple[bytes, bytes, int] | None:
        committed = self.state.committed(group_id).get(partition)
        if committed is None:
            return None
        key, value = offsets.encode_key(group_id, partition), offsets.encode_value(committed)
        return key, value, committed.record_offset

    def needed_from(self) -> int | None:
        """Return the first offset of the log at which something stands that `live` doesn't have: records that wait for
        the marker of their transaction, or for the disk. None if nothing does."""
        firsts = self._under_way.first(), self.state.first_pending()
        return min((each for each in firsts if each is not None), default=None)

    async def _forget(self, gone: list[tuple[str, TopicPartition]]) -> None:
        if not gone:
            return
        records = [OffsetRecord(group_id, partition, None) for group_id, partition in gone]
        await self._write([_fields(record) for record in records], records)

    async def _write(self, fields: Sequence[bytes], records: Sequence[OffsetRecord]) -> None:
        """Append, wait for the disk, apply; also when the client disconnects meanwhile. `fields` are the records'."""
        await self._applied(*self._append(fields, records))

    def _append(self, fields: Sequence[bytes], records: Sequence[OffsetRecord]) -> tuple[Partition, int]:
        log = self._host.internal_log(OFFSETS_TOPIC)
        base_offset = log.append(encode_from_fields(fields, self._host.clock.now_ms()))
        self._under_way.add(base_offset, records)
        for group_id in {record.group_id: None for record in records}:
            self._note(group_id)  # what is on its way counts like what is there: it may be much
        return log, base_offset

    async def _applied(self, log: Partition, base_offset: int) -> None:
        await self._background.finish("offsets", partial(self._apply_once_durable, log, base_offset))

    async def _apply_once_durable(self, log: Partition, base_offset: int) -> None:
        await self._host.durable(log)
        for first, records in self._under_way.take(base_offset):
            for delta, record in enumerate(records):
                self.state.apply(_placed(record, first + delta))
            for group_id in {record.group_id: None for record in records}:
                self._note(group_id)

    def _validate(
        self, who: Committer, group: AnyGroup | None, commits: Sequence[PartitionCommit], *, transactional: bool
    ) -> ErrorCode:
        if transactional and not who.group_id:
            # A plain commit may name the empty group.
            return ErrorCode.invalid_group_id
        if group is None:
            # Anybody may commit to a group that doesn't exist; a member of one that is gone may not.
            return ErrorCode.none if who.generation < 0 else ErrorCode.illegal_generation
        claim = who.member_id, who.instance_id, who.generation, transactional, who.version
        if not isinstance(group, ConsumerGroup):
            return group.validate_commit(*claim)
        # What is refused by itself says nothing about the others.
        looked_at = [each for each in commits if each.fields and self._is_there(each)]
        return group.validate_commit(*claim, [(each.topic_id, each.partition[1]) for each in looked_at])

    def _sort_out(
        self, who: Committer, commits: Sequence[PartitionCommit], error_code: ErrorCode
    ) -> tuple[Results, list[PartitionCommit]]:
        """Return an error for each partition, and the commits of those that have none."""
        known = self.state.committed(who.group_id)
        more_bytes = 0 if self.quota.has(who.group_id) else group_bytes(who.group_id)
        results: Results = {}
        accepted: list[PartitionCommit] = []
        for commit in commits:
            partition = commit.partition
            if error_code is not ErrorCode.none:
                results[partition] = error_code
            elif not self._is_there(commit):
                results[partition] = ErrorCode.unknown_topic_or_partition
            elif not commit.fields:
                results[partition] = ErrorCode.offset_metadata_too_large
            else:
                existing = known.get(partition)
                more_bytes += max(commit.size_bytes - (0 if existing is None else existing.size_bytes), 0)
                if not self.quota.fits(who.owner, more_bytes):
                    results[partition] = ErrorCode.invalid_commit_offset_size
                    continue
                results[partition] = ErrorCode.none
                accepted.append(commit)
        return results, accepted

    def _is_there(self, commit: PartitionCommit) -> bool:
        """Return whether the topic is still there: it may have been deleted since the request was looked at."""
        topic = self._host.topics.get(commit.partition[0])
        return topic is not None and topic.topic_id == commit.topic_id


def _fields(record: OffsetRecord) -> bytes:
    value = None if record.committed is None else offsets.encode_value(record.committed)
    return record_fields(offsets.encode_key(record.group_id, record.partition), value)


def _placed(record: OffsetRecord, record_offset: int) -> OffsetRecord:
    """Return the record with the place that it has in the log."""
    made = record.committed  # `dataclasses.replace` takes several times as long, and a commit has thousands of them
    if made is not None:
        made = CommittedOffset(
            made.offset, made.leader_epoch, made.metadata, made.commit_ms, record_offset, owner=made.owner
        )
    return OffsetRecord(record.group_id, record.partition, made, record_offset)

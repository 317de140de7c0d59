"""Records of `__consumer_offsets` about consumer groups (KIP-848), in Kafka's own formats.

Keys: ConsumerGroupMetadata 3, ConsumerGroupMemberMetadata 5, ConsumerGroupTargetAssignmentMetadata 6,
ConsumerGroupTargetAssignmentMember 7, ConsumerGroupCurrentMemberAssignment 8; all values have version 0. The hash of
the metadata is this broker's own: another one's would only cost one rebalance.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from embedded_broker.state.codec import (
    FieldReader,
    Truncated,
    put_compact_string,
    put_nullable_compact_string,
    put_string,
    put_tags,
    put_uvarint,
)
from embedded_broker.state.consumer_members import (
    Change,
    ConsumerMember,
    Current,
    GroupEpoch,
    Subscription,
    Target,
    TargetEpoch,
)
from embedded_broker.state.consumer_types import MemberState, Partitions, TopicIdPartition

GROUP_EPOCH, SUBSCRIPTION, TARGET_EPOCH, TARGET, CURRENT = 3, 5, 6, 7, 8
KEYS = frozenset({GROUP_EPOCH, SUBSCRIPTION, TARGET_EPOCH, TARGET, CURRENT})
METADATA_HASH_TAG = 0
ASSIGNMENT_EPOCHS_TAG = 0


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record about one consumer group."""

    group_id: str
    change: Change


def encode(group_id: str, change: Change) -> tuple[bytes, bytes | None]:
    """Return key and value of a record."""
    if isinstance(change, GroupEpoch):
        return _key(GROUP_EPOCH, group_id), None if change.epoch is None else _epoch(change.epoch, change.metadata_hash)
    if isinstance(change, TargetEpoch):
        return _key(TARGET_EPOCH, group_id), None if change.epoch is None else _epoch(change.epoch)
    if isinstance(change, Subscription):
        return (
            _key(SUBSCRIPTION, group_id, change.member_id),
            None if change.member is None else _subscription(change.member),
        )
    if isinstance(change, Target):
        value = None if change.partitions is None else _version_0(_partitions(change.partitions), {})
        return _key(TARGET, group_id, change.member_id), value
    return _key(CURRENT, group_id, change.member_id), None if change.member is None else _current(change.member)


def decode(kind: int, key: FieldReader, value: bytes | None) -> ConsumerRecord:
    """Read a record whose key's version, `kind`, has been read already.

    Raises:
        Truncated: the record is not whole, or its version is unknown.
    """
    group_id = key.string()
    member_id = key.string() if kind in (SUBSCRIPTION, TARGET, CURRENT) else ""
    fields = None if value is None else FieldReader(value)
    if fields is not None and (version := fields.number("h")) != 0:
        raise Truncated(f"consumer group value of key {kind} and version {version}")
    return ConsumerRecord(group_id, _change(kind, member_id, fields))


def _change(kind: int, member_id: str, fields: FieldReader | None) -> Change:
    if kind == GROUP_EPOCH:
        if fields is None:
            return GroupEpoch(None)
        epoch = fields.number("i")
        return GroupEpoch(epoch, int.from_bytes(fields.tags().get(METADATA_HASH_TAG, b"\0"), "big", signed=True))
    if kind == TARGET_EPOCH:
        return TargetEpoch(None if fields is None else fields.number("i"))
    if kind == SUBSCRIPTION:
        return Subscription(member_id, None if fields is None else _read_subscription(member_id, fields))
    if kind == TARGET:
        return Target(member_id, None if fields is None else frozenset(_read_partitions(fields)))
    return Current(member_id, None if fields is None else _read_current(member_id, fields))


def _key(kind: int, *names: str) -> bytes:
    return struct.pack(">h", kind) + b"".join(map(put_string, names))


def _version_0(body: bytes, tags: dict[int, bytes]) -> bytes:
    return struct.pack(">h", 0) + body + put_tags(tags)


def _epoch(epoch: int, metadata_hash: int = 0) -> bytes:
    tags = {METADATA_HASH_TAG: struct.pack(">q", metadata_hash)} if metadata_hash else {}
    return _version_0(struct.pack(">i", epoch), tags)


def _subscription(member: ConsumerMember) -> bytes:
    names = sorted(member.topic_names)
    parts = [
        put_nullable_compact_string(member.instance_id),
        put_nullable_compact_string(member.rack_id),
        put_compact_string(member.client_id),
        put_compact_string(member.client_host),
        put_uvarint(len(names) + 1),
        *map(put_compact_string, names),
        put_nullable_compact_string(member.topic_regex),
        struct.pack(">i", member.rebalance_timeout_ms),
        put_nullable_compact_string(member.assignor),
    ]
    return _version_0(b"".join(parts), {})


def _read_subscription(member_id: str, fields: FieldReader) -> ConsumerMember:
    return ConsumerMember(
        member_id,
        instance_id=fields.nullable_compact_string(),
        rack_id=fields.nullable_compact_string(),
        client_id=fields.compact_string(),
        client_host=fields.compact_string(),
        topic_names=frozenset(fields.compact_string() for _ in range(fields.count())),
        topic_regex=fields.nullable_compact_string(),
        rebalance_timeout_ms=fields.number("i"),
        assignor=fields.nullable_compact_string(),
    )


def _current(member: ConsumerMember) -> bytes:
    head = struct.pack(">iib", member.epoch, member.previous_epoch, member.state)
    held = [_partitions(each, member.assignment_epochs) for each in (member.assigned, member.revoking)]
    return _version_0(head + b"".join(held), {})


def _read_current(member_id: str, fields: FieldReader) -> ConsumerMember:
    epoch, previous_epoch, state = fields.number("i"), fields.number("i"), MemberState(fields.number("b"))
    # Without epochs, as they were written before Kafka 4.3: the member's own.
    assigned = _read_partitions(fields, max(epoch, 0))
    revoking = _read_partitions(fields, max(epoch, 0))
    return ConsumerMember(
        member_id,
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=state,
        assigned=frozenset(assigned),
        revoking=frozenset(revoking),
        assignment_epochs=assigned | revoking,
    )


def _partitions(partitions: Partitions, epochs: Mapping[TopicIdPartition, int] | None = None) -> bytes:
    by_topic: dict[UUID, list[int]] = defaultdict(list)
    for topic_id, index in sorted(partitions, key=lambda each: (each[0].int, each[1])):
        by_topic[topic_id].append(index)
    parts = [put_uvarint(len(by_topic) + 1)]
    for topic_id, indexes in by_topic.items():
        tags = {}
        if epochs is not None:
            tags[ASSIGNMENT_EPOCHS_TAG] = _numbers([epochs[topic_id, index] for index in indexes])
        parts += [topic_id.bytes, _numbers(indexes), put_tags(tags)]
    return b"".join(parts)


def _numbers(numbers: Sequence[int]) -> bytes:
    return put_uvarint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def _read_numbers(fields: FieldReader) -> list[int]:
    return [fields.number("i") for _ in range(fields.count())]


def _read_partitions(fields: FieldReader, epoch: int = 0) -> dict[TopicIdPartition, int]:
    """Read partitions with the epochs in which they were assigned; `epoch` for those of which none is written."""
    found: dict[TopicIdPartition, int] = {}
    for _ in range(fields.count()):
        topic_id, indexes = fields.uuid(), _read_numbers(fields)
        raw = fields.tags().get(ASSIGNMENT_EPOCHS_TAG)
        epochs = _read_numbers(FieldReader(raw)) if raw else []
        if len(epochs) != len(indexes):
            epochs = [epoch] * len(indexes)
        found.update(zip([(topic_id, index) for index in indexes], epochs, strict=True))
    return found

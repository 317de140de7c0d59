"""Records of `__consumer_offsets` about groups, in Kafka's own format: GroupMetadataKey 2, GroupMetadataValue 3.

Those of the new consumer protocol are in `consumer_log`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from embedded_broker.state import consumer_log, offsets
from embedded_broker.state.codec import FieldReader, Truncated, put_bytes, put_nullable_string, put_string
from embedded_broker.state.consumer_log import ConsumerRecord
from embedded_broker.state.group_members import Member
from embedded_broker.state.group_types import GroupState
from embedded_broker.state.groups import Group
from embedded_broker.state.offsets import OffsetRecord

GROUP_KEY = 2


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group as of its last stored assignment; `members` is empty for a group without."""

    group_id: str
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_ms: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class GroupForgotten:
    """The group was deleted."""

    group_id: str


def encode_key(group_id: str) -> bytes:
    """Return the key of a group's records."""
    return struct.pack(">h", GROUP_KEY) + put_string(group_id)


def encode_group(group: Group, assignment: Mapping[str, bytes], now_ms: int) -> bytes:
    """Return the value of a group's record, with the assignment that is about to hold."""
    parts = [
        struct.pack(">h", 3),
        put_string(group.protocol_type or ""),
        struct.pack(">i", group.generation),
        put_nullable_string(group.protocol_name),
        put_nullable_string(group.members.leader_id),
        struct.pack(">qi", now_ms, len(group.members)),
    ]
    for member in group.members:
        parts += [
            put_string(member.member_id),
            put_nullable_string(member.instance_id),
            put_string(member.client_id),
            put_string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            put_bytes(member.metadata(group.protocol_name)),
            put_bytes(assignment.get(member.member_id, b"")),
        ]
    return b"".join(parts)


Found = OffsetRecord | GroupRecord | GroupForgotten | ConsumerRecord


def decode(key: bytes, value: bytes | None, record_offset: int) -> Found | None:
    """Read any record of `__consumer_offsets`; None for a kind that this version doesn't know.

    Raises:
        Truncated: the record is not whole, or its version is unknown.
    """
    reader = FieldReader(key)
    kind = reader.number("h")
    if kind in (0, offsets.OFFSET_KEY):
        return offsets.decode(reader, value, record_offset)
    if kind in consumer_log.KEYS:
        return consumer_log.decode(kind, reader, value)
    if kind != GROUP_KEY:
        return None
    group_id = reader.string()
    return GroupForgotten(group_id) if value is None else _decode_group(group_id, FieldReader(value))


def _decode_group(group_id: str, reader: FieldReader) -> GroupRecord:
    if (version := reader.number("h")) != 3:
        raise Truncated(f"group metadata value of version {version}")
    protocol_type, generation = reader.string(), reader.number("i")
    protocol_name, leader_id = reader.nullable_string(), reader.nullable_string()
    state_ms, count = reader.number("q"), reader.number("i")
    members: list[Member] = []
    for _ in range(count):
        member_id, instance_id = reader.string(), reader.nullable_string()
        client_id, client_host = reader.string(), reader.string()
        rebalance_timeout_ms, session_timeout_ms = reader.number("i"), reader.number("i")
        protocols = [(protocol_name or "", reader.blob())]
        members.append(
            Member(
                member_id,
                instance_id,
                client_id,
                client_host,
                rebalance_timeout_ms,
                session_timeout_ms,
                protocol_type,
                protocols,
                assignment=reader.blob(),
            )
        )
    return GroupRecord(group_id, protocol_type, generation, protocol_name, leader_id, state_ms, tuple(members))


def restore(group: Group, record: GroupRecord) -> None:
    """Bring a fresh group to where its record says it was: stable with these members, or empty."""
    group.generation, group.protocol_name = record.generation, record.protocol_name
    group.protocol_type = record.protocol_type or None
    for member in record.members:
        group.members.add(member)
    group.members.leader_id = record.leader_id if record.members else None
    group.state = GroupState.STABLE if record.members else GroupState.EMPTY

"""Asks who the members of a group of the new consumer protocol are (KIP-848, Kafka 4.0). DescribeGroups says of such a
group that there is none, also where some of its members still speak the classic protocol. Used by
`flow.group_members`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment, TopicPartition
from kio.schema.errors import ErrorCode as E
from kio.serial import entity_writer

from replicator.config import Cluster
from replicator.kafka import failures
from replicator.kafka.admin import GroupMember
from replicator.kafka.topic_questions import raised
from replicator.model.errors import ReplicatorError, Unsupported
from replicator.wire.group_coordinators import AskedOfGroup, GroupCoordinators, only
from replicator.wire.protocol import Exchange

API = "consumer_group_describe"
CLIENT_ID = "eos-replicate.members"
_VERSION = bytes(2)  # of an assignment as a classic group has it
_write = entity_writer(ConsumerProtocolAssignment)


def consumer_members(cluster: Cluster, group: str, timeout_s: float) -> list[GroupMember]:
    """Return the members of a group of the new protocol; none where there is no such group, and where the cluster
    knows no such protocol. Each one's assignment is written as a classic group has it.

    Raises Unreachable, NotAllowed, Retriable, ConfigError.
    """

    def asked(names: Sequence[str]) -> Iterator[AskedOfGroup]:
        yield questions.asked_of(API, _fields(names), tuple(names))

    def read(one: AskedOfGroup, data: bytes) -> Mapping[str, list[GroupMember] | ReplicatorError]:
        return {it.group_id: _members(it, cluster.name) for it in one.read(data).groups}

    try:
        with closing(GroupCoordinators(cluster, CLIENT_ID)) as questions:
            found = questions.of_coordinators([group], timeout_s, asked, read, only)()[group]
    except Unsupported:
        return []
    return [] if isinstance(found, Unsupported) else raised(found)


def _fields(groups: Sequence[str]) -> Any:
    def fields(_: Exchange) -> Mapping[str, Any]:
        return {"group_ids": tuple(groups), "include_authorized_operations": False}

    return fields


def _members(described: Any, cluster: str) -> list[GroupMember] | ReplicatorError:
    code, group = int(described.error_code), described.group_id
    if code == int(E.group_id_not_found):  # of the classic protocol, or nobody's
        return []
    if code:
        return failures.classify_code(code, cluster, f"describe group {group!r}", f"Describe on group {group!r}")
    return [
        GroupMember(it.client_id, it.client_host, _assignment(it.assignment.topic_partitions))
        for it in described.members
    ]


def _assignment(topics: Iterable[Any]) -> bytes:
    made = io.BytesIO()
    assigned = tuple(TopicPartition(topic=it.topic_name, partitions=tuple(it.partitions)) for it in topics)
    _write(made, ConsumerProtocolAssignment(assigned_partitions=assigned))
    return _VERSION + made.getvalue()

"""Metadata (3).

Behaviour: this broker leads all partitions. An unknown topic is created when the broker and the request allow it
(`auto_create_topics`, v4+). The authorized operations on the cluster and on topics are returned on request (KIP-430).
Version notes: v0 asks for all topics by an empty list, later ones by null; v8+ return authorized operations, v11+ no
longer those of the cluster; v10+ return topic ids; v12+ accept them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.metadata.topic_names import INTERNAL, METADATA_BY_ID_SINCE, NO_ID, id_in, is_by_id, name_problem
from embedded_broker.metadata.topics import Topic
from embedded_broker.security.acls import Resource
from embedded_broker.security.operations import authorized, authorized_on_cluster
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import ENTRY_BYTES, Answer

if TYPE_CHECKING:
    from embedded_broker.runtime.fair_share import Share
    from embedded_broker.storage.partition import Partition

TOPIC_STEPS, PARTITION_STEPS = 2, 2


@api(3, "metadata", range(14))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle Metadata: see the behaviour and version notes above."""
    node = broker.config.node_id
    allowed = {}
    if getattr(request, "include_cluster_authorized_operations", False):
        operations = authorized_on_cluster(broker.security.authorizer, conn.session)
        allowed["cluster_authorized_operations"] = operations
    topics = await _topics(broker, conn.share(), request, version)
    if getattr(request, "include_topic_authorized_operations", False):
        for topic in topics:
            if topic["name"] is not None:
                operations = authorized(broker.security.authorizer, conn.session, Resource.TOPIC, topic["name"])
                topic["topic_authorized_operations"] = operations
    return {
        **allowed,
        "brokers": [{"node_id": node, "host": conn.advertised[0], "port": conn.advertised[1], "rack": None}],
        "cluster_id": broker.metadata.cluster_id,
        "controller_id": node,
        "topics": topics,
    }


async def _topics(broker: Parts, share: Share, request: Any, version: int) -> list[dict[str, Any]]:
    every = request.topics is None or (version == 0 and not request.topics)
    if not every and version < METADATA_BY_ID_SINCE and any(is_by_id(topic) for topic in request.topics):
        return [{"error_code": ErrorCode.invalid_request, "name": topic.name or ""} for topic in request.topics]
    found = []
    may_create = broker.config.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)
    for wanted in [topic.topic_id for topic in broker.topics.all()] if every else _distinct(request.topics):
        topic = _by_id(broker, wanted) if isinstance(wanted, UUID) else await _by_name(broker, wanted, may_create)
        if every and topic["name"] is None:
            continue  # deleted meanwhile
        found.append(topic)
        partitions = len(topic.get("partitions", ()))
        await share.spent(TOPIC_STEPS + PARTITION_STEPS * partitions, ENTRY_BYTES * partitions)
    return found


def _distinct(topics: Any) -> Iterable[str | UUID]:
    """Return topics by name or id; one that is named again is answered once, as in Kafka."""
    named = ((topic.name, id_in(topic)) for topic in topics)
    return dict.fromkeys(topic_id if name is None or topic_id != NO_ID else name for name, topic_id in named)


def _by_id(broker: Parts, topic_id: UUID) -> dict[str, Any]:
    topic = broker.topics.by_id(topic_id)
    if topic is not None:
        return _known(broker, topic)
    return {"error_code": ErrorCode.unknown_topic_id, "topic_id": topic_id, "name": None}


async def _by_name(broker: Parts, name: str, may_create: bool) -> dict[str, Any]:
    topic = broker.topics.get(name)
    if topic is not None:
        return _known(broker, topic)
    if name_problem(name) is not None:
        return {"error_code": ErrorCode.invalid_topic_exception, "name": name, "topic_id": NO_ID}
    fits = broker.topics.free_partitions() >= broker.config.partitions_default
    may_create = may_create and broker.has_disk_space and fits
    if not may_create or name in INTERNAL:
        return {"error_code": ErrorCode.unknown_topic_or_partition, "name": name, "topic_id": NO_ID}
    topic = await broker.metadata.changes.finish("auto-create", partial(_create, broker, name))
    if topic is None:
        return {"error_code": ErrorCode.unknown_topic_or_partition, "name": name, "topic_id": NO_ID}
    return _known(broker, topic)


async def _create(broker: Parts, name: str) -> Topic | None:
    """Create the topic, which somebody else may have created meanwhile; None if there is no disk space for it."""
    async with broker.metadata.changes.one():
        try:
            return broker.topics.get(name) or await broker.topics.create(name, broker.config.partitions_default, {})
        except NoSpace:
            return None


def _known(broker: Parts, topic: Topic) -> dict[str, Any]:
    node = broker.config.node_id
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [_partition(node, partition) for partition in topic.partitions],
    }


def _partition(node: int, partition: Partition) -> dict[str, Any]:
    """Describe a partition; one that is stopped has no leader, as in Kafka one on a failed disk."""
    stopped = partition.stopped is not None
    return {
        "error_code": ErrorCode.leader_not_available if stopped else ErrorCode.none,
        "partition_index": partition.index,
        "leader_id": -1 if stopped else node,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": [node],
        "isr_nodes": [] if stopped else [node],
        "offline_replicas": [node] if stopped else [],
    }

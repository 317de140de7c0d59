"""The requests of `partition_log`, each about one partition: their fields, for a version of the protocol. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from replicator.model.partition import Partition
from replicator.wire.protocol import Exchange, made

_WAIT = timedelta(milliseconds=500)
_CONSUMER = -1


def metadata_fields(topic: str, exchange: Exchange) -> dict[str, Any]:
    """Make the request that asks who leads the partitions of a topic."""
    asked = made(exchange.types.MetadataRequestTopic, name=topic, topic_id=None)
    return {
        "topics": (asked,),
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def offset_fields(at: Partition, epoch: int, timestamp: int, isolation: int, exchange: Exchange) -> dict[str, Any]:
    """Make the request for the offset of one of the special timestamps. `isolation`: 1: read_committed, 0:
    read_uncommitted.
    """
    partition = made(
        exchange.types.ListOffsetsPartition,
        partition_index=at.partition,
        current_leader_epoch=epoch,
        timestamp=timestamp,
    )
    topic = exchange.types.ListOffsetsTopic(name=at.topic, partitions=(partition,))
    return {"replica_id": _CONSUMER, "isolation_level": isolation, "timeout": _WAIT, "topics": (topic,)}


def fetch_fields(
    asked: tuple[Partition, UUID | None], epoch: int, offset: int, bytes_max: int, isolation: int, exchange: Exchange
) -> dict[str, Any]:
    """Make the request for what stands from an offset on. `asked`: the partition, and its topic's id if it is known."""
    at, topic_id = asked
    partition = made(
        exchange.types.FetchPartition,
        partition=at.partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        partition_max_bytes=bytes_max,
    )
    topic = made(exchange.types.FetchTopic, topic=at.topic, topic_id=topic_id, partitions=(partition,))
    return {
        "replica_id": _CONSUMER,
        "max_wait": _WAIT,  # Kafka returns nothing of a tiered segment that takes longer
        "min_bytes": 1,
        "max_bytes": bytes_max,
        "isolation_level": isolation,
        "topics": (topic,),
        "forgotten_topics_data": (),
    }

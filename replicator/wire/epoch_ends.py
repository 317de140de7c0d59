"""OffsetForLeaderEpoch (KIP-320): where leader epochs end in the logs of partitions, asked of their leader. Sans-I/O.

It goes by topic names in all its versions. A topic that was created again under a name may answer for the one before:
what is read afterwards is read by id (`fetch`), which that one doesn't have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replicator.model.fetches import EpochEnd, EpochQuestion
from replicator.model.partition import Partition
from replicator.wire import protocol
from replicator.wire.protocol import made

API = "offset_for_leader_epoch"
_CONSUMER = -1


def request(client_id: str, version: int, asked: Mapping[Partition, EpochQuestion]) -> bytes:
    """Make a request without its size, as `Connection.send` takes it."""
    exchange = protocol.exchange(API, version)
    topics: dict[str, list[Any]] = {}
    for at, question in asked.items():
        row = made(
            exchange.types.OffsetForLeaderPartition,
            partition=at.partition,
            current_leader_epoch=question.leader_epoch,
            leader_epoch=question.epoch,
        )
        topics.setdefault(at.topic, []).append(row)
    named = (exchange.types.OffsetForLeaderTopic(topic=topic, partitions=tuple(rows)) for topic, rows in topics.items())
    return exchange.write(0, client_id, {"replica_id": _CONSUMER, "topics": tuple(named)})


def read(data: bytes, version: int) -> dict[Partition, EpochEnd]:
    """Read a response, behind its correlation id. Raises BadResponse."""
    _, answer = protocol.exchange(API, version).read(bytes(4) + data)
    return {
        Partition(topic.topic, each.partition): EpochEnd(int(each.error_code), each.leader_epoch, each.end_offset)
        for topic in answer.topics
        for each in topic.partitions
    }

"""ListOffsets (2).

Behaviour: -1 latest (read_committed: the last stable offset), -2 earliest, -3 the record with the highest timestamp, -4
earliest local (as -2: nothing is tiered), -5 latest tiered and -6 earliest that is yet to be tiered (none); else the
first record at or after a time. No offset is returned if the record found is at or above the reader's limit. Records
that can't be decoded although the CRC of their batch is right (the producer wrote them so) are answered INVALID_RECORD;
a corrupt batch stops the partition, with KAFKA_STORAGE_ERROR.
Version notes: v4+ check the leader epoch and return that of the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, HasTopics
from embedded_broker.api.registry import api
from embedded_broker.storage.partition import PartitionStopped
from embedded_broker.wire.responses import Answer
from kafka_records.batch import CorruptBatch

if TYPE_CHECKING:
    from embedded_broker.storage.partition import Partition

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
"""The versions that know these; others are answered UNSUPPORTED_VERSION."""
NONE = (-1, -1)


@api(2, "list_offsets", range(1, 12))
async def handle(broker: HasTopics, conn: Client, request: Any, version: int) -> Answer:
    """Handle ListOffsets: see the behaviour and version notes above."""
    committed = getattr(request, "isolation_level", 0) == 1
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_one(broker.topics.partition(topic.name, each.partition_index), each, committed, version)
                               for each in topic.partitions],
            }
            for topic in request.topics
        ]
    }  # fmt: skip


def _one(partition: Partition | None, wanted: Any, committed: bool, version: int) -> dict[str, Any]:
    error_code = ErrorCode.unknown_topic_or_partition
    if version < SINCE.get(wanted.timestamp, 0):
        error_code = ErrorCode.unsupported_version
    elif partition is not None:
        error_code = partition.check_epoch(getattr(wanted, "current_leader_epoch", -1))
    if partition is None or error_code is not ErrorCode.none:
        return {"partition_index": wanted.partition_index, "error_code": error_code, "timestamp": -1, "offset": -1}
    try:
        offset, timestamp_ms = _find(partition, wanted.timestamp, partition.limit(committed))
    except (PartitionStopped, CorruptBatch) as error:
        stopped = isinstance(error, PartitionStopped)
        error_code = ErrorCode.kafka_storage_error if stopped else ErrorCode.invalid_record
        return {"partition_index": wanted.partition_index, "error_code": error_code, "timestamp": -1, "offset": -1}
    return {
        "partition_index": wanted.partition_index,
        "timestamp": timestamp_ms,
        "offset": offset,
        "leader_epoch": partition.epoch_of(offset) if offset >= 0 else -1,
    }


def _find(partition: Partition, timestamp: int, limit: int) -> tuple[int, int]:
    """(offset, timestamp); -1 for what there isn't."""
    if timestamp == LATEST:
        return limit, -1
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return partition.log_start, -1
    if timestamp == MAX_TIMESTAMP:
        found = partition.max_timestamp()
    elif timestamp < 0:
        return NONE
    else:
        found = partition.offset_for_time(timestamp)
    return NONE if found is None or found[0] >= limit else found

"""ListOffsets (2).

Behaviour: the timestamp -1 asks for the latest offset (read_committed: the last stable offset), -2 for the earliest, -3
for the record with the highest timestamp (KIP-734), -4 for the earliest local offset, which is the earliest one because
nothing is tiered (KIP-405), -5 for the latest tiered offset and -6 for the earliest one that is not tiered yet, which
are never there. Any other timestamp asks for the first record at or after it. No offset is returned if the record found
is at or above the reader's limit. Records that can't be decoded although the CRC of their batch is right (the producer
wrote them so) are answered INVALID_RECORD; a corrupt batch stops the partition, with KAFKA_STORAGE_ERROR. A partition
that is named more than once is answered once, with INVALID_REQUEST.
Version notes: v4+ check the leader epoch and return that of the record.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.api.time_search import TimeSearch
from embedded_broker.storage.partition import PartitionStopped
from embedded_broker.wire.responses import Answer
from kafka_records.batch import CorruptBatch

if TYPE_CHECKING:
    from embedded_broker.runtime.fair_share import Share
    from embedded_broker.storage.partition import Partition

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
"""The versions that know these; others are answered UNSUPPORTED_VERSION."""
NONE = (-1, -1)
PARTITION_STEPS = 3


@api(2, "list_offsets", range(1, 12))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle ListOffsets: see the behaviour and version notes above."""
    search = _Search(broker, conn.share(), getattr(request, "isolation_level", 0) == 1, version)
    times = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    answers: dict[str, dict[int, dict[str, Any]]] = {}
    for topic in request.topics:
        answered = answers.setdefault(topic.name, {})
        for each in topic.partitions:
            index = each.partition_index
            if times[topic.name, index] > 1:
                answered[index] = _refusal(index, ErrorCode.invalid_request)
            else:
                answered[index] = await search.one(broker.topics.partition(topic.name, index), each)
            await search.share.spent(PARTITION_STEPS)
    return {"topics": [{"name": name, "partitions": list(answered.values())} for name, answered in answers.items()]}


def _refusal(index: int, error_code: ErrorCode) -> dict[str, Any]:
    return {"partition_index": index, "error_code": error_code, "timestamp": -1, "offset": -1}


class _Search:
    """Finds offsets for one request."""

    def __init__(self, broker: Parts, share: Share, committed: bool, version: int) -> None:
        """`committed`: for a read_committed reader."""
        self._committed, self._version, self.share = committed, version, share
        self._times = TimeSearch(broker.batch_checks, self.share)

    async def one(self, partition: Partition | None, wanted: Any) -> dict[str, Any]:
        """Return the answer for one partition."""
        error_code = ErrorCode.unknown_topic_or_partition
        if self._version < SINCE.get(wanted.timestamp, 0):
            error_code = ErrorCode.unsupported_version
        elif partition is not None:
            error_code = partition.check_epoch(getattr(wanted, "current_leader_epoch", -1))
        if partition is None or error_code is not ErrorCode.none:
            return _refusal(wanted.partition_index, error_code)
        try:
            offset, timestamp_ms = await self._find(partition, wanted.timestamp)
        except PartitionStopped:
            return _refusal(wanted.partition_index, ErrorCode.kafka_storage_error)
        except CorruptBatch:
            return _refusal(wanted.partition_index, ErrorCode.invalid_record)
        return {
            "partition_index": wanted.partition_index,
            "timestamp": timestamp_ms,
            "offset": offset,
            "leader_epoch": partition.epoch_of(offset) if offset >= 0 else -1,
        }

    async def _find(self, partition: Partition, timestamp: int) -> tuple[int, int]:
        """Find (offset, timestamp); -1 for what there isn't."""
        limit = partition.limit(self._committed)
        if timestamp == LATEST:
            return limit, -1
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return partition.log_start, -1
        if timestamp == MAX_TIMESTAMP:
            found = await self._times.latest(partition)
        elif timestamp < 0:
            return NONE
        else:
            found = await self._times.first_at(partition, timestamp, partition.log_start)
        return NONE if found is None or found[0] >= limit else found

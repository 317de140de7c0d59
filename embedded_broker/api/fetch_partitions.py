"""One partition of a Fetch request: how much there is to read, and what is read. Used by the handler of Fetch."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.storage.log.backlog import Backlog
from embedded_broker.storage.partition import Partition, PartitionStopped


class FetchedPartition:
    """One partition that is read; `partition` is None when it can't be, because of `error_code`."""

    __slots__ = ("_backlog", "_committed", "_data", "_error_code", "counted_bytes", "partition")

    def __init__(self, data: Any, partition: Partition | None, committed: bool, error_code: ErrorCode) -> None:
        """`data`: the request's entry for it; `committed`: for a read_committed reader."""
        self.partition = partition
        self.counted_bytes = 0
        """What `count` has returned last."""
        self._data, self._committed, self._error_code = data, committed, error_code
        self._backlog: Backlog | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the response is an error."""
        return self._error() is not ErrorCode.none

    def _error(self) -> ErrorCode:
        """Say why the partition can't be read now."""
        if self._error_code is not ErrorCode.none or self.partition is None:
            return self._error_code
        if self.partition.closed:
            return ErrorCode.unknown_topic_or_partition
        if self.partition.stopped is not None:
            return ErrorCode.kafka_storage_error
        if not self.partition.log_start <= self._data.fetch_offset <= self.partition.log_end:
            return ErrorCode.offset_out_of_range
        return ErrorCode.none

    @property
    def has_data(self) -> bool:
        """Whether there is something to read."""
        partition = self.partition
        return partition is not None and self._data.fetch_offset < partition.limit(self._committed)

    @property
    def bytes_max(self) -> int:
        """What the request wants of it at most."""
        return int(self._data.partition_max_bytes)

    @property
    def batch_bytes_max(self) -> int:
        """How large a batch of it may be."""
        return 0 if self.partition is None else self.partition.config.message_bytes_max

    def unread_bytes(self, enough: int) -> int:
        """Count what there is to read; not beyond `enough`."""
        partition, offset = self.partition, self._data.fetch_offset
        if partition is None:
            return 0
        self._backlog = self._backlog or Backlog(partition.log, offset)
        try:
            return min(partition.count(self._backlog, partition.limit(self._committed)), enough)
        except PartitionStopped:
            return enough  # found by `read`, too

    def count(self, enough: int) -> int:
        """Count the bytes that a response would have of it, as Kafka's DelayedFetch counts them; not beyond
        `enough`.
        """
        self.counted_bytes = 0
        partition, offset = self.partition, self._data.fetch_offset
        if partition is not None and offset < partition.limit(self._committed):
            self.counted_bytes = 1  # at least one batch, whatever partition_max_bytes says
            if enough > 1:
                self.counted_bytes = max(min(self.unread_bytes(enough), self._data.partition_max_bytes), 1)
        return self.counted_bytes

    def read(self, left_bytes: int, first: bool) -> dict[str, Any]:
        """Read the response for the partition. Only the first batch of a response may be larger than what is left."""
        error_code, partition, offset = self._error(), self.partition, self._data.fetch_offset
        if partition is None or error_code is not ErrorCode.none:
            return self._nothing(error_code)
        limit = partition.limit(self._committed)
        size = min(self._data.partition_max_bytes, left_bytes)
        records = b""
        if offset < limit and (size > 0 or first):
            try:
                records = partition.read(offset, max(size, 1), limit)
            except PartitionStopped:
                return self._nothing(ErrorCode.kafka_storage_error)
            if not first and len(records) > size:
                records = b""
        aborted = None
        if self._committed:
            found = partition.aborted_in(offset, records)
            aborted = [{"producer_id": producer_id, "first_offset": since} for producer_id, since in found]
        return {
            "partition_index": self._data.partition,
            "high_watermark": partition.high_watermark,
            "last_stable_offset": limit if self._committed else partition.last_stable,
            "log_start_offset": partition.log_start,
            "aborted_transactions": aborted,
            "records": records,
        }

    def _nothing(self, error_code: ErrorCode) -> dict[str, Any]:
        known = self.partition if error_code is ErrorCode.offset_out_of_range else None
        return {
            "partition_index": self._data.partition,
            "error_code": error_code,
            "high_watermark": -1 if known is None else known.high_watermark,
            "log_start_offset": -1 if known is None else known.log_start,
            "records": b"",
            "aborted_transactions": None,
        }

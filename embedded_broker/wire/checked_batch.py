"""A batch that may be appended to a log. `produce` makes it of what clients send, as do those who write internal logs;
`storage` stamps and appends it. Sans-I/O."""

from __future__ import annotations

from typing import NamedTuple

from kafka_records.batch import BatchHeader, Buffer, read_header, set_create_time, set_max_timestamp, stamp


class CheckedBatch(NamedTuple):
    """One whole batch that may be appended, with its header, which is read once.

    A client's comes from `produce.append_validation`, one of the broker's own from `of`. `Partition` stamps it and
    gives it to its log.

    A large one is a view of the request that it came in, of which nothing else is made: that is changed in its place,
    as is one that the broker has made itself. Of all others copies are changed.
    """

    header: BatchHeader
    data: Buffer

    @classmethod
    def of(cls, data: Buffer) -> CheckedBatch:
        """Make a checked batch of one that the broker has made itself, which belongs to the result from now on."""
        return cls(read_header(data), memoryview(data) if isinstance(data, bytearray) else data)

    def stamped(self, base_offset: int, leader_epoch: int, append_time_ms: int | None = None) -> CheckedBatch:
        """Return the batch with the offset and leader epoch that the log gives; with `append_time_ms` also
        LogAppendTime.
        """
        data = self._changeable()
        stamp(data, base_offset, leader_epoch, append_time_ms)
        if append_time_ms is not None:
            return CheckedBatch.of(data)
        header = self.header
        return CheckedBatch(BatchHeader(base_offset, header.batch_length, leader_epoch, *header[3:]), data)

    def with_max_timestamp(self, timestamp_ms: int) -> CheckedBatch:
        """Return the batch with a header that says that this is the highest timestamp of its records."""
        data = self._changeable()
        set_max_timestamp(data, timestamp_ms)
        return CheckedBatch.of(data)

    def with_create_time(self) -> CheckedBatch:
        """Return the batch without LogAppendTime: the records' own times hold."""
        data = self._changeable()
        set_create_time(data)
        return CheckedBatch.of(data)

    def _changeable(self) -> bytearray | memoryview:
        return self.data if isinstance(self.data, memoryview) and not self.data.readonly else bytearray(self.data)

"""How much there is to read from an offset on; counted from positions, without reading it. Used by waiting fetches."""

from __future__ import annotations

from embedded_broker.storage.log.partition_log import PartitionLog
from embedded_broker.storage.log.segment import Segment

PAST_SEGMENT = 1 << 62
"""More than anybody waits for: a read ends with its segment, so waiting would bring nothing."""


class Backlog:
    """What a reader at one offset has not read yet."""

    def __init__(self, log: PartitionLog, offset: int) -> None:
        self._log, self._offset = log, offset
        self._segment: Segment | None = None
        self._begin = 0

    def count(self, up_to: int) -> int:
        """Count the bytes of the batches from the offset to below `up_to`; PAST_SEGMENT if they don't end in its
        segment.

        Costs two lookups, however many bytes there are. Raises CorruptLog.
        """
        if self._offset >= up_to:
            return 0
        segment = self._log.segment_of(self._offset)
        if segment is not self._segment:
            self._begin = segment.position_of(max(self._offset, segment.base_offset))
            self._segment = segment
        return PAST_SEGMENT if up_to > segment.end_offset else segment.position_of(up_to) - self._begin

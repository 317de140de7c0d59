"""Reads a partition of the flow's map topic raw: blocks of open and aborted transactions, and markers.

Implements `lane.ports.MapLog`, made by the flow's wiring. librdkafka shows no markers, and reading committed records
would wait for other lanes' open transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kafka_records.batch import CorruptBatch
from kafka_records.control import marker_commits
from kafka_records.fetched import FetchedBatch, OldMessage, read_batches
from kafka_records.records import decode
from replicator.config import Flow
from replicator.model.errors import ReplicatorError, Retriable
from replicator.model.partition import Partition
from replicator.offset_map.newest import MapItem, MapMarker, MapRecord, SectionKey
from replicator.offset_map.varints import BadBlock
from replicator.wire.holes import OffsetOutOfRange
from replicator.wire.map_index import index_of
from replicator.wire.partition_log import PartitionLog

FETCH_BYTES = 1024 * 1024
WAIT_MS_MAX = 5_000
"""No start of a lane waits longer for it: the map is not needed to copy."""
BLOCK_BYTES_MAX = 16 * 1024 * 1024  # of one batch, decompressed


class WireMapLog:
    """Of one flow's target. Used by one thread; connects anew for each partition, but for the one that it was connected
    for. Close it."""

    def __init__(self, flow: Flow) -> None:
        limits = flow.limits
        waits = {name: min(WAIT_MS_MAX, getattr(limits, name)) for name in ("request_timeout_ms", "connect_timeout_ms")}
        self._flow = flow.model_copy(update={"limits": limits.model_copy(update=waits)})
        self._ready: tuple[Partition, str, PartitionLog] | None = None

    def connect(self, at: Partition, topic_id: str) -> None:
        """Connect to a partition's leader, for the first `items` of it. What is wrong with that, it meets again."""
        log = PartitionLog(self._flow, self._flow.target, at, topic_id)
        try:
            log.connect()
        except ReplicatorError:
            return
        self._ready = at, topic_id, log

    def close(self) -> None:
        """Let go of the connection; a later question connects again."""
        if self._ready is not None:
            self._ready[2].close()
            self._ready = None

    def items(self, at: Partition, topic_id: str, first: int, end: int) -> Iterator[MapItem]:
        """See `lane.ports.MapLog`."""
        with self._log(at, topic_id) as log:
            offset = first
            while offset < end:
                try:
                    data = log.fetch(offset, FETCH_BYTES)
                    batches = list(read_batches(data or b""))
                except OffsetOutOfRange:
                    return
                except CorruptBatch as error:
                    raise BadBlock(f"{at} at offset {offset}: {error}") from error
                if not batches or batches[-1].last_offset < offset:
                    raise Retriable(f"{at} shows nothing at offset {offset}, and ends at {end}")
                for batch in batches:
                    yield from items_of(at, batch, offset)
                offset = batches[-1].last_offset + 1

    def _log(self, at: Partition, topic_id: str) -> PartitionLog:
        """Return the log that is connected, where it is this partition's; else make one."""
        ready = self._ready
        if ready is None or ready[:2] != (at, topic_id):
            return PartitionLog(self._flow, self._flow.target, at, topic_id)
        self._ready = None
        return ready[2]

    def indexed_ends(self, topic_id: str, keys: Collection[SectionKey]) -> dict[SectionKey, int]:
        """See `lane.ports.MapLog`."""
        found: dict[SectionKey, int] = {}
        with index_of(self._flow) as (index, root):
            if root is None or not root.is_of(topic_id):
                return {}
            for _, entries in index.entries(root, keys):
                found |= {key: entry.after for key, entry in entries.items() if entry is not None and entry.pages}
        return found


def items_of(at: Partition, batch: FetchedBatch | OldMessage, first: int) -> Iterator[MapItem]:
    """Yield what a batch of `at` holds at or above the offset `first`. Raises BadBlock for what no lane has written."""
    if isinstance(batch, OldMessage):
        raise BadBlock(f"{at}: a message of an old format")
    if batch.last_offset < first:
        return
    producer_id = batch.header.producer_id
    try:
        if batch.header.is_control:
            yield MapMarker(producer_id, marker_commits(batch.data))
            return
        records = list(decode(batch.data, BLOCK_BYTES_MAX))
    except CorruptBatch as error:  # whoever may write there can put anything into it
        raise BadBlock(f"{at} at offset {batch.header.base_offset}: {error}") from error
    for record in records:
        if record.offset >= first:
            yield MapRecord(producer_id, record.value or b"")

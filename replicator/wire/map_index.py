"""Reads the index of the flow's offset map: its newest root, directories, pages. Used by all that read the map, and by
the one that writes it.

Every method raises Unreachable, NotAllowed, Retriable, Unsupported, and Incident as of `PartitionLog`; `IndexMoved`
where what was asked for is there no longer: the root is to be read again. Nothing here is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kafka_records.batch import CorruptBatch
from kafka_records.committed import committed_batches
from kafka_records.fetched import FetchedBatch, read_batches
from kafka_records.records import decode
from replicator.config import Flow
from replicator.model import names
from replicator.model.errors import Incident, Retriable, TopicMissing
from replicator.model.partition import Partition
from replicator.offset_map.block import NewerBlock
from replicator.offset_map.directory import CHANGES, IndexRoot, PageDirectory, PartitionEntry, decode_root, kind_of
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.page import MapPage, decode_page
from replicator.offset_map.topic import ROOTS, index_partition
from replicator.offset_map.varints import BadBlock
from replicator.wire.committed_log import CommittedLog, corrupt
from replicator.wire.holes import OffsetOutOfRange
from replicator.wire.partition_log import PartitionLog

FETCH_BYTES, PAGE_FETCH_BYTES = 1024 * 1024, 256 * 1024
BATCH_BYTES_MAX = 16 * 1024 * 1024  # decompressed
ROOTS_BACK = (32, 1024, 2**62)


class IndexMoved(Retriable):
    """What was asked for has been deleted: since the root was read the index has been written anew there."""


class MapIndexLog:
    """Of one flow's target. Used by one thread; a context manager that closes its connections."""

    def __init__(self, flow: Flow, topic: str, topic_id: str) -> None:
        self._flow, self._topic, self._topic_id = flow, topic, topic_id
        self._logs: dict[int, PartitionLog] = {}
        self._patience_s = flow.limits.request_timeout_ms / 1000
        self._near: tuple[int, dict[int, bytes]] = (-1, {})  # a partition, and what was fetched of it last

    def __enter__(self) -> MapIndexLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections; a later question connects again."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    def _log(self, partition: int) -> PartitionLog:
        if partition not in self._logs:
            at = Partition(self._topic, partition)
            self._logs[partition] = PartitionLog(self._flow, self._flow.target, at, self._topic_id)
        return self._logs[partition]

    def root(self) -> IndexRoot | None:
        """Read the newest one that is committed; None where there is none.

        Transactions that are open when it is called have not ended then: a writer fences the others first.
        """
        log = self._log(ROOTS)
        end, start = log.stable_end(), log.start()
        for back in ROOTS_BACK:
            first, found = max(start, end - back), b""
            for _, found in self._committed(ROOTS, first, end):  # noqa: B007 - the last one counts
                pass
            if found:
                try:
                    return decode_root(found)
                except BadBlock as error:
                    raise self._unreadable(ROOTS, error) from error
            if first == start:
                break
        return None

    def directory(self, partition: int, root: IndexRoot) -> tuple[PageDirectory, int, int]:
        """Read which pages a partition of the index has; bytes and records that were read for that."""
        directory, size, records = PageDirectory(), 0, 0
        it = root.partitions[partition]
        for _, value in self._committed(partition, it.first, it.end):
            size, records = size + len(value), records + 1
            if kind_of(value) != CHANGES:
                continue
            try:
                directory.take(value)
            except BadBlock as error:
                raise self._unreadable(partition, error) from error
        if it.first < it.end and not directory.begun:
            raise IndexMoved(f"{self._topic}[{partition}] has no directory at offset {it.first} any more")
        return directory, size, records

    def entries(
        self, root: IndexRoot, keys: Iterable[SectionKey]
    ) -> Iterator[tuple[int, dict[SectionKey, PartitionEntry | None]]]:
        """Read what there is of source partitions; with it in which partition of the index."""
        wanted: defaultdict[int, list[SectionKey]] = defaultdict(list)
        for key in keys:
            wanted[index_partition(key)].append(key)
        for number, of_partition in wanted.items():
            entries = self.directory(number, root)[0].entries
            yield number, {key: entries.get(key) for key in of_partition}

    def page(self, partition: int, offset: int) -> bytes:
        """Read the value of a page."""
        if self._near[0] != partition or offset not in self._near[1]:
            self._near = partition, dict(self._fetched(partition, offset))
        value = self._near[1].get(offset)
        if value is None:
            raise IndexMoved(f"{self._topic}[{partition}] has no page at offset {offset} any more")
        return value

    def decoded_page(self, partition: int, offset: int) -> MapPage:
        """Read a page."""
        try:
            return decode_page(self.page(partition, offset))
        except BadBlock as error:
            raise self._unreadable(partition, error, offset) from error

    def _fetched(self, partition: int, offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield what one fetch has from an offset on, which was stable when the root was read."""
        at = Partition(self._topic, partition)
        try:
            found = self._log(partition).fetch_committed(offset, PAGE_FETCH_BYTES)
            batches = list(committed_batches(read_batches(found.records), found.aborted))
        except OffsetOutOfRange:
            return
        except CorruptBatch as error:
            raise corrupt(at, offset, error) from error
        if not found.records:
            raise Retriable(f"{at} shows nothing at offset {offset}, and was stable behind it")
        for batch in batches:
            if isinstance(batch, FetchedBatch):
                yield from self._values(at, batch)

    def _committed(self, partition: int, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield committed values in [first, end), which are stable, or will be soon: those who write them wait for
        that.
        """
        log, at = self._log(partition), Partition(self._topic, partition)
        source = CommittedLog(at, log, patience_s=self._patience_s, fetch_bytes=FETCH_BYTES)
        for batch in source.batches(first, end):
            for offset, value in self._values(at, batch):
                if first <= offset < end:
                    yield offset, value

    def _values(self, at: Partition, batch: FetchedBatch) -> Iterator[tuple[int, bytes]]:
        try:
            records = decode(batch.data, BATCH_BYTES_MAX)
        except CorruptBatch as error:
            raise corrupt(at, batch.first_offset, error) from error
        for record in records:
            yield record.offset, record.value or b""

    def _unreadable(self, partition: int, error: BadBlock, offset: int = -1) -> Incident:
        name = error.incident if isinstance(error, NewerBlock) else "map_lost"
        detail = str(error) if isinstance(error, NewerBlock) else f"its index can't be read: {error}"
        return Incident(name, detail, topic=self._topic, partition=partition, offset=offset)


@contextmanager
def index_of(flow: Flow) -> Iterator[tuple[MapIndexLog, IndexRoot | None]]:
    """Yield the flow's index, whatever topic has its name now, and its newest root; None where there is none, or no
    topic.
    """
    with MapIndexLog(flow, names.offsets_index_topic(flow.name), "") as index:
        try:
            root = index.root()
        except TopicMissing:
            root = None
        yield index, root

"""Reads the committed records of a range of one partition, batch by batch, in bounded memory. Used by `proof`.

librdkafka doesn't say which offsets hold no record and why; here each batch comes as it is stored. At any time one
fetch is kept in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from kafka_records.batch import CorruptBatch
from kafka_records.committed import committed_batches
from kafka_records.fetched import FetchedBatch, OldMessage, read_batches
from replicator.backoff import Backoff
from replicator.model.errors import Incident, Retriable, Unsupported
from replicator.model.partition import Partition
from replicator.wire.holes import OffsetOutOfRange
from replicator.wire.partition_log import CommittedFetch

FETCH_BYTES = 2 * 1024 * 1024
_AGAIN_FIRST_S, _AGAIN_MAX_S = 0.05, 1.0

Passed = Callable[[int], None]
"""Is told up to which offset the partition was read."""


class CommittedSource(Protocol):
    """One partition's log, as its leader shows it: `PartitionLog`."""

    def start(self) -> int:
        """Return the log start offset, now."""

    def fetch_committed(self, offset: int, bytes_max: int) -> CommittedFetch:
        """See `PartitionLog`."""


class CommittedLog:
    """Of one partition. `patience_s`: how long a broker may return nothing where there must be something."""

    def __init__(
        self, at: Partition, log: CommittedSource, *, patience_s: float, fetch_bytes: int = FETCH_BYTES
    ) -> None:
        self._at, self._log = at, log
        self._patience_s, self._fetch_bytes = patience_s, fetch_bytes

    def batches(self, first: int, end: int, passed: Passed | None = None) -> Iterator[FetchedBatch]:
        """Yield the committed batches that have offsets in [first, end), which was stable when it was asked for.

        Batches at both ends may reach beyond them. What retention removes meanwhile is passed over.

        Raises:
            Incident: batch_corrupt, topic_gone.
            Unsupported: a message format before v2.
            Retriable: nothing is returned for longer than `patience_s`: the log ends before `end` now, or its last
                stable offset has gone back.
            Unreachable, NotAllowed: see `PartitionLog`.
        """
        offset = first
        while offset < end:
            batches, next_offset = self._fetch(offset, end)
            for batch in batches:
                if batch.last_offset >= offset and batch.first_offset < end:
                    yield batch
            offset = max(next_offset, offset)
            if passed is not None:
                passed(min(offset, end))

    def _fetch(self, offset: int, end: int) -> tuple[list[FetchedBatch], int]:
        """Fetch the committed batches from an offset on, and at which offset the next ones may be."""
        backoff, until_s = Backoff(_AGAIN_FIRST_S, _AGAIN_MAX_S), time.monotonic() + self._patience_s
        while True:
            try:
                found = self._log.fetch_committed(offset, self._fetch_bytes)
            except OffsetOutOfRange:
                start = self._log.start()
                if start > offset:
                    return [], start
                raise Retriable(f"{self._at} ends before offset {end} now, at which it was stable before") from None
            if found.records:
                return self._decoded(offset, found)
            pause_s = backoff.next_s()
            if time.monotonic() + pause_s >= until_s:
                raise Retriable(f"{self._at} shows nothing at offset {offset}, and was stable up to {end}")
            time.sleep(pause_s)

    def _decoded(self, offset: int, found: CommittedFetch) -> tuple[list[FetchedBatch], int]:
        try:
            batches = list(read_batches(found.records))
            if not batches or batches[-1].last_offset < offset:
                raise CorruptBatch(f"none of {len(found.records)} bytes reaches offset {offset}")
            kept = [batch for batch in committed_batches(batches, found.aborted) if not isinstance(batch, OldMessage)]
        except CorruptBatch as error:
            raise corrupt(self._at, offset, error) from error
        if any(isinstance(batch, OldMessage) for batch in batches):
            raise Unsupported(f"{self._at} has messages of a format before v2 at offset {offset}")
        return kept, batches[-1].last_offset + 1


def corrupt(at: Partition, offset: int, error: CorruptBatch) -> Incident:
    """Make the incident of a batch that isn't sound, at its offset, or behind `offset` where that isn't known."""
    where = error.offset if error.offset >= 0 else offset
    detail = f"a batch isn't sound: {error}"
    return Incident("batch_corrupt", detail, topic=at.topic, partition=at.partition, offset=where)

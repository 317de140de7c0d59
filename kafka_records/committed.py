"""Which batches of a read_committed Fetch response hold committed records. Sans-I/O.

A broker returns markers and the batches of aborted transactions too, up to the last stable offset, and names the
aborted ones: producer id and first offset of each that overlaps what it returns (org.apache.kafka.clients.consumer.
internals.CompletedFetch). The list is that of one response and says nothing of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_records.control import ABORT, marker_kind
from kafka_records.fetched import FetchedBatch, OldMessage

Aborted = tuple[int, int]
"""Producer id and first offset of an aborted transaction."""


def committed_batches(
    batches: Iterable[FetchedBatch | OldMessage], aborted: Iterable[Aborted]
) -> Iterator[FetchedBatch | OldMessage]:
    """Yield the batches of one response without markers and without aborted transactions.

    Raises CorruptBatch for a control batch that is none; and what `batches` raises.
    """
    waiting = sorted(aborted, key=lambda one: one[1], reverse=True)
    aborting: set[int] = set()
    for batch in batches:
        if isinstance(batch, OldMessage):
            yield batch
            continue
        header = batch.header
        while waiting and waiting[-1][1] <= header.last_offset:
            aborting.add(waiting.pop()[0])
        if header.is_control:
            if header.producer_id in aborting and header.record_count and marker_kind(batch.data) == ABORT:
                aborting.discard(header.producer_id)
            continue
        if not header.is_transactional or header.producer_id not in aborting:
            yield batch

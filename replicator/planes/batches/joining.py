"""Small batches as larger ones, without decoding their records. Sans-I/O. Called by `merge`, which decodes where this
can't.

Invariant: a record keeps all its bytes behind its offset, and its time; batches keep their codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafka_records.batch import MAGIC, BatchHeader, CorruptBatch, read_header
from kafka_records.fetched import FetchedBatch
from kafka_records.joined import joined
from kafka_records.rebuild import recompressed
from kafka_records.records import Body, body_of
from replicator.model.partition import Span
from replicator.planes.batches.committed import SelectedBatch
from replicator.planes.batches.decoding import WritableBatch
from replicator.planes.batches.rewrite import why_decoded


@dataclass(frozen=True, slots=True)
class JoinLimits:
    """`batch_bytes_max`: what the target takes; `decoded_bytes_max`: what is decompressed at a time; `codec`: that of
    what is made (None: the source's)."""

    batch_bytes_max: int
    decoded_bytes_max: int
    codec: int | None = None


class _Part(NamedTuple):
    batch: FetchedBatch
    body: Body


def passed(selected: SelectedBatch, batch_bytes_max: int) -> WritableBatch | None:
    """Return the batch as it is, if it can be passed on so."""
    batch = selected.batch
    if not selected.whole or not isinstance(batch, FetchedBatch):
        return None
    if why_decoded(batch.header, batch_bytes_max) is not None:
        return None
    return _as_it_is(batch)


def _as_it_is(batch: FetchedBatch) -> WritableBatch:
    header = batch.header
    return WritableBatch(header, batch.data, ((header.base_offset, header.last_offset + 1),), header.leader_epoch)


def join(waiting: Sequence[SelectedBatch], limits: JoinLimits) -> list[WritableBatch] | None:
    """Return batches with the records of all that wait, which are of one kind; None: they must be decoded, one of them
    at least."""
    if len(waiting) == 1:
        alone = passed(waiting[0], limits.batch_bytes_max)
        return None if alone is None else [alone]
    found: list[WritableBatch] = []
    parts: list[_Part] = []
    size = 0
    for selected in waiting:
        batch = selected.batch
        if not selected.whole or not isinstance(batch, FetchedBatch):
            return None
        try:
            body = body_of(batch.header, batch.data, limits.decoded_bytes_max)
        except CorruptBatch:
            return None
        if size + len(body) > limits.decoded_bytes_max:
            if (made := _made(parts, limits)) is None:
                return None
            found += made
            parts, size = [], 0
        parts.append(_Part(batch, body))
        size += len(body)
    made = _made(parts, limits)
    return None if made is None else found + made


def _made(parts: Sequence[_Part], limits: JoinLimits) -> list[WritableBatch] | None:
    """Make one batch, or two of each half where it would be too large."""
    if len(parts) < 2:
        return [_as_it_is(part.batch) for part in parts]
    found = joined([(part.batch.header, part.body) for part in parts])
    if found is None:
        return None
    first = parts[0].batch.header
    codec = first.compression if limits.codec is None else limits.codec
    count = sum([part.batch.header.record_count for part in parts])
    plain = BatchHeader(
        0, 0, -1, MAGIC, 0, 0, count - 1, first.base_timestamp, found.max_timestamp, -1, -1, -1, count
    )  # fmt: skip
    data = recompressed(plain, found.body, codec)
    if len(data) <= limits.batch_bytes_max:
        return [WritableBatch(read_header(data), data, _runs(parts), first.leader_epoch)]
    middle = len(parts) // 2
    before, after = _made(parts[:middle], limits), _made(parts[middle:], limits)
    return None if before is None or after is None else before + after


def _runs(parts: Sequence[_Part]) -> tuple[Span, ...]:
    runs: list[Span] = []
    first, end = parts[0].batch.first_offset, parts[0].batch.first_offset
    for (header, _), _ in parts:
        if header.base_offset != end:
            runs.append((first, end))
            first = header.base_offset
        end = header.base_offset + header.last_offset_delta + 1
    return (*runs, (first, end))

"""Small batches as larger ones, without decoding their records. Sans-I/O. Called by `merge`, which decodes where this
can't.

Invariant: a record keeps all its bytes behind its offset, and its time; batches keep their codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafka_records.batch import HEADER_BYTES, Buffer, CorruptBatch, read_header
from kafka_records.fetched import FetchedBatch
from kafka_records.joined import JoinPart, join_part, joined
from kafka_records.rebuild import recompressed
from kafka_records.records import body_of
from kafka_records.small_batches import SmallBatches
from replicator.model.partition import Span
from replicator.planes.batches.committed import Selected, SelectedBatch, one_by_one
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
    selected: FetchedBatch | SmallBatches
    records: JoinPart
    span: Span
    codec: int
    leader_epoch: int


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


def join(waiting: Sequence[Selected], limits: JoinLimits) -> list[WritableBatch] | None:
    """Return batches with the records of all that wait, which are of one kind; None: they must be decoded, one of them
    at least."""
    if len(waiting) == 1 and isinstance(waiting[0], SelectedBatch):
        alone = passed(waiting[0], limits.batch_bytes_max)
        return None if alone is None else [alone]
    found: list[WritableBatch] = []
    parts: list[_Part] = []
    size = 0
    for selected in waiting:
        part = _part(selected, limits)
        if part is None:
            return None
        further = len(part.records.data)
        if size + further > limits.decoded_bytes_max:
            if (made := _made(parts, limits)) is None:
                return None
            found += made
            parts, size = [], 0
        parts.append(part)
        size += further
    made = _made(parts, limits)
    return None if made is None else found + made


def _part(selected: Selected, limits: JoinLimits) -> _Part | None:
    """Return the records of what was selected, decompressed; None: they aren't joined."""
    if isinstance(selected, SmallBatches):
        records = JoinPart(bytes(selected.data), selected.rows)
        return _Part(selected, records, (selected.first_offset, selected.next_offset), 0, selected.leader_epoch)
    batch = selected.batch
    if not selected.whole or not isinstance(batch, FetchedBatch):
        return None
    header = batch.header
    try:
        joining = join_part(header, body_of(header, batch.data, limits.decoded_bytes_max))
    except CorruptBatch:
        return None
    span = header.base_offset, header.last_offset + 1
    return None if joining is None else _Part(batch, joining, span, header.compression, header.leader_epoch)


def _made(parts: Sequence[_Part], limits: JoinLimits) -> list[WritableBatch] | None:
    """Make one batch, or two of each half where it would be too large."""
    if not parts:
        return []
    if len(parts) == 1 and isinstance(parts[0].selected, FetchedBatch):
        return [_as_it_is(parts[0].selected)]
    data: Buffer | None = joined([part.records for part in parts])
    if data is None:
        return None
    first = parts[0]
    codec = first.codec if limits.codec is None else limits.codec
    if codec:
        data = recompressed(read_header(data), memoryview(data)[HEADER_BYTES:], codec)
    if len(data) <= limits.batch_bytes_max:
        return [WritableBatch(read_header(data), data, _runs(parts), first.leader_epoch)]
    singles: list[_Part] = []
    for part in parts:
        of_part = [part] if isinstance(part.selected, FetchedBatch) else _singles(part.selected, limits)
        if of_part is None:
            return None
        singles += of_part
    middle = len(singles) // 2
    before, after = _made(singles[:middle], limits), _made(singles[middle:], limits)
    return None if before is None or after is None else before + after


def _singles(few: SmallBatches, limits: JoinLimits) -> list[_Part] | None:
    """Return a part of each batch."""
    found: list[_Part] = []
    for each in one_by_one(few):
        if (single := _part(each, limits)) is None:
            return None
        found.append(single)
    return found


def _runs(parts: Sequence[_Part]) -> tuple[Span, ...]:
    runs: list[Span] = []
    first = end = parts[0].span[0]
    for part in parts:
        begin, behind = part.span
        if begin != end:
            runs.append((first, end))
            first = begin
        end = behind
    return (*runs, (first, end))

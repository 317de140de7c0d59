"""Which fields of altered records differ: they are read again, of both sides. Used by `local`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from kafka_records.records import Record, encode_with_headers
from replicator.offset_map.verdicts import MapComparison, MapVerdict
from replicator.proof import verdicts
from replicator.proof.excerpts import Fields, side_by_side
from replicator.proof.outcome import OffsetRange
from replicator.proof.partition_side import PartitionSide

ALTERED_MAX, SHOWN_MAX = 20_000, 5
"""Altered records of a partition of which the fields are compared; of which they are shown side by side."""
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Of records that may be shown, of one side."""


@dataclass(frozen=True, slots=True)
class AlteredFields:
    """`differing`: names of the fields by source offset, with commas between them; `records`: both sides of the first
    ones."""

    differing: dict[int, str]
    records: dict[int, tuple[Record, Record]]

    def shown(self, ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Return the ranges, with the fields of some of their first records."""
        found, left = list[OffsetRange](), SHOWN_MAX
        for one in ranges:
            pair = self.records.get(one.source_offsets[0]) if one.source_offsets is not None else None
            if one.verdict == verdicts.ALTERED and pair is not None and left:
                left -= 1
                one = replace(one, fields_of_first=side_by_side(*map(_fields, pair)))
            found.append(one)
        return tuple(found)


def altered_fields(found: MapComparison, source: PartitionSide, target: PartitionSide) -> AlteredFields:
    """Read the altered records of a comparison again."""
    pairs = [
        (one.source, one.target)
        for one in found.findings
        if one.verdict in (MapVerdict.ALTERED, MapVerdict.SOURCE_CHANGED)
        and one.source is not None
        and one.target is not None
    ][:ALTERED_MAX]
    here, here_kept = _read(source.records([at for at, _ in pairs]))
    there, there_kept = _read(target.records(sorted(place for _, place in pairs)))
    differing = {
        at: ",".join(
            name for name, one, other in zip(verdicts.FIELDS, here[at], there[place], strict=True) if one != other
        )
        for at, place in pairs
        if at in here and place in there
    }
    both = {at: (here_kept[at], there_kept[place]) for at, place in pairs if at in here_kept and place in there_kept}
    return AlteredFields(differing, both)


def _read(records: Iterable[Record]) -> tuple[dict[int, tuple[object, ...]], dict[int, Record]]:
    """Read what each record's fields are, in few bytes, by offset; and the first records."""
    fields: dict[int, tuple[object, ...]] = {}
    kept: dict[int, Record] = {}
    left = KEPT_BYTES_MAX
    for one in records:
        headers = bytes(encode_with_headers([(None, None, one.headers)], 0)) if one.headers else None
        fields[one.offset] = _digest(one.key), _digest(one.value), _digest(headers), one.timestamp_ms
        left -= len(one.key or b"") + len(one.value or b"") + len(headers or b"")
        if left >= 0:
            kept[one.offset] = one
    return fields, kept


def _digest(data: bytes | None) -> bytes | None:
    return None if data is None else blake2b(data, digest_size=16).digest()


def _fields(record: Record) -> Fields:
    headers = [(name.decode("utf-8", "surrogateescape"), value) for name, value in record.headers]
    return Fields(record.key, record.value, headers or None, record.timestamp_ms)

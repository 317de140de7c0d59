"""Entries of a section as bytes: its runs, the records that were set aside, those that were dropped. Used by `block`
and `page`, which say where they stand.

Each list has its length first. An entry begins with the gap to the one before, the first one to where the section's
source offsets begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replicator.model.partition import Span
from replicator.offset_map.section import DroppedRecord, SetAside
from replicator.offset_map.varints import OFFSET_MAX, BadBlock, VarintReader, put


def put_runs(out: bytearray, runs: Sequence[Span], at: int) -> None:
    """Append runs; `at` is where the section's source offsets begin."""
    put(out, len(runs))
    for first, end in runs:
        put(out, first - at)
        put(out, end - first)
        at = end


def put_records(out: bytearray, entries: Sequence[SetAside] | Sequence[DroppedRecord], at: int) -> None:
    """Append records that were not copied; `at` as above."""
    put(out, len(entries))
    for entry in entries:
        put(out, entry.source - at)
        for number in entry[1:]:
            put(out, number)
        at = entry.source + 1


def read_runs(reader: VarintReader, at: int, most: int) -> tuple[Span, ...]:
    """Read runs, `most` of them. Raises BadBlock."""
    count = reader.count("runs", 2, most)
    if count == 1:  # as most have
        gap, length = reader.numbers(2)
        if at + gap + length > OFFSET_MAX:
            raise BadBlock("a run beyond all offsets")
        return ((at + gap, at + gap + length),)
    found: list[Span] = []
    numbers = iter(reader.numbers(2 * count))
    for gap, length in zip(numbers, numbers, strict=True):
        first = at + gap
        at = first + length
        found.append((first, at))
    if at > OFFSET_MAX:
        raise BadBlock("a run beyond all offsets")
    return tuple(found)


def read_aside(reader: VarintReader, at: int, most: int) -> Iterator[SetAside]:
    """Read records that were set aside, `most` of them. Raises BadBlock."""
    for _ in range(_count(reader, "records set aside", 3, most)):
        source = at + reader.number()
        yield SetAside(source, reader.number(), reader.number())
        at = source + 1


def read_dropped(reader: VarintReader, at: int, most: int) -> Iterator[DroppedRecord]:
    """Read dropped records, `most` of them. Raises BadBlock."""
    for _ in range(_count(reader, "dropped records", 2, most)):
        source = at + reader.number()
        yield DroppedRecord(source, reader.number())
        at = source + 1


def _count(reader: VarintReader, what: str, bytes_min: int, most: int) -> int:
    count = reader.count(what, bytes_min, most)
    if not count:
        raise BadBlock(f"an empty list of {what}")
    return count

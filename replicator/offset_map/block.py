"""Blocks of the map: the bytes in which a transaction's sections stand in the flow's map topic.

    u8 version · u8 kind · generation · lane · i64 commit_ms · number of sections · sections

    flags · [topic id, 16 B] · partition · before · after - before · epoch + 1 · first target + 1 · count in all
    · u8 digest kind · [digest, 16 B] · log start + 1 · runs · [aside] · [dropped]

What is not marked with its size is an unsigned varint. Lists have their length first. Source offsets are written as
the gap to what came before, the first one to `before` (in a repair: to 0): a run is gap and length, a record set aside
gap, partition and offset there, a dropped record gap and rule. The topic id is left out where it is that of the
section before; lists of records set aside and dropped are left out where they are empty, and flags say so.

Limits: a block has at most PART_BYTES_MAX bytes, further ones with the same transaction's other sections follow it; a
section that is larger is divided. Decoding checks each count and length before it keeps anything, so that bytes of
whatever origin cost at most some eighty times their size in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct

from replicator.offset_map.entries import put_records, put_runs, read_aside, read_dropped, read_runs
from replicator.offset_map.section import (
    DIGEST_BYTES,
    NO_DIGEST,
    MapSection,
    divided,
)
from replicator.offset_map.varints import BadBlock, VarintReader, put

VERSION, RAW = 1, 1
VERSION_MAX = 31
"""No version will be higher: what begins with a letter or a bracket was written by something else."""
PART_BYTES_MAX = 512 * 1024
RUNS_MAX = 50_000
"""A transaction that has so many runs ends early; no block has more."""
SECTION_BYTES_MIN = 10
SAME_TOPIC, BASE, GAP, CONTINUED, ASIDE, DROPPED = (1 << bit for bit in range(6))
_KNOWN_FLAGS = (1 << 6) - 1
_TIME = Struct(">q")


class NewerBlock(BadBlock):
    """A newer version of this program wrote it, and it must be understood."""

    incident = "newer_format"


@dataclass(frozen=True, slots=True)
class MapBlock:
    """The sections of one transaction of a lane, or a part of them. `commit_ms`: when it was about to be committed."""

    generation: int
    lane: int
    commit_ms: int
    sections: tuple[MapSection, ...]


def encode_blocks(generation: int, lane: int, commit_ms: int, sections: Iterable[MapSection]) -> list[bytes]:
    """Encode the sections of one transaction, in as many parts as are needed.

    Sections of one topic that follow one another are smaller. Raises ValueError for sections that can't be: a bug.
    """
    header = bytearray((VERSION, RAW))
    put(header, generation)
    put(header, lane)
    header += _TIME.pack(commit_ms)
    bytes_max = PART_BYTES_MAX - len(header) - 4
    parts: list[bytes] = []
    body, number, runs, topic = bytearray(), 0, 0, b""
    for section in _small_enough(sections, bytes_max):
        encoded = _encoded(section, topic)
        if body and (len(body) + len(encoded) > bytes_max or runs + len(section.runs) > RUNS_MAX):
            parts.append(_part(header, number, body))
            body, number, runs = bytearray(), 0, 0
            encoded = _encoded(section, b"")
        body += encoded
        number, runs, topic = number + 1, runs + len(section.runs), section.source_topic_id
    if number or not parts:
        parts.append(_part(header, number, body))
    return parts


def decode_block(data: bytes) -> MapBlock:
    """Decode one block. Raises NewerBlock, and BadBlock for everything that `encode_blocks` doesn't write."""
    if len(data) > PART_BYTES_MAX:
        raise BadBlock(f"{len(data)} bytes")
    reader = VarintReader(data)
    version, kind = reader.byte(), reader.byte()
    if VERSION < version <= VERSION_MAX:
        raise NewerBlock(f"version {version} of the map's format")
    if version != VERSION or kind != RAW:
        raise BadBlock(f"version {version}, kind {kind}")
    generation, lane = reader.numbers(2)
    (commit_ms,) = _TIME.unpack(reader.take(8))
    count = reader.count("sections", SECTION_BYTES_MIN, PART_BYTES_MAX)
    sections: list[MapSection] = []
    runs_left = RUNS_MAX
    for _ in range(count):
        section = _decoded(reader, sections[-1].source_topic_id if sections else b"", runs_left)
        if wrong := section.wrong():
            raise BadBlock(wrong)
        runs_left -= len(section.runs)
        sections.append(section)
    if reader.left:
        raise BadBlock(f"{reader.left} bytes behind the last section")
    return MapBlock(generation, lane, commit_ms, tuple(sections))


def _part(header: bytearray, number: int, body: bytearray) -> bytes:
    out = bytearray(header)
    put(out, number)
    return bytes(out + body)


def _small_enough(sections: Iterable[MapSection], bytes_max: int) -> Iterator[MapSection]:
    for section in sections:
        if wrong := section.wrong():
            raise ValueError(wrong)
        todo = [section]
        while todo:
            one = todo.pop()
            entries = len(one.runs) + len(one.aside) + len(one.dropped)
            # An entry has at most three numbers of nine bytes. Only where that could be too much its size is looked at.
            if len(one.runs) > RUNS_MAX or (27 * entries + 100 > bytes_max and len(_encoded(one, b"")) > bytes_max):
                todo.extend(reversed(divided(one)))
            else:
                yield one


def _encoded(section: MapSection, topic: bytes) -> bytearray:
    same = section.source_topic_id == topic
    out = bytearray((_flags(section, same),))
    if not same:
        out += section.source_topic_id
    put(out, section.partition)
    put(out, section.before)
    put(out, section.after - section.before)
    put(out, section.leader_epoch + 1)
    put(out, section.first_target + 1)
    put(out, section.count)
    out.append(section.digest_kind)
    out += section.digest
    put(out, section.log_start + 1)
    put_runs(out, section.runs, section.source_start)
    for entries in (section.aside, section.dropped):
        if entries:
            put_records(out, entries, section.source_start)
    return out


def _flags(section: MapSection, same_topic: bool) -> int:
    return (
        SAME_TOPIC * same_topic
        | BASE * section.base
        | GAP * section.gap
        | CONTINUED * section.continued
        | ASIDE * bool(section.aside)
        | DROPPED * bool(section.dropped)
    )


def _decoded(reader: VarintReader, topic: bytes, runs_max: int) -> MapSection:
    flags = reader.byte()
    if flags & ~_KNOWN_FLAGS or (flags & SAME_TOPIC and not topic):
        raise BadBlock(f"flags {flags:#x}")
    topic_id = topic if flags & SAME_TOPIC else reader.take(16)
    partition, before, span, epoch, first_target, count = reader.numbers(6)
    digest_kind = reader.byte()
    digest = b"" if digest_kind == NO_DIGEST else reader.take(DIGEST_BYTES)
    log_start = reader.number()
    repaired_from = 0 if span == 0 else before  # a claim has no entries
    runs = read_runs(reader, repaired_from, runs_max)
    aside = tuple(read_aside(reader, repaired_from, PART_BYTES_MAX)) if flags & ASIDE else ()
    dropped = tuple(read_dropped(reader, repaired_from, PART_BYTES_MAX)) if flags & DROPPED else ()
    return MapSection(
        source_topic_id=topic_id,
        partition=partition,
        before=before,
        after=before + span,
        leader_epoch=epoch - 1,
        log_start=log_start - 1,
        first_target=first_target - 1,
        count=count,
        digest_kind=digest_kind,
        digest=digest,
        runs=runs,
        aside=aside,
        dropped=dropped,
        base=bool(flags & BASE),
        gap=bool(flags & GAP),
        continued=bool(flags & CONTINUED),
    )

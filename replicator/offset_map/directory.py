"""What the map's index says of its pages: which ones a source partition has, and where. Formats; pure.

In each of the partitions with pages, behind the pages that they name, records of changes:

    u8 version · u8 kind 3 · u8 flags (1: all that was said before is void) · number of entries · entries
    entry: topic id, 16 B · partition · i64 generation · i64 commit_ms · i64 sections · pages kept · number of pages
    · pages
    page: i64 offset · u32 bytes · u32 sections · 8 x i64 · u8 flags

An entry is whole, but for the first pages, which are those that it had. In the partition ROOTS a record that holds for
all of them, the last one of each transaction:

    u8 version · u8 kind 4 · map topic's id, 16 B · i64 commit_ms · generation · 16 x i64 covered
    · number of unreadable · unreadable (partition, blocks, first offset)
    · 16 x (i64 from · i64 end · i64 low · i64 bytes · i64 rewritten from · i64 bytes since)

`covered`: all sections of raw blocks below that offset of the map topic's partition are in pages. `from`: where the
changes begin with one that voids the others; `end`: the offset behind the last one. `low`: nothing below it is needed.

What is not marked with its size is an unsigned varint. Counts are checked against the bytes left before anything is
kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from replicator.offset_map.block import VERSION
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.page import PAGE_BYTES_MAX, check_kind
from replicator.offset_map.section import topic_id_bytes
from replicator.offset_map.topic import MAP_PARTITIONS, PAGE_PARTITIONS
from replicator.offset_map.varints import BadBlock, VarintReader, put

CHANGES, ROOT = 3, 4
CHANGES_BYTES = 256 * 1024
"""A record of changes that is larger gets no more entries."""
PAGES_TOGETHER = 2_000
"""An entry with more pages is written in several parts, each of which keeps those before."""
CHANGES_BYTES_MAX = CHANGES_BYTES + 256 * 1024
VOIDS = 1
TURNS, HAS_PRUNED = 1, 2
_PAGE = Struct(">qIIqqqqqqqqB")
_ENTRY = Struct(">qqq")
_PARTITION = Struct(">qqqqqq")
_COVERED = Struct(f">{MAP_PARTITIONS}q")
_TIME = Struct(">q")
_ENTRY_BYTES_MIN = 16 + 1 + _ENTRY.size + 2


class PageRef(NamedTuple):
    """A page as its directory knows it.

    Attributes:
        offset: in the index's partition; bytes: of its value; sections: of blocks, that it stands for.
        before, after: the position before its first and behind its last section.
        first_source, first_target: of its first copy; -1: it has none.
        target_low, target_end: the lowest target offset of its copies, and the one behind its sections.
        first_ms, last_ms: when its first and its last section were committed.
        flags: TURNS: it isn't true that each section goes on where the last one ended, on both sides. HAS_PRUNED.
    """

    offset: int
    bytes: int
    sections: int
    before: int
    after: int
    first_source: int
    first_target: int
    target_low: int
    target_end: int
    first_ms: int
    last_ms: int
    flags: int

    @property
    def turns(self) -> bool:
        """See `flags`."""
        return bool(self.flags & TURNS)


@dataclass(slots=True)
class PartitionEntry:
    """A source partition in the index: its pages, in their order, and generation and time (ms) of its last section.

    `sections`: how many it has in all. The pages are kept as bytes: there may be many.
    """

    generation: int = -1
    commit_ms: int = 0
    sections: int = 0
    pages: bytearray = field(default_factory=bytearray)

    def __len__(self) -> int:
        return len(self.pages) // _PAGE.size

    def __getitem__(self, number: int) -> PageRef:
        at = number if number >= 0 else len(self) + number
        return PageRef(*_PAGE.unpack_from(self.pages, at * _PAGE.size))

    def __iter__(self) -> Iterator[PageRef]:
        return map(PageRef._make, _PAGE.iter_unpack(bytes(self.pages)))

    def replace(self, kept: int, pages: Iterable[PageRef]) -> None:
        """Keep the first pages and put others behind them."""
        del self.pages[kept * _PAGE.size :]
        for page in pages:
            self.pages += _PAGE.pack(*page)

    @property
    def after(self) -> int:
        """The position behind its last section; -1: it has none."""
        return self[-1].after if self.pages else -1


class EntryChange(NamedTuple):
    """What becomes of an entry."""

    key: SectionKey
    kept: int
    entry: PartitionEntry


def encode_changes(changes: Iterable[EntryChange], *, voids: bool = False) -> list[bytes]:
    """Encode changes, in as many records as are needed. `voids`: all that was said before is void."""
    parts: list[bytes] = []
    body, number = bytearray(), 0

    def close() -> None:
        nonlocal number
        out = bytearray((VERSION, CHANGES, VOIDS if voids and not parts else 0))
        put(out, number)
        parts.append(bytes(out + body))
        body.clear()
        number = 0

    for (topic_id, partition), kept, entry in changes:
        for first in range(kept, max(len(entry), kept + 1), PAGES_TOGETHER):
            end = min(len(entry), first + PAGES_TOGETHER)
            body += topic_id
            put(body, partition)
            body += _ENTRY.pack(entry.generation, entry.commit_ms, entry.sections)
            put(body, first)
            put(body, end - first)
            body += entry.pages[first * _PAGE.size : end * _PAGE.size]
            number += 1
            if len(body) >= CHANGES_BYTES:
                close()
    if number or not parts:
        close()
    return parts


class PageDirectory:
    """The entries of one partition of the index, as its records of changes say."""

    def __init__(self) -> None:
        self.entries: dict[SectionKey, PartitionEntry] = {}
        self.begun = False
        """Whether a record was taken that voids the others: before, nothing counts."""

    def take(self, value: bytes) -> None:
        """Take the next record of changes. Raises NewerBlock, BadBlock; then nothing more may be asked of it."""
        if len(value) > CHANGES_BYTES_MAX:
            raise BadBlock(f"{len(value)} bytes")
        reader = VarintReader(value)
        check_kind(reader, CHANGES)
        flags = reader.byte()
        if flags & ~VOIDS:
            raise BadBlock(f"flags {flags:#x}")
        if flags & VOIDS:
            self.entries, self.begun = {}, True
        for _ in range(reader.count("entries", _ENTRY_BYTES_MIN, CHANGES_BYTES_MAX)):
            key, change = reader.take(16), reader.number()
            self._take_entry((key, change), reader)
        if reader.left:
            raise BadBlock(f"{reader.left} bytes behind the last entry")

    def _take_entry(self, key: SectionKey, reader: VarintReader) -> None:
        generation, commit_ms, sections = _ENTRY.unpack(reader.take(_ENTRY.size))
        kept = reader.number()
        count = reader.count("pages", _PAGE.size, CHANGES_BYTES_MAX)
        pages = reader.take(count * _PAGE.size)
        if not self.begun:
            return
        entry = self.entries.setdefault(key, PartitionEntry())
        if kept > len(entry) or generation < 0 or sections < 0:
            raise BadBlock(f"{kept} pages are kept of {len(entry)}")
        if any(ref.offset < 0 or ref.bytes > PAGE_BYTES_MAX for ref in map(PageRef._make, _PAGE.iter_unpack(pages))):
            raise BadBlock("a page that can't be")
        entry.generation, entry.commit_ms, entry.sections = generation, commit_ms, sections
        del entry.pages[kept * _PAGE.size :]
        entry.pages += pages


class PagePartition(NamedTuple):
    """A partition of the index, see above. `rewritten_from`, `bytes_since`: while its pages are written anew to make
    room, up to which offset; 0: they aren't."""

    first: int = 0
    end: int = 0
    low: int = 0
    bytes: int = 0
    rewritten_from: int = 0
    bytes_since: int = 0


@dataclass(slots=True)
class IndexRoot:
    """What holds for all of the index: see above. `unreadable`: by partition of the map, how many blocks below
    `covered` say nothing, and the offset of the first."""

    map_topic_id: bytes
    commit_ms: int = 0
    generation: int = 0
    covered: list[int] = field(default_factory=lambda: [0] * MAP_PARTITIONS)
    unreadable: dict[int, tuple[int, int]] = field(default_factory=dict)
    partitions: list[PagePartition] = field(default_factory=lambda: [PagePartition()] * PAGE_PARTITIONS)

    def is_of(self, topic_id: str) -> bool:
        """Return whether `covered` is of the map topic with this id, as positions have it, and not of one before it."""
        return self.map_topic_id == topic_id_bytes(topic_id)


def encode_root(root: IndexRoot) -> bytes:
    """Encode it."""
    out = bytearray((VERSION, ROOT))
    out += root.map_topic_id + _TIME.pack(root.commit_ms)
    put(out, root.generation)
    out += _COVERED.pack(*root.covered)
    put(out, len(root.unreadable))
    for partition, (blocks, first) in sorted(root.unreadable.items()):
        for number in (partition, blocks, first):
            put(out, number)
    for each in root.partitions:
        out += _PARTITION.pack(*each)
    return bytes(out)


def decode_root(value: bytes) -> IndexRoot:
    """Decode it. Raises NewerBlock, BadBlock."""
    reader = VarintReader(value)
    check_kind(reader, ROOT)
    topic_id = reader.take(16)
    (commit_ms,) = _TIME.unpack(reader.take(8))
    generation = reader.number()
    covered = list(_COVERED.unpack(reader.take(_COVERED.size)))
    unreadable = {}
    for _ in range(reader.count("unreadable blocks", 3, MAP_PARTITIONS)):
        partition, blocks, first = reader.numbers(3)
        unreadable[partition] = blocks, first
    partitions = [PagePartition(*_PARTITION.unpack(reader.take(_PARTITION.size))) for _ in range(PAGE_PARTITIONS)]
    wrong = min(covered) < 0 or any(min(each) < 0 or each.first > each.end for each in partitions)
    if reader.left or wrong:
        raise BadBlock(f"a root that can't be, with {reader.left} bytes behind it")
    return IndexRoot(topic_id, commit_ms, generation, covered, unreadable, partitions)


def kind_of(value: bytes) -> int:
    """Return the kind of a record of the index; -1 for what is too short to have one."""
    return value[1] if len(value) > 1 else -1

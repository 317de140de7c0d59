"""Pages of the map's index: the consolidated sections of one source partition, in the order in which they were made.

    u8 version · u8 kind · topic id, 16 B · partition · i64 first commit_ms · number of sections · sections
    · number of digests · digests

    flags · [generation] · [before] · after - before · [epoch + 1 · log start + 1] · commit_ms, zigzag of the difference
    · first target · [count] · [u8 marks] · runs · [aside] · [dropped] · [pruned]

    digest: sections before the first one of it · sections in it · u8 kind · 16 B

What is not marked with its size is an unsigned varint. A section says only how it differs from one that goes on where
the last one ended: `flags` tell what else follows. The first target is the gap to the end of the copies before, or the
offset + 1 itself. Runs are source gap and length, their number first; one run that fills its section is left out. So a
transaction of one record takes five bytes, instead of some 270 with its batch in the log of raw blocks. Nothing is
lost: from pages follows what followed from the blocks, section by section. Runs of two sections never touch on the
target, where a marker stands between them, so there is nothing to merge.

Digests are digests of digests, of sections that follow one another: `chained_digest` says how, and their boundaries are
those of the sections. Pruned are sections whose copies the target's retention has taken (`pruned_sections`): their
source ranges and numbers stay, as *expired*, since a source often keeps more than its target.

Decoding checks each count against the bytes left before it keeps anything. A page has PAGE_BYTES_MAX bytes at most, and
SECTIONS_MAX sections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from replicator.offset_map.block import RUNS_MAX, VERSION, VERSION_MAX, NewerBlock
from replicator.offset_map.entries import put_records, put_runs, read_aside, read_dropped, read_runs
from replicator.offset_map.section import (
    DIGEST_BYTES,
    GROUPED_DIGEST,
    NO_DIGEST,
    MapSection,
    PrunedCopies,
)
from replicator.offset_map.varints import OFFSET_MAX, BadBlock, VarintReader, put

PAGE = 2
PAGE_BYTES = 64 * 1024
"""A page that is larger gets no more sections."""
PAGE_BYTES_MAX = 640 * 1024
"""A section of a block, which has 512 KiB at most, in a page that was nearly full."""
SECTIONS_MAX = 65_536
DIGEST_SECTIONS_MAX = 1_024
SECTION_BYTES_MIN = 4
GENERATION, JUMP, SOURCE, TARGET, COUNT, MARKS, FILLED, DIGEST = (1 << bit for bit in range(8))
BASE, GAP, CONTINUED, ASIDE, DROPPED, PRUNED = (1 << bit for bit in range(6))
_KNOWN_MARKS = (1 << 6) - 1
_TIME = Struct(">q")


class TimedSection(NamedTuple):
    """A section with the generation and the time (ms) of its block."""

    generation: int
    commit_ms: int
    section: MapSection


class GroupedDigest(NamedTuple):
    """The digest of those of the sections [first, end) of a page that have one, which are all of this kind."""

    first: int
    end: int
    kind: int
    digest: bytes


@dataclass(slots=True)
class MapPage:
    """Sections of one source partition. Those that have a digest have GROUPED_DIGEST and the digest of their group."""

    source_topic_id: bytes
    partition: int
    sections: list[TimedSection] = field(default_factory=list)
    digests: list[GroupedDigest] = field(default_factory=list)

    def add(self, one: TimedSection) -> None:
        """Take the next section of a block, or one with GROUPED_DIGEST of which `digests` knows already."""
        section = one.section
        if section.digest_kind not in (NO_DIGEST, GROUPED_DIGEST):
            self._group(section)
            one = one._replace(section=replace(section, digest_kind=GROUPED_DIGEST))
        self.sections.append(one)

    def _group(self, section: MapSection) -> None:
        at = len(self.sections)
        last = self.digests[-1] if self.digests else None
        if last is not None and last.kind == section.digest_kind and at < last.first + DIGEST_SECTIONS_MAX:
            self.digests[-1] = last._replace(end=at + 1, digest=chained_digest(last.digest, section.digest))
        else:
            self.digests.append(
                GroupedDigest(at, at + 1, section.digest_kind, chained_digest(bytes(DIGEST_BYTES), section.digest))
            )

    def join(self, other: MapPage) -> None:
        """Take the sections of the page that follows this one."""
        at = len(self.sections)
        self.sections += other.sections
        self.digests += [one._replace(first=one.first + at, end=one.end + at) for one in other.digests]


def chained_digest(before: bytes, digest: bytes) -> bytes:
    """Return the digest of a group that goes on with a section's: blake2b-128 of both. The first one follows zeros."""
    return blake2b(before + digest, digest_size=DIGEST_BYTES).digest()


def digest_of_all(digests: Sequence[bytes]) -> bytes:
    """Return the digest of a group with these sections' digests."""
    return reduce(chained_digest, digests, bytes(DIGEST_BYTES))


@dataclass(slots=True)
class _Last:
    """The section before, as far as the next one is written by it."""

    commit_ms: int
    generation: int = 0
    after: int = 0
    target_end: int = 0
    count: int = 0
    epoch: int = -1
    log_start: int = -1

    def follow(self, one: TimedSection) -> None:
        section = one.section
        self.generation, self.commit_ms = one.generation, one.commit_ms
        self.after, self.count = section.after, section.count
        self.epoch, self.log_start = section.leader_epoch, section.log_start
        if section.first_target >= 0:
            self.target_end = section.target_end


def encode_page(page: MapPage) -> bytes:
    """Encode a page. Raises ValueError for one that can't be: a bug."""
    if not 0 < len(page.sections) <= SECTIONS_MAX:
        raise ValueError(f"a page of {len(page.sections)} sections")
    out = bytearray((VERSION, PAGE))
    out += page.source_topic_id
    put(out, page.partition)
    last = _Last(page.sections[0].commit_ms)
    out += _TIME.pack(last.commit_ms)
    put(out, len(page.sections))
    for one in page.sections:
        _put_section(out, one, last)
        last.follow(one)
    put(out, len(page.digests))
    at = 0
    for group in page.digests:
        put(out, group.first - at)
        put(out, group.end - group.first)
        out.append(group.kind)
        out += group.digest
        at = group.end
    if len(out) > PAGE_BYTES_MAX:
        raise ValueError(f"a page of {len(out)} bytes")
    return bytes(out)


def _put_section(out: bytearray, one: TimedSection, last: _Last) -> None:
    section = one.section
    marks = _marks(section)
    moved = section.runs == ((section.before, section.after),)
    gap = section.first_target - last.target_end
    flags = (
        GENERATION * (one.generation != last.generation)
        | JUMP * (section.before != last.after)
        | SOURCE * (section.leader_epoch != last.epoch or section.log_start != last.log_start)
        | TARGET * (section.first_target < 0 or gap < 0)
        | COUNT * (section.count != _count(last.count, section))
        | MARKS * bool(marks)
        | FILLED * moved
        | DIGEST * (section.digest_kind == GROUPED_DIGEST)
    )
    out.append(flags)
    if flags & GENERATION:
        put(out, one.generation)
    if flags & JUMP:
        put(out, section.before)
    put(out, section.after - section.before)
    if flags & SOURCE:
        put(out, section.leader_epoch + 1)
        put(out, section.log_start + 1)
    late = one.commit_ms - last.commit_ms
    put(out, late << 1 if late >= 0 else (-late << 1) - 1)
    put(out, section.first_target + 1 if flags & TARGET else gap)
    if flags & COUNT:
        put(out, section.count)
    if marks:
        out.append(marks)
    if not moved:
        put_runs(out, section.runs, section.source_start)
    if marks & (ASIDE | DROPPED | PRUNED):
        _put_others(out, section)


def _count(before: int, section: MapSection) -> int:
    return before if section.repair else before + section.records + section.pruned_copies


def _marks(section: MapSection) -> int:
    return (
        BASE * section.base
        | GAP * section.gap
        | CONTINUED * section.continued
        | ASIDE * bool(section.aside)
        | DROPPED * bool(section.dropped)
        | PRUNED * (section.pruned is not None)
    )


def _put_others(out: bytearray, section: MapSection) -> None:
    for entries in (section.aside, section.dropped):
        if entries:
            put_records(out, entries, section.source_start)
    if section.pruned is not None:
        put(out, section.pruned.sections)
        put(out, section.pruned.target_end - max(section.first_target, 0))
        put(out, len(section.pruned.ranges))
        for first, end, copies in section.pruned.ranges:
            put(out, first)
            put(out, end - first)
            put(out, copies)


def decode_page(data: bytes) -> MapPage:
    """Decode a page. Raises NewerBlock, and BadBlock for everything that `encode_page` doesn't write."""
    if len(data) > PAGE_BYTES_MAX:
        raise BadBlock(f"{len(data)} bytes")
    reader = VarintReader(data)
    check_kind(reader, PAGE)
    page = MapPage(reader.take(16), reader.number())
    (first_ms,) = _TIME.unpack(reader.take(8))
    last, runs_left = _Last(first_ms), RUNS_MAX + PAGE_BYTES
    for _ in range(reader.count("sections", SECTION_BYTES_MIN, SECTIONS_MAX)):
        one = _decoded(reader, page, last, runs_left)
        if wrong := one.section.wrong():
            raise BadBlock(wrong)
        runs_left -= len(one.section.runs)
        page.sections.append(one)
        last.follow(one)
    _read_digests(reader, page)
    if reader.left or not page.sections:
        raise BadBlock(f"{reader.left} bytes behind {len(page.sections)} sections")
    return page


def check_kind(reader: VarintReader, expected: int) -> None:
    """Read version and kind. Raises NewerBlock, BadBlock."""
    version, kind = reader.take(2)
    if VERSION < version <= VERSION_MAX:
        raise NewerBlock(f"version {version} of the map's index")
    if version != VERSION or kind != expected:
        raise BadBlock(f"version {version}, kind {kind}")


def _decoded(reader: VarintReader, page: MapPage, last: _Last, runs_max: int) -> TimedSection:
    flags = reader.byte()
    generation = reader.number() if flags & GENERATION else last.generation
    before = reader.number() if flags & JUMP else last.after
    after = before + reader.number()
    epoch, log_start = last.epoch, last.log_start
    if flags & SOURCE:
        epoch, log_start = (number - 1 for number in reader.numbers(2))
    late, target = reader.numbers(2)
    commit_ms = last.commit_ms + (-((late + 1) >> 1) if late & 1 else late >> 1)
    if not -OFFSET_MAX <= commit_ms <= OFFSET_MAX:
        raise BadBlock(f"a time of {commit_ms}")
    first_target = target - 1 if flags & TARGET else last.target_end + target
    count = reader.number() if flags & COUNT else -1
    marks = reader.byte() if flags & MARKS else 0
    if marks & ~_KNOWN_MARKS or (flags & FILLED and after == before):
        raise BadBlock(f"flags {flags:#x}, marks {marks:#x}")
    repaired_from = 0 if after == before else before
    runs = ((before, after),) if flags & FILLED else read_runs(reader, repaired_from, runs_max)
    aside = tuple(read_aside(reader, repaired_from, PAGE_BYTES_MAX)) if marks & ASIDE else ()
    dropped = tuple(read_dropped(reader, repaired_from, PAGE_BYTES_MAX)) if marks & DROPPED else ()
    pruned = _pruned(reader, first_target) if marks & PRUNED else None
    if count < 0 and before == after and (runs or marks & (ASIDE | DROPPED | PRUNED)):
        count = last.count  # of a repair
    elif count < 0:
        copies = sum(one[2] for one in pruned.ranges) if pruned is not None else 0
        count = last.count + sum([end - first for first, end in runs]) + copies
    section = MapSection(
        source_topic_id=page.source_topic_id,
        partition=page.partition,
        before=before,
        after=after,
        leader_epoch=epoch,
        log_start=log_start,
        first_target=first_target,
        count=count,
        runs=runs,
        digest_kind=GROUPED_DIGEST if flags & DIGEST else NO_DIGEST,
        digest=bytes(DIGEST_BYTES) if flags & DIGEST else b"",
        aside=aside,
        dropped=dropped,
        pruned=pruned,
        base=bool(marks & BASE),
        gap=bool(marks & GAP),
        continued=bool(marks & CONTINUED),
    )
    return TimedSection(generation, commit_ms, section)


def _pruned(reader: VarintReader, first_target: int) -> PrunedCopies:
    sections, length = reader.numbers(2)
    ranges: list[tuple[int, int, int]] = []
    for _ in range(reader.count("pruned ranges", 3, PAGE_BYTES_MAX)):
        first, offsets, copies = reader.numbers(3)
        if first + offsets > OFFSET_MAX or not 0 < copies <= offsets:
            raise BadBlock(f"{copies} copies of {offsets} source offsets from {first} on")
        ranges.append((first, first + offsets, copies))
    if not sections:
        raise BadBlock("nothing that was pruned")
    return PrunedCopies(tuple(ranges), max(first_target, 0) + length, sections)


def _read_digests(reader: VarintReader, page: MapPage) -> None:
    at, sections = 0, page.sections
    for _ in range(reader.count("digests", 19, SECTIONS_MAX)):
        gap, length = reader.numbers(2)
        kind, digest, first = reader.byte(), reader.take(DIGEST_BYTES), at + gap
        at = first + length
        if at > len(sections) or kind in (NO_DIGEST, GROUPED_DIGEST):
            raise BadBlock(f"a digest of kind {kind} of sections {first} to {at}")
        page.digests.append(GroupedDigest(first, at, kind, digest))
        for number in range(first, at):
            one = sections[number]
            if one.section.digest_kind == GROUPED_DIGEST:
                sections[number] = one._replace(section=replace(one.section, digest=digest))

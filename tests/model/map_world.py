"""Two logs, a copier and its offset map, as histories go: what stands where, and what was done to it.

Offsets are indices. Each record that was produced is a `Made` of its own: the oracle knows a copy from an equal one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from replicator.offset_map.fold import PlacedSection
from replicator.offset_map.section import RECORDS_DIGEST, MapSection
from replicator.offset_map.verdicts import ComparedRecord


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A record that somebody produced. `content` is all of it, key and value included."""

    content: int
    key: bytes | None = None
    tombstone: bool = False


class Entry(NamedTuple):
    """One offset of a log: a record, or nothing that a reader gets. `made` is kept of what the cleaner took."""

    kind: str  # record, marker, aborted, empty
    made: Made | None = None
    source: tuple[int, int] | None = None  # of a copy: number of the source topic and offset there


MARKER, ABORTED = Entry("marker"), Entry("aborted")


@dataclass
class ModelLog:
    """A partition's log. `number` changes when the topic is created again."""

    number: int
    entries: list[Entry] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def topic_id(self) -> bytes:
        return self.number.to_bytes(16)

    def records(self, below: int) -> Iterator[tuple[int, Made]]:
        for offset in range(self.start, min(below, self.end)):
            entry = self.entries[offset]
            if entry.kind == "record" and entry.made is not None:
                yield offset, entry.made

    def rows(self, below: int) -> list[ComparedRecord]:
        """As a reader of committed records gets them."""
        return [
            ComparedRecord(offset, made.content.to_bytes(8), made.key, made.tombstone)
            for offset, made in self.records(below)
        ]

    def clean(self, below: int, tombstones: bool) -> None:
        """As the log cleaner: of each key the last record below the bound stays, tombstones for some time."""
        last = {made.key: offset for offset, made in self.records(below) if made.key is not None}
        for offset, made in list(self.records(below)):
            if made.key is None or last[made.key] != offset or (made.tombstone and tombstones):
                self.entries[offset] = self.entries[offset]._replace(kind="empty")


class WrittenDigest(NamedTuple):
    """What a section's digest was made of."""

    placed: PlacedSection
    contents: tuple[int, ...]


@dataclass
class MapWorld:
    """A flow's partition on both sides."""

    drawn: random.Random
    compacted_source: bool = False
    compacted_target: bool = False
    keys: int = 0  # 0: all records have keys of their own
    contents: int = 0  # 0: all contents differ
    scale: int = 1
    source: ModelLog = field(default_factory=lambda: ModelLog(1))
    target: ModelLog = field(default_factory=lambda: ModelLog(101))
    position: int = 0
    generation: int = 1
    map_offset: int = 0
    sections: list[PlacedSection] = field(default_factory=list)
    truncations: set[tuple[int, int, int]] = field(default_factory=set)  # sections that go on where the source was cut
    digests: list[WrittenDigest] = field(default_factory=list)
    base: bool = True  # the next section is one
    copied: int = 0
    made: int = 0
    acts: list[str] = field(default_factory=list)
    map_wrong: bool = False  # something was done of which the map says what is not so

    def make(self) -> Made:
        """A new record; equal ones are equal in all."""
        self.made += 1
        content = self.drawn.randrange(1, self.contents + 1) if self.contents else self.made
        if not self.keys:
            return Made(content, content.to_bytes(8))
        about = random.Random(content)
        key = about.randrange(self.keys)
        return Made(content, key.to_bytes(8), about.random() < 0.15)

    def produce(self, count: int, aborts: bool = False, markers: bool = True) -> None:
        """New records at the source, with markers between and aborted ones, if told."""
        for _ in range(count):
            self.source.entries.append(Entry("record", self.make()))
            if markers and self.drawn.random() < 0.2:
                self.source.entries.append(MARKER)
            if aborts and self.drawn.random() < 0.2:
                self.source.entries += [Entry("aborted", self.make())] * self.drawn.randrange(1, 3) + [MARKER]

    def ready(self) -> list[tuple[int, Made]]:
        """What the copier can read."""
        return [(offset, made) for offset, made in self.source.records(self.source.end) if offset >= self.position]

    def write(self, copies: list[tuple[int, Made]]) -> int:
        """Copies at the end of the target, with a marker behind; returns where the first one stands."""
        first = self.target.end
        self.target.entries += [Entry("record", made, (self.source.number, offset)) for offset, made in copies]
        self.target.entries.append(MARKER)
        return first

    def section(self, after: int, runs: list[tuple[int, int]], first: int, **other: object) -> MapSection:
        """What a right copier would write."""
        self.copied += sum(end - begin for begin, end in runs)
        made = MapSection(
            source_topic_id=self.source.topic_id,
            partition=0,
            before=self.position,
            after=after,
            first_target=first,
            count=self.copied,
            digest_kind=RECORDS_DIGEST,
            digest=bytes(16),
            runs=tuple(runs),
            base=self.base,
        )
        return replace(made, **other)  # type: ignore[arg-type]

    def commit(self, section: MapSection, contents: tuple[int, ...] = ()) -> None:
        """The section stands in the map."""
        self.map_offset += self.drawn.randrange(1, 4)
        placed = PlacedSection(self.generation, self.map_offset, 0, self.target.topic_id, section)
        self.sections.append(placed)
        self.digests.append(WrittenDigest(placed, contents))
        self.base = False

    def claim(self) -> None:
        """The first transaction: a position and no record. The map begins."""
        self.commit(self.section(self.position, [], self.target.end))

    def digest_fits(self, target_offset: int) -> bool:
        """Whether the copies of the section that claims this offset last are what its digest was made of."""
        for placed, contents in reversed(self.digests):
            first, section = placed.section.first_target, placed.section
            if placed.target_topic_id != self.target.topic_id or not first <= target_offset < first + section.records:
                continue
            there = self.target.entries[first : first + section.records]
            read = tuple(one.made.content for one in there if one.kind == "record" and one.made is not None)
            return first >= self.target.start and read == contents
        return False

    def ends(self) -> list[int]:
        """Where a last stable offset may be: a transaction is open that begins there."""
        entries, start = self.target.entries, self.target.start
        return [at for at in range(start, self.target.end + 1) if at == self.target.end or entries[at - 1] == MARKER]


def runs_of_copies(copies: list[tuple[int, Made]]) -> list[tuple[int, int]]:
    """Source offsets of copies as runs."""
    found: list[tuple[int, int]] = []
    for offset, _ in copies:
        if found and found[-1][1] == offset:
            found[-1] = found[-1][0], offset + 1
        else:
            found.append((offset, offset + 1))
    return found

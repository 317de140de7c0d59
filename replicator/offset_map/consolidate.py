"""One transaction on the map's index: new sections go into pages, copies that are gone are pruned, room is made. Pure.

Called by whoever consolidates, with the index as it is committed, and with what was read of the raw blocks behind it.
The order of the records is that in which they are known: pages, whose offsets the changes of the directories name; the
changes, whose offsets the root names. Invariant M5: what may be deleted follows from a root that is *committed*, and
from nothing else.

- A small page is written again with the sections that follow, if it isn't more than twice as large as they are: so a
  source partition has few small pages, and a section is written again a dozen times at most, until its page is full.
- A directory is written whole every CHECKPOINT_BYTES, so that a reader reads no more than that.
- Once more than half of what a partition of the index has is of no use, the pages that are still needed are written
  again at its end, REWRITE_BYTES at a time; then all before can be deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from replicator.offset_map.directory import (
    HAS_PRUNED,
    TURNS,
    EntryChange,
    IndexRoot,
    PageDirectory,
    PagePartition,
    PageRef,
    PartitionEntry,
    encode_changes,
    encode_root,
)
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.page import PAGE_BYTES, SECTIONS_MAX, MapPage, TimedSection, decode_page, encode_page
from replicator.offset_map.pending_blocks import ReadyBlocks
from replicator.offset_map.prune import pruned_sections
from replicator.offset_map.topic import PAGE_PARTITIONS, index_partition
from replicator.offset_map.varints import OFFSET_MAX

CHECKPOINT_BYTES = 8 * 1024 * 1024
CHECKPOINT_RECORDS = 256
REWRITE_BYTES = 4 * 1024 * 1024
USELESS_BYTES_MIN = 4 * 1024 * 1024
ENTRIES_ALONE = 1_000
"""A section with more runs, or records set aside, has a page of its own."""
LoadPage = Callable[[int, int], bytes]
"""Returns the value at an offset of one of the index's partitions. Raises what reading raises."""
IndexValue = tuple[int, bytes]
"""A partition of the index, and a value."""


@dataclass(slots=True)
class IndexState:
    """The index as it is committed. `since`: bytes and records in each partition since its directory was written
    whole."""

    root: IndexRoot
    directories: list[PageDirectory] = field(default_factory=lambda: [PageDirectory() for _ in range(PAGE_PARTITIONS)])
    since: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)] * PAGE_PARTITIONS)
    live: list[int] = field(default_factory=list)
    """Bytes of the pages that are in use, by partition."""

    def __post_init__(self) -> None:
        self.live = [sum(ref.bytes for it in each.entries.values() for ref in it) for each in self.directories]


@dataclass(slots=True)
class _NewPage:
    ref: PageRef
    value: bytes


@dataclass(slots=True)
class _Draft:
    """An entry as it will be: the first `kept` pages are as they were."""

    entry: PartitionEntry
    kept: int
    pages: list[PageRef | _NewPage]

    def last(self) -> PageRef | None:
        if not self.pages:
            return None
        last = self.pages[-1]
        return last if isinstance(last, PageRef) else last.ref


class IndexTransaction:
    """What one transaction writes. Where it fails, the state that it was made with is of no use any more."""

    def __init__(self, state: IndexState, load: LoadPage) -> None:
        self._state, self._load = state, load
        self._drafts: dict[SectionKey, _Draft] = {}
        self._bytes: defaultdict[int, int] = defaultdict(int)
        self._whole: set[int] = set()
        self._finished: set[int] = set()  # partitions whose pages have all been written again
        self._new: list[tuple[SectionKey, _NewPage]] = []

    def take(self, ready: ReadyBlocks) -> None:
        """Take the sections of raw blocks; the root covers them then."""
        for key, sections in ready.sections.items():
            self._append(key, sections)
        root = self._state.root
        root.covered, root.generation = list(ready.covered), ready.generation
        for partition, offset in ready.unreadable:
            blocks, first = root.unreadable.get(partition, (0, offset))
            root.unreadable[partition] = blocks + 1, first

    def _append(self, key: SectionKey, sections: Sequence[TimedSection]) -> None:
        draft = self._draft(key)
        size, pulled = sum(_size(one) for one in sections), list[PageRef]()
        while draft.pages:
            last = draft.pages[-1]
            if not isinstance(last, PageRef) or _is_pruned(last):
                break
            if last.bytes > 2 * size or last.bytes + size > PAGE_BYTES:
                break
            draft.pages.pop()
            pulled.append(last)
            size += last.bytes
        page = MapPage(*key)
        for ref in reversed(pulled):
            page.join(self._page(key, ref))
        self._cut(key, draft, page, sum(ref.bytes for ref in pulled), sections)
        draft.kept = min(draft.kept, len(draft.pages))
        entry = draft.entry
        entry.generation, entry.commit_ms = sections[-1].generation, sections[-1].commit_ms
        entry.sections += sum(one.section.transactions for one in sections)

    def _cut(self, key: SectionKey, draft: _Draft, page: MapPage, size: int, sections: Iterable[TimedSection]) -> None:
        """Put sections behind those of a page, and into further ones when it is full."""
        kept = len(draft.pages)
        for one in sections:
            alone = _entries(one) > ENTRIES_ALONE
            if page.sections and (size >= PAGE_BYTES or len(page.sections) >= SECTIONS_MAX // 2 or alone):
                self._put(key, draft, page)
                page, size = MapPage(*key), 0
            page.add(one)
            size += PAGE_BYTES if alone else _size(one)
        if page.sections:
            self._put(key, draft, page)
        draft.kept = min(draft.kept, kept)

    def _put(self, key: SectionKey, draft: _Draft, page: MapPage) -> None:
        value = encode_page(page)
        new = _NewPage(ref_of(page, len(value), draft.last()), value)
        draft.pages.append(new)

    def prune(self, log_starts: dict[SectionKey, int]) -> int:
        """Prune pages whose copies all stand below the target's log start; how many sections became fewer."""
        fewer = 0
        for key, log_start in log_starts.items():
            directory = self._state.directories[index_partition(key)]
            if key not in directory.entries:
                continue
            draft = self._draft(key)
            count = _expired(draft.pages, log_start)
            if count == 0 or (count == 1 and _is_pruned(draft.pages[0])):
                continue
            left: list[TimedSection] = []
            for ref in draft.pages[:count]:
                assert isinstance(ref, PageRef)
                left = pruned_sections([*left, *self._page(key, ref).sections])
                fewer += ref.sections
            rest, draft.pages = draft.pages[count:], []
            self._cut(key, draft, MapPage(*key), 0, left)
            draft.pages += rest
            draft.kept = 0
        return fewer

    def make_room(self) -> None:
        """Write pages again whose partition is mostly of no use, as many as a transaction may have."""
        state = self._state
        for number, it in enumerate(state.root.partitions):
            if not it.rewritten_from and it.bytes > 2 * state.live[number] + USELESS_BYTES_MIN:
                it = it._replace(rewritten_from=it.end, bytes_since=0)
                state.root.partitions[number] = it
            if it.rewritten_from and not self._rewrite(number, it.rewritten_from):
                self._finished.add(number)
                self._whole.add(number)

    def _rewrite(self, number: int, below: int) -> bool:
        """Have pages that stand below this offset written again; return whether there is more to do."""
        entries = self._state.directories[number].entries
        found = sorted(
            (ref.offset, key)
            for key in entries
            for ref in (self._drafts[key].pages if key in self._drafts else entries[key])
            if isinstance(ref, PageRef) and ref.offset < below
        )
        left = REWRITE_BYTES
        for offset, key in found:
            if left <= 0:
                return True
            draft = self._draft(key)
            at = next(n for n, ref in enumerate(draft.pages) if isinstance(ref, PageRef) and ref.offset == offset)
            ref = draft.pages[at]
            assert isinstance(ref, PageRef)
            draft.pages[at] = _NewPage(ref, self._load(number, offset))
            draft.kept = min(draft.kept, at)
            left -= ref.bytes
        return False

    def _draft(self, key: SectionKey) -> _Draft:
        draft = self._drafts.get(key)
        if draft is None:
            entry = self._state.directories[index_partition(key)].entries.setdefault(key, PartitionEntry())
            draft = self._drafts[key] = _Draft(entry, len(entry), list(entry))
        return draft

    def _page(self, key: SectionKey, ref: PageRef) -> MapPage:
        return decode_page(self._load(index_partition(key), ref.offset))

    def pages(self) -> list[IndexValue]:
        """Return the pages to be written, in their order."""
        self._drafts = {key: draft for key, draft in self._drafts.items() if draft.kept < len(draft.pages)}
        self._new = [
            (key, page) for key, draft in self._drafts.items() for page in draft.pages if isinstance(page, _NewPage)
        ]
        return [(index_partition(key), page.value) for key, page in self._new]

    def changes(self, offsets: Sequence[int]) -> list[IndexValue]:
        """Return the records of changes, now that the pages stand at these offsets."""
        state = self._state
        for (key, page), offset in zip(self._new, offsets, strict=True):
            page.ref = page.ref._replace(offset=offset)
            self._bytes[index_partition(key)] += len(page.value)
        changed: defaultdict[int, list[EntryChange]] = defaultdict(list)
        for key, draft in self._drafts.items():
            number, entry = index_partition(key), draft.entry
            before = _bytes_from(entry, draft.kept)
            entry.replace(draft.kept, (it if isinstance(it, PageRef) else it.ref for it in draft.pages[draft.kept :]))
            state.live[number] += _bytes_from(entry, draft.kept) - before
            changed[number].append(EntryChange(key, draft.kept, entry))
        values: list[IndexValue] = []
        for number in sorted(changed.keys() | self._whole):
            directory, (since, records) = state.directories[number], state.since[number]
            due = since + self._bytes[number] >= CHECKPOINT_BYTES or records + 1 >= CHECKPOINT_RECORDS
            if not directory.begun or due:
                self._whole.add(number)
            if number in self._whole:
                directory.begun = True
                everything = (EntryChange(key, 0, entry) for key, entry in directory.entries.items())
                parts = encode_changes(everything, voids=True)
            else:
                parts = encode_changes(changed[number])
            values += [(number, part) for part in parts]
        return values

    def root(self, written: Iterable[tuple[int, int, int]], now_ms: int) -> bytes:
        """Return the root, now that the changes stand there: partition, offset and size of each, in their order."""
        state = self._state
        firsts: dict[int, int] = {}
        ends: dict[int, int] = {}
        for number, offset, size in written:
            firsts.setdefault(number, offset)
            ends[number] = offset + 1
            self._bytes[number] += size
        for number, end in ends.items():
            it, size = state.root.partitions[number], self._bytes[number]
            whole = number in self._whole
            since, records = (0, 0) if whole else state.since[number]
            state.since[number] = (since, records) if whole else (since + size, records + 1)
            it = it._replace(end=end, first=firsts[number] if whole else it.first, bytes=it.bytes + size)
            it = it._replace(bytes_since=it.bytes_since + size if it.rewritten_from else 0)
            if number in self._finished:
                it = PagePartition(it.first, it.end, it.rewritten_from, it.bytes_since)
            state.root.partitions[number] = it
        state.root.commit_ms = now_ms
        return encode_root(state.root)


def ref_of(page: MapPage, size: int, before: PageRef | None) -> PageRef:
    """Describe a page that follows another one of its source partition; its offset is not known yet."""
    after, end = (before.after, before.target_end) if before is not None else (-1, -1)
    turns, low, first = False, OFFSET_MAX, (-1, -1)
    for one in page.sections:
        section = one.section
        turns = turns or section.repair or (after >= 0 and section.before != after)
        if section.claims_target:
            turns = turns or section.first_target < end
            low = min(low, section.first_target)
        if section.runs and first[0] < 0:
            first = section.runs[0][0], section.first_target
        after, end = section.after, max(end, section.target_end)
    pruned = any(one.section.pruned is not None for one in page.sections)
    return PageRef(
        offset=0,
        bytes=size,
        sections=sum(one.section.transactions for one in page.sections),
        before=page.sections[0].section.before,
        after=after,
        first_source=first[0],
        first_target=first[1],
        target_low=low,
        target_end=max(end, 0),
        first_ms=page.sections[0].commit_ms,
        last_ms=page.sections[-1].commit_ms,
        flags=TURNS * turns | HAS_PRUNED * pruned,
    )


def _expired(pages: Sequence[PageRef | _NewPage], log_start: int) -> int:
    """Return how many of the first pages have no copy that may still stand."""
    count = 0
    while count < len(pages):
        page = pages[count]
        if not isinstance(page, PageRef) or page.target_end > log_start:
            break
        count += 1
    return count


def _bytes_from(entry: PartitionEntry, number: int) -> int:
    return sum(entry[at].bytes for at in range(number, len(entry)))


def _is_pruned(page: PageRef | _NewPage) -> bool:
    return isinstance(page, PageRef) and bool(page.flags & HAS_PRUNED)


def _entries(one: TimedSection) -> int:
    return len(one.section.runs) + len(one.section.aside) + len(one.section.dropped)


def _size(one: TimedSection) -> int:
    return 6 + 3 * len(one.section.runs) + 8 * (len(one.section.aside) + len(one.section.dropped))

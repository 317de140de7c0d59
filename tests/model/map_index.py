"""The map's topic and its index as logs, and processes that consolidate: they die anywhere, and wake up late.

What consolidates and what gives sections to readers is the real code; here are its clusters.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from replicator.flow.map_consolidation import BlockBounds, MapConsolidation
from replicator.offset_map.block import MapBlock, decode_block, encode_blocks
from replicator.offset_map.consolidate import IndexState, IndexValue
from replicator.offset_map.delivered import SectionDelivery
from replicator.offset_map.directory import CHANGES, IndexRoot, PageDirectory, decode_root, kind_of
from replicator.offset_map.fold import PlacedSection
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.page import MapPage, TimedSection, decode_page
from replicator.offset_map.section import NO_DIGEST, RECORDS_DIGEST, topic_id_text
from replicator.offset_map.topic import INDEX_PARTITIONS, MAP_PARTITIONS, PAGE_PARTITIONS, ROOTS, index_partition

MAP_ID = bytes(range(1, 17))


class Died(Exception):
    """The process is gone."""


class ShutOut(Exception):
    """Another one has the transactional id."""


class Gone(Exception):
    """What a reader wants is below the log's start."""


@dataclass
class RawLog:
    """A partition of the map's topic: committed blocks, and None for what is no record."""

    values: list[bytes | None] = field(default_factory=list)
    start: int = 0


@dataclass
class IndexLog:
    """A partition of the index: values with the number of their transaction, None for markers."""

    values: list[tuple[int, bytes | None]] = field(default_factory=list)
    start: int = 0


@dataclass
class MapLogs:
    """Both topics. `visible`: how many blocks of each partition were written by now; of the others none knows yet."""

    drawn: random.Random
    raw: list[RawLog] = field(default_factory=lambda: [RawLog() for _ in range(MAP_PARTITIONS)])
    index: list[IndexLog] = field(default_factory=lambda: [IndexLog() for _ in range(INDEX_PARTITIONS)])
    visible: list[int] = field(default_factory=lambda: [0] * MAP_PARTITIONS)
    order: list[tuple[int, int]] = field(default_factory=list)
    outcome: dict[int, bool] = field(default_factory=dict)
    epoch: int = 0
    transactions: int = 0
    log_starts: dict[SectionKey, int] = field(default_factory=dict)

    def write_blocks(self, sections: Iterable[PlacedSection]) -> None:
        """A block for each, in the partition of its generation; commit times go up by what is drawn."""
        now_ms = 1_764_000_000_000
        for placed in with_digests(sections):
            number = placed.generation * 5 % MAP_PARTITIONS
            now_ms += self.drawn.choice((0, 1, 90, 100, 5_000))
            (value,) = encode_blocks(placed.generation, number, now_ms, [placed.section])
            self.raw[number].values.append(value)
            self.order.append((number, len(self.raw[number].values)))
            if self.drawn.random() < 0.5:
                self.raw[number].values.append(None)

    def reveal(self, count: int) -> None:
        """So many further blocks have been written by now, in their order."""
        for number, visible in self.order[:count]:
            self.visible[number] = max(self.visible[number], visible)
        del self.order[:count]

    def committed(self, number: int, first: int = 0) -> list[tuple[int, bytes]]:
        log = self.index[number]
        found = enumerate(log.values)
        return [
            (at, it)
            for at, (txn, it) in found
            if it is not None and at >= max(first, log.start) and self.outcome.get(txn)
        ]

    def root(self) -> IndexRoot | None:
        found = self.committed(ROOTS)
        return decode_root(found[-1][1]) if found else None

    def directory(self, number: int, root: IndexRoot) -> PageDirectory:
        directory, it = PageDirectory(), root.partitions[number]
        for offset, value in self.committed(number, it.first):
            if offset < it.end and kind_of(value) == CHANGES:
                directory.take(value)
        if it.first < it.end and not directory.begun:
            raise Gone
        return directory

    def page(self, number: int, offset: int) -> bytes:
        log = self.index[number]
        if offset < log.start:
            raise Gone
        value = log.values[offset][1]
        assert value is not None
        assert self.outcome.get(log.values[offset][0]), "a page of a transaction that was not committed"
        return value


class Process:
    """One that consolidates: implements `BlocksLog`, `IndexStore`, `LogStarts` and the clock. `steps`: after so many it
    dies; None: it lives."""

    def __init__(self, logs: MapLogs, steps: int | None = None, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.logs, self.steps, self.meanwhile = logs, steps, meanwhile
        self.epoch, self.txn = -1, -1
        self._now_s, self.topic_id = 0.0, MAP_ID
        self.consolidation = MapConsolidation(_Blocks(self), _Index(self), self, self)

    def step(self) -> None:
        if self.steps is not None:
            if self.steps == 0:
                raise Died
            self.steps -= 1
        self.meanwhile()

    def now_s(self) -> float:
        self._now_s += 1
        return self._now_s

    def now_ms(self) -> int:
        return int(self._now_s * 1000)

    def bounds(self) -> BlockBounds | None:
        """The partitions are asked one after the other, and are written meanwhile."""
        self.step()
        starts, stable = [log.start for log in self.logs.raw], [0] * MAP_PARTITIONS
        for number in self.logs.drawn.sample(range(MAP_PARTITIONS), MAP_PARTITIONS):
            if self.logs.drawn.random() < 0.1:
                self.logs.reveal(self.logs.drawn.randrange(3))
            stable[number] = self.logs.visible[number]
        return BlockBounds(topic_id_text(self.topic_id), starts, stable)

    def fence(self) -> None:
        self.step()
        self.logs.epoch += 1
        self.epoch = self.logs.epoch
        for log in self.logs.index:  # its open transaction is aborted: a marker in each partition that it has written
            open_ = {txn for txn, _ in log.values} - self.logs.outcome.keys() - {-1}
            if open_:
                log.values.append((-1, None))
        for log in self.logs.index:
            for txn, _ in log.values:
                if txn >= 0:
                    self.logs.outcome.setdefault(txn, False)

    def read_index(self) -> IndexState | None:
        self.step()
        root = self.logs.root()
        if root is None:
            return None
        return IndexState(root, [self.logs.directory(number, root) for number in range(PAGE_PARTITIONS)])

    def read_blocks(self, partition: int, first: int, end: int) -> tuple[list[tuple[int, bytes]], int]:
        self.step()
        log = self.logs.raw[partition]
        to = min(end, first + self.logs.drawn.randrange(1, 8))
        values = enumerate(log.values)
        return [(at, it) for at, it in values if it is not None and max(first, log.start) <= at < to], to

    def page(self, partition: int, offset: int) -> bytes:
        self.step()
        return self.logs.page(partition, offset)

    def begin(self) -> None:
        self.step()
        self.logs.transactions += 1
        self.txn = self.logs.transactions

    def write(self, values: Iterable[IndexValue]) -> list[int]:
        self.step()
        if self.epoch != self.logs.epoch:
            raise ShutOut
        found = []
        for partition, value in values:
            log = self.logs.index[partition]
            found.append(len(log.values))
            log.values.append((self.txn, value))
        return found

    def commit(self) -> None:
        self.step()
        if self.epoch != self.logs.epoch:
            raise ShutOut
        self.logs.outcome[self.txn] = True
        for log in self.logs.index:
            if any(txn == self.txn for txn, _ in log.values):
                log.values.append((-1, None))
        self.step()

    def delete(self, logs: list[RawLog] | list[IndexLog], offsets: Mapping[int, int]) -> None:
        """Not fenced."""
        self.step()
        for partition, offset in offsets.items():
            assert offset <= len(logs[partition].values)
            logs[partition].start = max(logs[partition].start, offset)

    def log_starts(self) -> dict[SectionKey, int]:
        self.step()
        return self.logs.log_starts


class _Blocks:
    def __init__(self, process: Process) -> None:
        self.bounds, self.read = process.bounds, process.read_blocks
        self.delete = partial(process.delete, process.logs.raw)


class _Index:
    def __init__(self, process: Process) -> None:
        self.fence, self.read, self.page = process.fence, process.read_index, process.page
        self.begin, self.write, self.commit = process.begin, process.write, process.commit
        self.delete = partial(process.delete, process.logs.index)


def with_digests(sections: Iterable[PlacedSection]) -> Iterator[PlacedSection]:
    """Each has a digest of its own; some have none, and some are of another kind."""
    for number, placed in enumerate(sections):
        kind = (RECORDS_DIGEST, RECORDS_DIGEST, RECORDS_DIGEST, NO_DIGEST, RECORDS_DIGEST, 7)[number * 7 // 3 % 6]
        digest = number.to_bytes(16) if kind else b""
        yield placed._replace(section=replace(placed.section, digest_kind=kind, digest=digest))


class Collected:
    """The sections of one source partition, as a reader gets them."""

    def __init__(self) -> None:
        self.sections: list[TimedSection] = []

    def add(self, placed: PlacedSection, commit_ms: int) -> None:
        self.sections.append(TimedSection(placed.generation, commit_ms, placed.section))


def read_all(
    logs: MapLogs, keys: Iterable[SectionKey], meanwhile: Callable[[], None] = lambda: None, tries: int = 50
) -> dict[SectionKey, list[TimedSection]]:
    """Read as `proof.map_reader` does: the index, then blocks; again from the index where these are gone."""
    found = {key: Collected() for key in keys}
    delivery = SectionDelivery(found)
    for _ in range(tries):
        try:
            _read_once(logs, found, delivery, meanwhile)
        except Gone:
            continue
        return {key: it.sections for key, it in found.items()}
    raise AssertionError("a reader never comes to its end")


def is_gone(log: RawLog, at: int) -> bool:
    """Whether a block was deleted."""
    return log.start > at


def _read_once(
    logs: MapLogs, found: Mapping[SectionKey, Collected], delivery: SectionDelivery, meanwhile: Callable[[], None]
) -> None:
    root = logs.root()
    meanwhile()
    for key in found:
        number = index_partition(key)

        def load(offset: int, number: int = number) -> MapPage:
            meanwhile()
            return decode_page(logs.page(number, offset))

        entries = logs.directory(number, root).entries if root is not None else {}
        delivery.from_index(key, entries.get(key), load)
    covered = root.covered if root is not None else [0] * MAP_PARTITIONS
    blocks: list[tuple[int, int, MapBlock]] = []
    for number, log in enumerate(logs.raw):
        at = covered[number]
        while at < logs.visible[number]:
            meanwhile()
            if is_gone(log, at):
                raise Gone
            value = log.values[at] if at >= log.start else None
            if value is not None:
                block = decode_block(value)
                blocks.append((block.generation, number, block))
            at += 1
    for _, _, block in sorted(blocks, key=lambda one: one[0]):
        for section in block.sections:
            delivery.from_block(block.generation, block.commit_ms, section)

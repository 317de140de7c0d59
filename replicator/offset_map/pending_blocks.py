"""Blocks of the map's topic that are read and not in its index yet, in the order in which they may go there. Pure.

Used by whoever consolidates. The sixteen partitions of the topic are read side by side, each up to its last stable
offset.

Invariant: the sections of a source partition go into the index in the order in which they were made. In one generation
they stand in one partition of the topic. Lanes of a generation are fenced, and their transactions have ended, before
those of the next one begin; so when a block of a generation has been read, all those of earlier ones are below the
stable offsets that are asked for *afterwards*. Until these are reached, blocks of the next generation wait.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from replicator.offset_map.block import MapBlock, decode_block
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.page import TimedSection
from replicator.offset_map.varints import BadBlock


class PendingBlock(NamedTuple):
    """A block at its offset; without `block`: bytes that say nothing. `bytes`: its size."""

    offset: int
    bytes: int
    block: MapBlock | None


class GenerationOrder(Exception):
    """A block of a generation stands behind those of a later one, which fencing rules out: nothing is consolidated."""


@dataclass(slots=True)
class ReadyBlocks:
    """Sections by source partition, in their order; offsets of the topic's partitions below which all are in them or in
    pages already; their highest generation; blocks that say nothing, by partition and offset."""

    sections: dict[SectionKey, list[TimedSection]]
    covered: list[int]
    generation: int
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    blocks: int = 0


class PendingBlocks:
    """Of one map topic."""

    def __init__(self, covered: Sequence[int], generation: int) -> None:
        """`covered` and `generation`: as the index's root has them."""
        self.read_to = list(covered)
        self.blocks, self.bytes = 0, [0] * len(self.read_to)
        self.oldest_s: float | None = None
        """When the first of them was read."""
        self._generation = self._highest = generation
        self._barrier: tuple[int, list[int]] | None = None  # generation, offsets below which earlier ones stand
        self._pending: list[deque[PendingBlock]] = [deque() for _ in covered]

    def stable(self, offsets: Sequence[int]) -> None:
        """Take the last stable offsets, asked for after all that was read so far."""
        if self._barrier is None and self._highest > self._generation:
            self._barrier = self._highest, list(offsets)

    def add(self, partition: int, offset: int, value: bytes, now_s: float) -> None:
        """Take a committed block. Raises NewerBlock: then nothing may be consolidated."""
        try:
            block = decode_block(value)
        except BadBlock as error:
            if hasattr(error, "incident"):
                raise
            block = None
        self._pending[partition].append(PendingBlock(offset, len(value), block))
        self.read_to[partition] = offset + 1
        self.blocks += 1
        self.bytes[partition] += len(value)
        if self.oldest_s is None:
            self.oldest_s = now_s
        if block is not None:
            self._highest = max(self._highest, block.generation)

    def passed(self, partition: int, offset: int) -> None:
        """Note that the partition was read up to an offset."""
        self.read_to[partition] = max(self.read_to[partition], offset)

    def take(self) -> ReadyBlocks:
        """Return what may go into the index now, which isn't pending any more. Raises GenerationOrder."""
        sections: dict[SectionKey, list[TimedSection]] = defaultdict(list)
        ready = ReadyBlocks(sections, [], self._generation)
        while True:
            for partition, pending in enumerate(self._pending):
                while pending and self._may_go(pending[0]):
                    self._move(partition, pending.popleft(), ready)
            if not self._next_generation():
                break
        ready.covered = [
            pending[0].offset if pending else self.read_to[partition] for partition, pending in enumerate(self._pending)
        ]
        ready.generation = self._generation
        if not self.blocks:
            self.oldest_s = None
        return ready

    def _may_go(self, one: PendingBlock) -> bool:
        if one.block is not None and one.block.generation < self._generation:
            raise GenerationOrder(f"a block of generation {one.block.generation} follows one of {self._generation}")
        return one.block is None or one.block.generation == self._generation

    def _move(self, partition: int, one: PendingBlock, ready: ReadyBlocks) -> None:
        self.blocks -= 1
        self.bytes[partition] -= one.bytes
        ready.blocks += 1
        if one.block is None:
            ready.unreadable.append((partition, one.offset))
            return
        for section in one.block.sections:
            key = section.source_topic_id, section.partition
            ready.sections[key].append(TimedSection(one.block.generation, one.block.commit_ms, section))

    def _next_generation(self) -> bool:
        """Go on with the next one, if all of the earlier ones is known to be read."""
        waiting = [it[0].block.generation for it in self._pending if it and it[0].block is not None]
        if not waiting or self._barrier is None:
            return False
        highest, offsets = self._barrier
        following = min(waiting)
        unread = [
            number
            for number, (at, barrier) in enumerate(zip(self.read_to, offsets, strict=True))
            if at < barrier and not self._pending[number]  # behind one of a later generation none of an earlier stands
        ]
        if following > highest or unread:
            return False
        self._generation = following
        if following == highest:
            self._barrier = None
        return True

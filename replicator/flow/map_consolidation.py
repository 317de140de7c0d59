"""Consolidates a flow's offset map: raw blocks go into its index and are deleted then. Started by `flow.wiring`, in a
thread beside the lanes, which never wait for it; what it does is in `map_index_writer` on Kafka.

One round: read the blocks that are committed → when there are enough, put them into pages → commit → delete.

Invariants
- Fence, then read the index to its end, then write: what is written goes on where the last commit ended.
- Invariant M5: raw blocks are deleted only where a root covers them that is *certainly committed*, and visible.
  DeleteRecords isn't fenced: a process that was paused and goes on deletes what its own last commit covers, and nothing
  else.
- After any failure everything is forgotten, and the next round begins with the fence.
- What is lost of the map is told, never closed up: the chain of a source partition breaks there, and readers see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from replicator.model.errors import Incident, NotAllowed
from replicator.offset_map.block import NewerBlock
from replicator.offset_map.consolidate import IndexState, IndexTransaction, IndexValue
from replicator.offset_map.directory import IndexRoot
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.pending_blocks import GenerationOrder, PendingBlocks
from replicator.offset_map.section import topic_id_bytes
from replicator.offset_map.topic import MAP_PARTITIONS, ROOTS
from replicator.offset_map.varints import BadBlock

BLOCKS_MAX, AGE_S_MAX = 256, 60.0
"""Readers find no more than so many blocks behind the index, for so long, and what was written while it was written."""
PARTITION_BYTES_MAX = 256 * 1024
"""Of blocks of one partition of the map in memory, and a fetch. Each has its own: where the blocks of one wait for
those of another one, these are read all the same."""
PRUNE_S = 600.0
ROOTS_KEPT = 64


class BlockBounds(NamedTuple):
    """The map's topic now: its id, where the log of each partition begins, and up to where it is stable."""

    topic_id: str
    starts: Sequence[int]
    stable: Sequence[int]


class BlocksLog(Protocol):
    """The map's topic. Raises ReplicatorError."""

    def bounds(self) -> BlockBounds | None:
        """Return the bounds of the blocks' log; None where there is no such topic."""

    def read(self, partition: int, first: int, end: int) -> tuple[list[tuple[int, bytes]], int]:
        """Return committed blocks at or above an offset, with theirs, and up to where was read: those of one fetch."""

    def delete(self, offsets: Mapping[int, int]) -> None:
        """Delete what is below these offsets, by partition, if it is still the topic whose bounds were asked last."""


class IndexStore(Protocol):
    """The index's topic, and the one producer that writes it. Raises ReplicatorError."""

    def fence(self) -> None:
        """Shut out whoever has written it before: with another producer each time."""

    def read(self) -> IndexState | None:
        """Read it to its end; None where nothing was ever committed."""

    def page(self, partition: int, offset: int) -> bytes:
        """Read a page."""

    def begin(self) -> None:
        """Begin a transaction."""

    def write(self, values: Iterable[IndexValue]) -> list[int]:
        """Write values and wait for them; their offsets."""

    def commit(self) -> None:
        """Commit, certainly; wait until readers see it."""

    def delete(self, offsets: Mapping[int, int]) -> None:
        """Delete what is below these offsets, by partition."""


class Times(Protocol):
    """As of `lane.ports.Clock`."""

    def now_s(self) -> float:
        """Return the monotonic time."""

    def now_ms(self) -> int:
        """Return the time of the wall clock."""


class LogStarts(Protocol):
    """Where the logs of target partitions begin."""

    def log_starts(self) -> dict[SectionKey, int]:
        """Return log starts by source topic id and partition, of the flow's topics as they are now."""


class RoundResult(NamedTuple):
    """What a round came to. `lost`: what isn't there any more, and was never put into the index, in a sentence; `more`:
    there was more to read."""

    blocks: int = 0
    deleted: bool = False
    lost: str = ""
    denied: NotAllowed | None = None
    pruned: int = 0
    more: bool = False


@dataclass(slots=True)
class _Begun:
    """Since the last fence. `deleted`, `index_deleted`: up to which offsets of both topics was deleted; `roots`: where
    those that were written and not deleted stand."""

    topic_id: str
    state: IndexState
    pending: PendingBlocks
    deleted: list[int]
    index_deleted: dict[int, int] = field(default_factory=dict)
    roots: list[int] = field(default_factory=list)


class MapConsolidation:
    """Of one flow. Used by one thread."""

    def __init__(self, blocks: BlocksLog, index: IndexStore, targets: LogStarts, clock: Times) -> None:
        self._blocks, self._index, self._targets, self._clock = blocks, index, targets, clock
        self._begun: _Begun | None = None
        self._pruned_s = clock.now_s()

    def round(self, *, all_of_it: bool = False) -> RoundResult:
        """Read what is new, and consolidate it if it is enough, or if `all_of_it` is wanted.

        Raises what the clusters raise; Incident `newer_format`, and `map_lost` where blocks contradict one another, or
        the index can't be read.
        """
        try:
            return self._round(all_of_it=all_of_it)
        except (GenerationOrder, BadBlock) as error:
            self._begun = None
            name = error.incident if isinstance(error, NewerBlock) else "map_lost"
            raise Incident(name, f"it is not consolidated: {error}") from error
        except BaseException:
            self._begun = None
            raise

    def _round(self, *, all_of_it: bool) -> RoundResult:
        bounds = self._blocks.bounds()
        if bounds is None:
            self._begun = None
            return RoundResult()
        lost = ""
        begun = self._begun
        if begun is None or begun.topic_id != bounds.topic_id or _below(begun.pending.read_to, bounds.starts):
            lost = self._begin(bounds)
            begun = self._begun
            assert begun is not None
        if not self._read(begun, bounds):
            self._begun = None  # somebody has deleted what was about to be read: the index has it, or it is lost
            return RoundResult(lost=lost)
        pending, now_s = begun.pending, self._clock.now_s()
        old = pending.oldest_s is not None and now_s - pending.oldest_s >= AGE_S_MAX
        prunes = now_s - self._pruned_s >= PRUNE_S
        full = max(pending.bytes) >= PARTITION_BYTES_MAX
        more = any(to < stable for to, stable in zip(pending.read_to, bounds.stable, strict=True))
        if not (pending.blocks >= BLOCKS_MAX or full or old or prunes or all_of_it):
            return self._deleted(begun, RoundResult(lost=lost))
        return self._deleted(begun, self._commit(begun, lost, prunes=prunes))._replace(more=more)

    def _begin(self, bounds: BlockBounds) -> str:
        """Shut others out and read the index; say what of the raw blocks is in neither."""
        self._index.fence()
        state, topic_id = self._index.read(), topic_id_bytes(bounds.topic_id)
        fresh = state is None
        if state is None:
            state = IndexState(IndexRoot(topic_id))
        root, lost = state.root, ""
        if root.map_topic_id != topic_id:
            root.map_topic_id, root.covered, root.unreadable = topic_id, list(bounds.starts), {}
        elif gone := [number for number in range(MAP_PARTITIONS) if bounds.starts[number] > root.covered[number]]:
            where = f"partition {gone[0]} begins at offset {bounds.starts[gone[0]]}"
            has = "there is no index" if fresh else f"the index covers those below {root.covered[gone[0]]}"
            lost = f"blocks are gone that are in no page: {where}, and {has}"
            root.covered = [max(pair) for pair in zip(root.covered, bounds.starts, strict=True)]
        pending = PendingBlocks(root.covered, root.generation)
        self._begun = _Begun(bounds.topic_id, state, pending, list(bounds.starts))
        return lost

    def _read(self, begun: _Begun, bounds: BlockBounds) -> bool:
        """Read what is stable; whether nothing of it was deleted meanwhile."""
        pending, from_ = begun.pending, list(begun.pending.read_to)
        pending.stable(bounds.stable)
        for number in range(MAP_PARTITIONS):
            while pending.read_to[number] < bounds.stable[number] and pending.bytes[number] < PARTITION_BYTES_MAX:
                first = pending.read_to[number]
                blocks, to = self._blocks.read(number, first, bounds.stable[number])
                for offset, value in blocks:
                    pending.add(number, offset, value, self._clock.now_s())
                pending.passed(number, to)
        if pending.read_to == from_:
            return True
        again = self._blocks.bounds()
        if again is None or again.topic_id != begun.topic_id or _below(from_, again.starts):
            return False
        pending.stable(again.stable)
        return True

    def _commit(self, begun: _Begun, lost: str, *, prunes: bool) -> RoundResult:
        ready = begun.pending.take()
        starts = self._targets.log_starts() if prunes else {}
        transaction = IndexTransaction(begun.state, self._index.page)
        moved = ready.covered != begun.state.root.covered
        transaction.take(ready)
        pruned = transaction.prune(starts)
        if prunes:
            self._pruned_s = self._clock.now_s()
        if not (ready.blocks or pruned or moved):
            return RoundResult(lost=lost)
        transaction.make_room()
        index = self._index
        index.begin()
        changes = transaction.changes(index.write(transaction.pages()))
        offsets = index.write(changes)
        written = [(at, offset, len(value)) for (at, value), offset in zip(changes, offsets, strict=True)]
        begun.roots += index.write([(ROOTS, transaction.root(written, self._clock.now_ms()))])
        index.commit()
        return RoundResult(ready.blocks, lost=lost, pruned=pruned)

    def _deleted(self, begun: _Begun, result: RoundResult) -> RoundResult:
        """Delete what isn't needed any more. Called with a state that is committed, by this process or before it."""
        root = begun.state.root
        raw = {number: covered for number, covered in enumerate(root.covered) if covered > begun.deleted[number]}
        low = {
            number: it.low for number, it in enumerate(root.partitions) if it.low > begun.index_deleted.get(number, 0)
        }
        if len(begun.roots) > ROOTS_KEPT:
            low[ROOTS] = begun.roots[-1]
        if not raw and not low:
            return result
        try:
            if raw:
                self._blocks.delete(raw)
            if low:
                self._index.delete(low)
        except NotAllowed as error:
            return result._replace(denied=error)
        begun.deleted = [raw.get(number, it) for number, it in enumerate(begun.deleted)]
        begun.index_deleted |= low
        if ROOTS in low:
            begun.roots = begun.roots[-1:]
        return result._replace(deleted=True)


def _below(read_to: Sequence[int], starts: Sequence[int]) -> bool:
    return any(start > to for to, start in zip(read_to, starts, strict=True))

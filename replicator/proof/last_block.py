"""Compares the last block of a position's digest with what stands on the target. Used by `verify`, `local`
and, on Spark, `reconcile`.

The position says where the block stands, which digest it follows and which it gives. A digest of batches can be
compared only while the target has them as they were sent: one that was compressed anew, or changed by log compaction,
is another batch with the same records, and nothing is wrong with it. Where the target gives records times of its own
(LogAppendTime), no digest can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from kafka_records.batch import CorruptBatch
from kafka_records.fetched import FetchedBatch
from kafka_records.records import decode
from replicator.model.checkpoint import DIGEST_KIND, DIGEST_UNTOLD
from replicator.model.counting import counted
from replicator.planes.batches_io.digest import PayloadChain, fields_of
from replicator.planes.records.digest import Chain
from replicator.proof.outcome import PartitionOutcome
from replicator.proof.pairs import DigestBlock, Pair
from replicator.proof.partition_side import PartitionSide
from replicator.wire.committed_log import corrupt

BlockVerdict = Literal["equal", "differs", "unverifiable"]
OLDER = "the position was written by a version that doesn't say which digest the block follows"
EXPIRED = "some of it is below the target's log start"
COMPACTED = "log compaction may have taken records out of it"
RECOMPRESSED = "the target has compressed its batches anew"
RETIMED = "the target gives records times of its own (message.timestamp.type)"


class BlockCheck(NamedTuple):
    """What a comparison says of the block at `first`, of so many records, and why if it isn't `equal`."""

    verdict: BlockVerdict
    first: int
    records: int
    kind: str
    why: str = ""

    def said(self) -> str:
        """Say it in one sentence."""
        what = f"the position's last block ({counted(self.records, 'record')} from target offset {self.first} on)"
        if self.verdict == "equal":
            return f"{what} has the digest that the position says"
        why = f": {self.why}"
        return f"{what} can't be compared by its digest{why}" if self.verdict == "unverifiable" else f"{what}{why}"


def last_block(pair: Pair, target: PartitionSide) -> BlockCheck | None:
    """Compare the last block of a pair's position; None: it has none. Raises as `PartitionSide`."""
    block = pair.block
    if block is None:
        return None
    # Asked after the position was read, which is written where its records are: a log that ends before has lost them.
    if (end := target.end()) < block.end:
        told = block.first, block.end - block.first, block.kind
        return BlockCheck("differs", *told, f"the target ends at offset {end}, before it does")
    batches = target.batches((block.first, block.end))
    try:
        return check_block(block, batches, target.start, compacted=pair.target_compacted)
    except CorruptBatch as error:
        raise corrupt(pair.target, block.first, error) from error


def names_block(pair: Pair) -> bool:
    """Say whether a pair's position names a block that is compared: not without a count of what was copied."""
    return pair.block is not None and pair.count is not None


def with_last_block(outcome: PartitionOutcome, pair: Pair, target: PartitionSide) -> PartitionOutcome:
    """Add a note to an outcome where the last block of its position isn't equal. Raises as `last_block`."""
    block = last_block(pair, target) if names_block(pair) else None
    if block is None or block.verdict == "equal":
        return outcome
    return replace(outcome, notes=(*outcome.notes, block.said()))


def check_block(
    block: DigestBlock, batches: Iterable[FetchedBatch], log_start: Callable[[], int], *, compacted: bool
) -> BlockCheck:
    """Compare a block.

    Args:
        batches: the committed ones that have offsets of the block.
        log_start: asks for the target's, once `batches` were read.
        compacted: whether the target's topic has log compaction.

    Raises CorruptBatch.
    """
    told = block.first, block.end - block.first, block.kind
    if block.before == DIGEST_UNTOLD:
        return BlockCheck("unverifiable", *told, OLDER)
    digested = _of_records if block.kind == DIGEST_KIND else _of_batches
    retimed = False

    def seen() -> Iterator[FetchedBatch]:
        nonlocal retimed
        for batch in batches:
            retimed = retimed or batch.header.is_log_append_time
            yield batch

    records, digest, codecs = digested(block, seen())
    if log_start() > block.first:
        return BlockCheck("unverifiable", *told, EXPIRED)
    if records == told[1] and digest == block.digest:
        return BlockCheck("equal", *told)
    if compacted:
        return BlockCheck("unverifiable", *told, COMPACTED)
    if records != told[1]:
        return BlockCheck("differs", *told, f"{counted(records, 'record')} stand there")
    if retimed:
        return BlockCheck("unverifiable", *told, RETIMED)
    if codecs != block.codecs:
        return BlockCheck("unverifiable", *told, RECOMPRESSED)
    return BlockCheck("differs", *told, "its digest isn't the one that the position says")


def _of_records(block: DigestBlock, batches: Iterable[FetchedBatch]) -> tuple[int, str, int]:
    """Return how many records of the block there are, and their digest."""
    chain, count = Chain(block.before), 0
    for batch in batches:
        found = [record for record in decode(batch.data) if block.first <= record.offset < block.end]
        chain.update(map(fields_of, found))
        count += len(found)
    return count, chain.hexdigest(), block.codecs


def _of_batches(block: DigestBlock, batches: Iterable[FetchedBatch]) -> tuple[int, str, int]:
    """Return how many records of the block there are, the digest of the batches, and their compression types."""
    chain, count = PayloadChain(block.before, block.kind), 0
    for batch in batches:
        header = batch.header
        inside = block.first <= batch.first_offset and batch.last_offset < block.end
        count += header.record_count if inside else 0
        chain.update(header, batch.data)
    return count, chain.hexdigest(), chain.codecs

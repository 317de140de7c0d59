"""The positions of one lane: what is committed, what the open transaction will commit. Pure.

Invariants
- A position is what the target has committed; it changes only after a commit that is certain.
- A partition that waits, or that an incident stopped, keeps its position and is re-committed with the others, so it
  cannot expire while somebody decides (invariant 7).
- Source offsets have gaps (invariant 11): a position moves past them at a partition's end, without a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from replicator.lane.partition import Commits, LanePartition
from replicator.lane.partitions import Partitions
from replicator.model import checkpoint
from replicator.model.checkpoint import Evidence, Position, Stored
from replicator.model.delivery import Delivery
from replicator.model.errors import Incident
from replicator.model.partition import Committed, Partition, Seek
from replicator.planes.contract import Copied


class LanePositions:
    """All partitions of one lane, by source partition."""

    def __init__(
        self,
        partitions: Partitions,
        owner: str,
        generation: int,
        delivery: str,
        kept: Mapping[Partition, Stored] | None = None,
    ) -> None:
        """`kept` are positions by target partition that the flow has, but doesn't copy to now."""
        self.entries, self.kept = partitions, dict(kept or {})
        self._owner, self._generation, self._delivery = owner, generation, delivery
        self._since_ms = 0  # when the owner committed its first position

    @property
    def copying(self) -> Mapping[Partition, LanePartition]:
        """Partitions of which records are copied: neither waiting nor stopped."""
        return self.entries.copied

    def seeks(self) -> dict[Partition, Seek]:
        """Return where to read next: the committed positions of all partitions that are copied."""
        return {
            at: Seek(entry.position.offset, entry.position.evidence.leader_epoch)
            for at, entry in self.copying.items()
            if entry.position is not None
        }

    def is_ahead(self, at: Partition, incident: Incident) -> bool:
        """Tell whether an incident is of what was read ahead of a position that has a leader epoch, by which the next
        seek to it is checked."""
        position = self.seeks().get(at)
        return position is not None and position.leader_epoch >= 0 and incident.offset > position.offset

    def next_positions(
        self, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek], now_ms: int
    ) -> dict[Partition, Position]:
        """Compute the positions after the open transaction, of partitions that moved, by source partition.

        Raises Incident when an acknowledged record stands below what the position promised (the target lost data), and
        when a record's leader epoch is below the position's (epochs only grow: the source's log was cut).
        """
        moved: dict[Partition, Position] = {}
        for at, entry in self.copying.items():
            position, done = entry.position, copied.get(at)
            if position is None:
                continue
            offset = position.offset
            if done is not None:
                offset = max(offset, done.next_offset)
            end = ends.get(at) if done is None or done.blocked is None else None
            past = end if end is not None and end.offset > offset else None
            if past is not None:
                offset = past.offset
            if offset == position.offset:
                continue
            changes = self._stamp(position.evidence, now_ms) | {"moved_ms": now_ms}
            if done is not None and 0 <= done.leader_epoch < position.evidence.leader_epoch:
                raise _epoch_went_back(at, position, done.leader_epoch)
            if done is not None and done.records:
                changes |= _extend(at, position, done) | {"delivery": self._delivery}
            elif done is not None and done.blocked is not None:  # stands before its first record, perhaps past markers
                changes["leader_epoch"] = done.leader_epoch
            if past is not None:  # an older epoch ends before these offsets: that would look like truncation
                changes["leader_epoch"] = past.leader_epoch
            moved[at] = Position(offset, replace(position.evidence, **changes))
        return moved

    def skipped(self, at: Partition, end: int, now_ms: int) -> Position:
        """Compute the position of a partition that an operator has go on at source offset `end`.

        The leader epoch of what stands before it isn't known: an older one ends before `end`, which would look like
        truncation (KIP-320). Raises ValueError where it would not move forward.
        """
        position = self.entries[at].position
        if position is None or position.offset >= end:
            raise ValueError(f"{at} stands at {position}, not before {end}")
        changes = self._stamp(position.evidence, now_ms) | {"moved_ms": now_ms, "leader_epoch": -1}
        return Position(end, replace(position.evidence, **changes))

    def repaired(self, at: Partition, done: Copied, now_ms: int) -> Position:
        """Compute the position of a partition after records below it were copied again. It stands where it stood.

        They are not counted again: they were when the position passed them.
        """
        entry = self.entries[at]
        if entry.position is None:
            raise ValueError(f"{at} has no position")
        changes = self._stamp(entry.position.evidence, now_ms) | {
            "next_target_offset": done.next_target,
            "digest": done.digest,
            "digest_kind": done.digest_kind,
            "digest_before": entry.position.evidence.digest,
            "block_codecs": done.block_codecs,
            "block_first": done.first_target,
            "block_count": done.records,
        }
        return Position(entry.position.offset, replace(entry.position.evidence, **changes))

    def _stamp(self, evidence: Evidence, now_ms: int, owner: str | None = None) -> dict[str, Any]:
        """Return the fields of the evidence that every commit changes, with oneself as owner (or `owner`).

        Exactly-once is claimed only with the first records that were written so.
        A generation that is newer than one's own stays: that contradiction is the incident, and must outlive it.
        """
        weaker = self._delivery != Delivery.EXACTLY_ONCE.value
        owner, since_ms = self._owner if owner is None else owner, now_ms
        if owner == self._owner:
            since_ms = self._since_ms = self._since_ms or now_ms
        return {
            "owner": owner,
            "owned_ms": evidence.owned_ms if owner == evidence.owner else since_ms,
            "generation": max(self._generation, evidence.generation),
            "delivery": self._delivery if weaker else evidence.delivery,
            "committed_ms": now_ms,
        }

    def recommits(self, now_ms: int, owner: str | None = None) -> dict[Partition, Committed]:
        """Return every position with oneself as owner, by target partition; what can't be read, and what nothing is
        copied to, as it stands. With another `owner`, to whom they are released: those that the target has, as no
        claim is committed with them (invariant 4)."""
        offsets = {target: checkpoint.written(found) for target, found in self.kept.items()}
        for entry in self.entries.values():
            if entry.commits is not Commits.YES:
                continue
            if entry.unreadable is not None:
                offsets[entry.route.target] = checkpoint.written(entry.unreadable)
            elif (position := entry.position if owner is None else entry.stored) is not None:
                again = replace(position.evidence, **self._stamp(position.evidence, now_ms, owner))
                offsets[entry.route.target] = checkpoint.written(Position(position.offset, again))
        return offsets

    def offsets(self, positions: Mapping[Partition, Position]) -> dict[Partition, Committed]:
        """Return what TxnOffsetCommit takes, by target partition."""
        return {self.entries[at].route.target: checkpoint.written(position) for at, position in positions.items()}

    def on_committed(self, positions: Mapping[Partition, Position]) -> None:
        """Note that the transaction with these positions is certainly committed."""
        for at, position in positions.items():
            self.entries[at].position = position


def check_acks(at: Partition, position: Position, done: Copied) -> None:
    """Raise Incident when an acknowledged record stands below what the position promised."""
    if 0 <= done.first_target < position.evidence.next_target_offset:
        raise Incident(
            "target_lost_data",
            f"a record was acknowledged at target offset {done.first_target}, but the position says that this flow "
            f"had written up to {position.evidence.next_target_offset - 1}",
            topic=at.topic,
            partition=at.partition,
            offset=position.offset,
        )


def _extend(at: Partition, position: Position, done: Copied) -> dict[str, Any]:
    """Return the fields of the evidence that copied records change."""
    check_acks(at, position, done)
    return {
        "leader_epoch": done.leader_epoch,
        "next_target_offset": max(done.next_target, position.evidence.next_target_offset),
        "count": position.evidence.count + done.records,
        "digest": done.digest,
        "digest_kind": done.digest_kind,
        "digest_before": position.evidence.digest,
        "block_codecs": done.block_codecs,
        "block_first": done.first_target,
        "block_count": done.records,
    }


def _epoch_went_back(at: Partition, position: Position, epoch: int) -> Incident:
    return Incident(
        "source_truncated",
        f"a record after offset {position.offset} has leader epoch {epoch}, the position was reached under "
        f"{position.evidence.leader_epoch}: the source's log was cut below the position",
        topic=at.topic,
        partition=at.partition,
        offset=position.offset,
    )

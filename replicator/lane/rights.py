"""Which partitions of a lane lack a right on their topics, and whether the target takes their positions all the same.
Used by `lane.start`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from replicator.lane.partition import Commits, LanePartition
from replicator.lane.partitions import Partitions
from replicator.lane.ports import Connections
from replicator.model.errors import Retriable, Unreachable
from replicator.model.partition import Partition


@dataclass(frozen=True, slots=True)
class MissingRight:
    """What a partition lacks, and whether the target takes its position without it."""

    text: str
    commits: Commits


class Rights:
    """Asks both clusters for the user's rights on a lane's topics."""

    def __init__(self, partitions: Partitions, to: Connections) -> None:
        self._partitions, self._to = partitions, to

    def missing(self, partitions: Collection[Partition]) -> dict[Partition, MissingRight]:
        """Find which of these source partitions lack a right on their source or target topic."""
        if not partitions:
            return {}
        try:
            here = self._to.source.missing_rights({at.topic for at in partitions})
        except (Unreachable, Retriable):
            here = {}  # checked again, they wait for the source's answer; the target's positions are kept alive
        there = self._to.target.missing_rights({self._partitions[at].route.target.topic for at in partitions})
        found: dict[Partition, MissingRight] = {}
        for at in partitions:
            partition = self._partitions[at]
            mine, other = here.get(at.topic), there.get(partition.route.target.topic)
            committable = other is None or "Read" not in other.operations
            texts = [rights.text for rights in (mine, other) if rights is not None]
            if not committable:
                texts.append(self._expiry(partition))
            if texts:
                commits = Commits.YES if committable else Commits.NO_RIGHT
                found[at] = MissingRight("; ".join(text for text in texts if text), commits)
        return found

    def restore(self) -> None:
        """Let those positions be committed again whose right is back."""
        kept_out = [it for it in self._partitions.values() if it.commits is Commits.NO_RIGHT]
        if kept_out:
            there = self._to.target.missing_rights({it.route.target.topic for it in kept_out})
            lacking = {name for name, rights in there.items() if "Read" in rights.operations}
            for partition in kept_out:
                if partition.route.target.topic not in lacking:
                    partition.commits = Commits.YES

    def _expiry(self, partition: LanePartition) -> str:
        """Say until when the target keeps a position that can't be committed without Read on its topic."""
        if partition.position is None or not partition.position.evidence.committed_ms:
            return ""  # it was never committed
        kept_ms = self._to.target.offsets_retention_ms()
        if kept_ms is None:
            return "its position can't be committed again meanwhile and expires"
        until = datetime.fromtimestamp((partition.position.evidence.committed_ms + kept_ms) / 1000, UTC)
        return f"its position can't be committed again meanwhile and expires at {until.isoformat(timespec='seconds')}"

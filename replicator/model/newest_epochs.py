"""The newest leader epoch that was told of each partition, by which an answer of a broker that knows less is refused.

Brokers hear of a new leader one after the other, and one that is cut off from the controllers never does: it names the
leader that it knew last. An epoch never goes back in a topic (KIP-320); one that was created again begins anew. Kafka's
own client goes by the same rule (org.apache.kafka.clients.Metadata). Pure. Used by `planes.batches_io.producing`,
`group_sync.newest_leaders`, `wire.newest_offsets` and `wire.transaction_log_tail`.
"""

from __future__ import annotations

from replicator.model.partition import Partition


def old_leader(at: Partition, epoch: int, newest: int) -> str:
    """Say that an answer under an epoch isn't believed, and the way out where no other one will ever come."""
    said = f"of {at} leader epoch {epoch} is told, but {newest} was before: an old leader, whose log may lack records"
    restored = "if the cluster's controllers were restored from a backup"
    return f"{said}; {restored}, start the flow again, and use `position set` where that doesn't help"


class NewestEpochs:
    """Of the partitions of one cluster."""

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}
        self._newest: dict[str, dict[int, int]] = {}

    def newest(self, at: Partition) -> int:
        """Return the newest epoch that was told; -1: none."""
        return self._newest.get(at.topic, {}).get(at.partition, -1)

    def topic(self, topic: str, topic_id: bytes) -> None:
        """Take note of a topic's id: what was told of another one under this name counts no more."""
        if any(topic_id) and self._ids.setdefault(topic, topic_id) != topic_id:
            self._ids[topic] = topic_id
            self._newest.pop(topic, None)

    def take(self, at: Partition, epoch: int) -> bool:
        """Take what a broker tells; False: it is older than what was told before. -1, of a broker that tells none, is
        never that."""
        if 0 <= epoch < self.newest(at):
            return False
        if epoch >= 0:
            self._newest.setdefault(at.topic, {})[at.partition] = epoch
        return True

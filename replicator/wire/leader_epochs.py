"""Where a leader epoch ends in a partition's log (KIP-320): asked by `flow.truncation`, of the partition's leader."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from replicator.config import Cluster, Flow
from replicator.model.fetches import EpochEnd
from replicator.model.partition import Partition
from replicator.wire.epoch_ends import API
from replicator.wire.leader_questions import LeaderQuestions
from replicator.wire.protocol import Exchange, made

_CONSUMER, _UNKNOWN = -1, -1


class LeaderEpochs(LeaderQuestions):
    """Asks one cluster. Used by one thread; close it."""

    def __init__(self, flow: Flow, cluster: Cluster, stop: threading.Event) -> None:
        """See `LeaderQuestions`."""
        super().__init__(flow, cluster, stop, "epochs")

    def end_of(self, at: Partition, epoch: int) -> EpochEnd:
        """Return the largest epoch of the log that isn't above this one, and where it ends; -1: the log has none.

        Raises Unreachable, NotAllowed, Retriable, TopicMissing, Unsupported.
        """
        doing = f"find where leader epoch {epoch} of {at} ends"

        def fields(exchange: Exchange) -> Mapping[str, Any]:
            types = exchange.types
            row = made(
                types.OffsetForLeaderPartition,
                partition=at.partition,
                current_leader_epoch=_UNKNOWN,
                leader_epoch=epoch,
            )
            return {
                "replica_id": _CONSUMER,
                "topics": (types.OffsetForLeaderTopic(topic=at.topic, partitions=(row,)),),
            }

        def ask() -> EpochEnd:
            answer = self._ask(self._leader(at), API, fields)
            found = self._only([each for topic in answer.topics for each in topic.partitions], doing)
            self._check(found.error_code, doing, f"Describe on topic {at.topic!r}")
            return EpochEnd(0, found.leader_epoch, found.end_offset)

        return self._again(ask)

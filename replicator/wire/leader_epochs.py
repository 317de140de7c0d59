"""Where a leader epoch ends in a partition's log (KIP-320): asked by `flow.truncation`, of the partition's leader.

A broker that is cut off from the controllers names an old leader for ever, which answers of a log that nobody reads any
more. So the leader is asked under the epoch that it is named with, and whenever that doesn't fit, another broker is
asked who leads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from replicator.config import Cluster, Flow
from replicator.model.errors import Retriable
from replicator.model.fetches import EpochEnd
from replicator.model.partition import Partition
from replicator.wire.connection import ConnectionLost
from replicator.wire.epoch_ends import API
from replicator.wire.leader_questions import LeaderQuestions, NamedLeader
from replicator.wire.protocol import Exchange, made

_CONSUMER = -1


class OldLeader(Retriable):
    """No broker that answers knows a leader of the epoch that is asked about, or of a newer one."""


class LeaderEpochs(LeaderQuestions):
    """Asks one cluster. Used by one thread; close it."""

    def __init__(self, flow: Flow, cluster: Cluster, stop: threading.Event) -> None:
        """See `LeaderQuestions`."""
        super().__init__(flow, cluster, stop, "epochs")

    def end_of(self, at: Partition, epoch: int) -> EpochEnd:
        """Return the largest epoch of the log that isn't above this one, and where it ends; -1: the log has none.

        Raises Unreachable, NotAllowed, Retriable (OldLeader), TopicMissing, Unsupported.
        """
        doing = f"find where leader epoch {epoch} of {at} ends"

        def fields(leader: NamedLeader, exchange: Exchange) -> Mapping[str, Any]:
            types = exchange.types
            row = made(
                types.OffsetForLeaderPartition,
                partition=at.partition,
                current_leader_epoch=leader.epoch,
                leader_epoch=epoch,
            )
            return {
                "replica_id": _CONSUMER,
                "topics": (types.OffsetForLeaderTopic(topic=at.topic, partitions=(row,)),),
            }

        def ask() -> EpochEnd:
            leader = self._leader(at)
            if 0 <= leader.epoch < epoch:
                why = f"its leader is told with epoch {leader.epoch}, which is older"
                raise OldLeader(f"cluster {self._cluster.name!r}: cannot {doing}: {why}")
            answer = self._ask(leader.address, API, partial(fields, leader))
            found = self._only([each for topic in answer.topics for each in topic.partitions], doing)
            self._check(found.error_code, doing, f"Describe on topic {at.topic!r}")
            return EpochEnd(0, found.leader_epoch, found.end_offset)

        def ask_or_leave() -> EpochEnd:
            try:
                return ask()
            except (Retriable, ConnectionLost):
                self._brokers.another()
                raise

        return self._again(ask_or_leave)

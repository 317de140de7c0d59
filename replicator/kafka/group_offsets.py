"""Reads committed offsets of a consumer group. Used by `offset_reader`, for positions, and by `translation`.

A consumer reads them and not the admin client: librdkafka 2.16 crashes the process in ListConsumerGroupOffsets while
the group coordinator is coming up, and `committed` waits for it instead. It never joins the group.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from replicator.config import Cluster, Flow
from replicator.kafka import failures, metadata, properties
from replicator.model.errors import ReplicatorError, Retriable
from replicator.model.partition import Partition

_COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


class GroupOffsets:
    """A consumer that asks for the offsets of one group. Used by one thread.

    With `stable` the broker is asked for stable offsets (KIP-447): with an open transaction in the way it is asked
    again until the request timeout, because the answer may be older than what that transaction commits. librdkafka asks
    so only under `isolation.level=read_committed`.
    """

    def __init__(self, flow: Flow, cluster: Cluster, group: str, doing: str, *, stable: bool = True) -> None:
        """`doing`: what errors say that it can't do."""
        self._flow, self._cluster, self._group, self._stable = flow, cluster, group, stable
        self._doing, self._right = doing, f"Read and Describe on group {group!r}"
        self._timeout_s = flow.limits.request_timeout_ms / 1000
        self.consumer = self._made(stable)

    def _made(self, stable: bool) -> Consumer:
        settings = properties.reader(self._cluster, self._flow, committed=stable)
        with failures.making(self._cluster.name):
            return Consumer({**settings, "group.id": self._group, **properties.SILENT})

    def connect(self, topic: str) -> None:
        """Connect before the first question, see `metadata.connect`."""
        metadata.connect(self.consumer, topic)

    def ask(self, partitions: Sequence[Partition]) -> list[TopicPartition]:
        """Ask again while the coordinator comes up (it answers so on a new cluster), within the request timeout.

        A partition's own error stands in its answer. Raises Retriable, Unreachable or NotAllowed when the whole
        question failed.
        """
        asked = [TopicPartition(*at) for at in partitions]
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return self.consumer.committed(asked, timeout=max(0.1, deadline - time.monotonic()))
            except KafkaException as error:
                code = failures.kafka_error(error).code()
                if code in _COORDINATOR_MOVES and time.monotonic() < deadline:
                    self.consumer.poll(0.1)
                    continue
                if code == KafkaError._TIMED_OUT and self._stable and self._answers_unstable(asked):
                    raise Retriable(
                        f"cluster {self._cluster.name!r}: cannot {self._doing}: a transaction with new offsets "
                        f"hasn't ended for {self._timeout_s:.0f} s: its producer is alive, or the broker lost its "
                        "marker (see kafka-transactions.sh find-hanging)"
                    ) from error
                raise self.error(error, self._doing, self._right) from error

    def _answers_unstable(self, asked: list[TopicPartition]) -> bool:
        """Tell whether the cluster tells offsets that may not be stable: then it waits for a transaction."""
        consumer = self._made(stable=False)
        try:
            return bool(consumer.committed([TopicPartition(at.topic, at.partition) for at in asked], self._timeout_s))
        except KafkaException:
            return False
        finally:
            consumer.close()

    def error(self, error: KafkaException | KafkaError, doing: str, right: str) -> ReplicatorError:
        """Classify an error; `right` may be missing, unless it is one on the group."""
        if failures.kafka_error(error).code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            right = self._right
        return failures.classify(error, self._cluster.name, doing, right)

    def close(self) -> None:
        """Leave; this consumer never joined the group."""
        self.consumer.close()


def committed_offsets(
    flow: Flow, cluster: Cluster, group: str, partitions: Sequence[Partition]
) -> dict[Partition, int | None]:
    """Return the group's committed offsets; None where it has none.

    Raises NotAllowed, Unreachable, Retriable: of single partitions too.
    """
    if not partitions:
        return {}
    found: dict[Partition, int | None] = {}
    doing = f"read the offsets of group {group!r}"
    with closing(GroupOffsets(flow, cluster, group, doing)) as offsets:
        for answer in offsets.ask(partitions):
            at = Partition(answer.topic, answer.partition)
            if answer.error is not None:
                raise offsets.error(answer.error, f"{doing} in {at}", f"Describe on topic {at.topic!r}")
            found[at] = answer.offset if answer.offset >= 0 else None
    return found

"""Reads a flow's committed positions on the target, and when the record at an offset was written.

Used by lanes (one `OffsetReader` for each), and by `flow`, `jobs`, `inspect` and `spark` through `positions` and
`times_at`. A consumer reads the positions and not the admin client: librdkafka 2.16 crashes the process in
ListConsumerGroupOffsets while the group coordinator is coming up, and `committed` waits for it instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from replicator.config import Cluster, Flow
from replicator.kafka import failures, metadata, properties
from replicator.model import checkpoint, names
from replicator.model.checkpoint import Stored
from replicator.model.errors import Fatal, ReplicatorError, Retriable
from replicator.model.partition import Committed, Partition

_ONE_RECORD = {"queued.min.messages": 1, "fetch.message.max.bytes": 65_536}
"""One record of each partition is wanted; the broker sends a whole batch anyway."""
_COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


class OffsetReader:
    """Reads the position group, and lends its metadata to the transactional producer. Used by one thread.

    With `stable`, as everywhere but in views for people, the broker is asked for stable offsets (KIP-447): with an
    open transaction in the way it is asked again until the request timeout, because the answer may be older than what
    that transaction commits. librdkafka asks so only under `isolation.level=read_committed`.
    """

    def __init__(self, flow: Flow, *, stable: bool = True) -> None:
        self._flow, self._stable = flow, stable
        self._timeout_s = flow.limits.request_timeout_ms / 1000
        self._group = names.position_group(flow.name)
        self._doing = f"read the positions of group {self._group!r}"
        self._consumer = Consumer({**properties.reader(flow.target, flow, committed=stable), **properties.SILENT})

    @cached_property
    def group_metadata(self) -> object:
        """Return the metadata of the group without members: what TxnOffsetCommit carries. It never changes, and each
        commit needs it."""
        return self._consumer.consumer_group_metadata()

    def connect(self) -> None:
        """Connect before the first question, see `metadata.connect`."""
        metadata.connect(self._consumer, names.control_topic(self._flow.name))

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, Stored | ReplicatorError | None]:
        """Read positions by *target* partition: None only for an explicit -1, a partition's own error is its value.

        Raises Retriable, Unreachable or NotAllowed when the whole question failed: an error never reads as "no
        position".
        """
        if not partitions:
            return {}
        found: dict[Partition, Stored | ReplicatorError | None] = {}
        for answer in self._ask([TopicPartition(*at) for at in partitions]):
            at = Partition(answer.topic, answer.partition)
            if answer.error is not None:
                right = f"Describe on topic {at.topic!r}"
                found[at] = self._error(answer.error, f"read the position of {at}", right)
            else:
                raw = Committed(answer.offset, answer.metadata or "")
                found[at] = checkpoint.read(raw) if answer.offset >= 0 else None
        if found.keys() != set(partitions):
            raise Fatal(f"{self._doing}: asked for {len(partitions)} partitions, {len(found)} answered")
        return found

    def _ask(self, asked: list[TopicPartition]) -> list[TopicPartition]:
        """Ask again while the coordinator comes up (it answers so on a new cluster), within the request timeout."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._consumer.committed(asked, timeout=max(0.1, deadline - time.monotonic()))
            except KafkaException as error:
                code = failures.kafka_error(error).code()
                if code in _COORDINATOR_MOVES and time.monotonic() < deadline:
                    self._consumer.poll(0.1)
                    continue
                if code == KafkaError._TIMED_OUT and self._stable and self._answers_unstable(asked):
                    raise Retriable(
                        f"cluster {self._flow.target.name!r}: cannot {self._doing}: a transaction with new positions "
                        f"hasn't ended for {self._timeout_s:.0f} s: its producer is alive, or the broker lost its "
                        "marker (see kafka-transactions.sh find-hanging)"
                    ) from error
                raise self._error(error, self._doing, f"Read and Describe on group {self._group!r}") from error

    def _answers_unstable(self, asked: list[TopicPartition]) -> bool:
        """Tell whether the target tells positions that may not be stable: then it is a transaction that is waited
        for."""
        consumer = Consumer({**properties.reader(self._flow.target, self._flow, committed=False), **properties.SILENT})
        try:
            return bool(consumer.committed([TopicPartition(at.topic, at.partition) for at in asked], self._timeout_s))
        except KafkaException:
            return False
        finally:
            consumer.close()

    def _error(self, error: KafkaException | KafkaError, doing: str, right: str) -> ReplicatorError:
        if failures.kafka_error(error).code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            right = f"Read and Describe on group {self._group!r}"
        return failures.classify(error, self._flow.target.name, doing, right)

    def close(self) -> None:
        """Leave; this consumer never joined the group."""
        self._consumer.close()


def positions(flow: Flow, partitions: Iterable[Partition], *, stable: bool = True) -> dict[Partition, Stored | None]:
    """Return the flow's committed positions by *target* partition; None for an explicit "no offset". `stable` as above.

    Raises NotAllowed, Unreachable, Retriable: of single partitions too.
    """
    asked = list(partitions)
    if not asked:
        return {}
    with closing(OffsetReader(flow, stable=stable)) as reader:
        answers = reader.positions(asked)
    found: dict[Partition, Stored | None] = {}
    for at, answer in answers.items():
        if isinstance(answer, ReplicatorError):
            raise answer
        found[at] = answer
    return found


@contextmanager
def _consumer(cluster: Cluster, flow: Flow, *, committed: bool, **own: int) -> Iterator[Consumer]:
    consumer = Consumer({**properties.reader(cluster, flow, committed=committed), **own, **properties.SILENT})
    try:
        yield consumer
    finally:
        consumer.close()


def times_at(
    cluster: Cluster, flow: Flow, offsets: Mapping[Partition, int], timeout_s: float, *, committed: bool = True
) -> dict[Partition, int | None]:
    """Return the timestamps in ms of the first record at or after each offset; None where there is no record.

    Without `committed` records of open transactions count too.

    Left out: partitions that did not answer within `timeout_s`, or whose record is gone (the result serves
    people who look at lag; nothing is decided by it).
    """
    found: dict[Partition, int | None] = {}
    waiting = set(offsets)
    if not waiting:
        return found
    deadline = time.monotonic() + timeout_s
    with _consumer(cluster, flow, committed=committed, **_ONE_RECORD) as consumer:
        consumer.assign([TopicPartition(*at, offset) for at, offset in offsets.items()])
        while waiting and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error, topic, partition = message.error(), message.topic(), message.partition()
            if topic is None or partition is None or (error is not None and error.code() in failures.UNREACHABLE):
                continue
            at = Partition(topic, partition)
            if error is None:
                if at in waiting:
                    found[at] = message.timestamp()[1]
            elif error.code() == KafkaError._PARTITION_EOF:
                found.setdefault(at, None)
            elif error.code() != KafkaError._AUTO_OFFSET_RESET:
                right = f"Read on topic {at.topic!r}"
                raise failures.classify(error, cluster.name, f"read {at}", right)
            waiting.discard(at)
    return found

"""Reads a flow's committed positions on the target, and when the record at an offset was written.

Used by lanes (one `OffsetReader` for each), and by `flow`, `jobs`, `inspect` and `spark` through `positions` and
`times_at`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property

from confluent_kafka import Consumer, KafkaError, TopicPartition

from replicator.config import Cluster, Flow
from replicator.kafka import failures, properties
from replicator.kafka.group_offsets import GroupOffsets
from replicator.model import checkpoint, names
from replicator.model.checkpoint import Stored
from replicator.model.errors import Fatal, ReplicatorError
from replicator.model.partition import Committed, Partition

_ONE_RECORD = {"queued.min.messages": 1, "fetch.message.max.bytes": 65_536}
"""One record of each partition is wanted; the broker sends a whole batch anyway."""

_NOT_TEXT = "\N{REPLACEMENT CHARACTER}"


def metadata_of(answer: TopicPartition) -> str:
    """Return the metadata of a committed offset, or what isn't the metadata of any position where it is no text.

    confluent-kafka reads metadata up to a zero byte, which its own commits have behind them. Those of other clients
    have none, so it may go on into whatever stands behind them in memory.
    """
    try:
        return answer.metadata or ""
    except UnicodeDecodeError:
        return _NOT_TEXT


class OffsetReader:
    """Reads the position group, and lends its metadata to the transactional producer. Used by one thread. `stable`, as
    everywhere but in views for people: see `GroupOffsets`."""

    def __init__(self, flow: Flow, *, stable: bool = True) -> None:
        self._flow, group = flow, names.position_group(flow.name)
        self._doing = f"read the positions of group {group!r}"
        self._offsets = GroupOffsets(flow, flow.target, group, self._doing, stable=stable)

    @cached_property
    def group_metadata(self) -> object:
        """Return the metadata of the group without members: what TxnOffsetCommit carries. It never changes, and each
        commit needs it."""
        return self._offsets.consumer.consumer_group_metadata()

    def connect(self) -> None:
        """Connect before the first question, see `metadata.connect`."""
        self._offsets.connect(names.control_topic(self._flow.name))

    def positions(self, partitions: Sequence[Partition]) -> dict[Partition, Stored | ReplicatorError | None]:
        """Read positions by *target* partition: None only for an explicit -1, a partition's own error is its value.

        Raises Retriable, Unreachable or NotAllowed when the whole question failed: an error never reads as "no
        position".
        """
        if not partitions:
            return {}
        found: dict[Partition, Stored | ReplicatorError | None] = {}
        for answer in self._offsets.ask(partitions):
            at = Partition(answer.topic, answer.partition)
            if answer.error is not None:
                right = f"Describe on topic {at.topic!r}"
                found[at] = self._offsets.error(answer.error, f"read the position of {at}", right)
            else:
                found[at] = checkpoint.stored(Committed(answer.offset, metadata_of(answer)))
        if found.keys() != set(partitions):
            raise Fatal(f"{self._doing}: asked for {len(partitions)} partitions, {len(found)} answered")
        return found

    def close(self) -> None:
        """Leave; this consumer never joined the group."""
        self._offsets.close()


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
    with failures.making(cluster.name):
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

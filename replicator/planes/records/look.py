"""Read-only looks at a cluster: committed positions of a flow, and when the record at an offset was written.

A consumer reads the positions and not the admin client: librdkafka 2.16 crashes the process in
ListConsumerGroupOffsets while the group coordinator is coming up, and `committed` waits for it instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from replicator.config import Cluster, Flow
from replicator.planes.contract import Committed, Partition
from replicator.planes.records import failures, properties

_ONE_RECORD = {"queued.min.messages": 1, "fetch.message.max.bytes": 65_536}
"""One record of each partition is wanted; the broker sends a whole batch anyway."""
_DOING = "read the flow's positions"
_COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


@contextmanager
def _consumer(cluster: Cluster, flow: Flow, *, committed: bool = True, **own: int) -> Iterator[Consumer]:
    consumer = Consumer({"log_level": 0, **properties.reader(cluster, flow, committed=committed), **own})
    try:
        yield consumer
    finally:
        consumer.close()


def positions(flow: Flow, partitions: Iterable[Partition], *, stable: bool = True) -> dict[Partition, Committed | None]:
    """The flow's committed positions by *target* partition; None for an explicit "no offset".

    Stable ones only, unless told otherwise: with an open transaction in the way the broker is asked again until the
    request timeout. Otherwise the answer may be older than what that transaction commits.

    Raises:
        NotAllowed, Unreachable, Retriable: an error never reads as "no position".
    """
    asked = [TopicPartition(*at) for at in partitions]
    if not asked:
        return {}
    with _consumer(flow.target, flow, committed=stable) as consumer:
        answers = _committed(consumer, asked, flow)
    found: dict[Partition, Committed | None] = {}
    for answer in answers:
        if answer.error is not None:
            raise failures.classify_start(answer.error, flow.target.name, _DOING)
        at = Partition(answer.topic, answer.partition)
        found[at] = Committed(answer.offset, answer.metadata or "") if answer.offset >= 0 else None
    return found


def _committed(consumer: Consumer, asked: list[TopicPartition], flow: Flow) -> list[TopicPartition]:
    """Asks again while the coordinator comes up (it answers so on a new cluster), within the request timeout."""
    deadline = time.monotonic() + flow.limits.request_timeout_ms / 1000
    while True:
        try:
            return consumer.committed(asked, timeout=max(0.1, deadline - time.monotonic()))
        except KafkaException as error:
            if error.args[0].code() not in _COORDINATOR_MOVES or time.monotonic() > deadline:
                raise failures.classify_start(error, flow.target.name, _DOING) from error
            consumer.poll(0.1)


def times_at(
    cluster: Cluster, flow: Flow, offsets: Mapping[Partition, int], timeout_s: float, *, committed: bool = True
) -> dict[Partition, int | None]:
    """Timestamps in ms of the first record at or after each offset; None where there is no record.

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
            error = message.error()
            if error is not None and error.code() in failures.UNREACHABLE:
                continue
            at = Partition(message.topic() or "", message.partition() or 0)
            if error is None:
                if at in waiting:
                    found[at] = message.timestamp()[1]
            elif error.code() == KafkaError._PARTITION_EOF:
                found.setdefault(at, None)
            elif error.code() != KafkaError._AUTO_OFFSET_RESET:
                raise failures.classify_start(error, cluster.name, f"read {at}")
            waiting.discard(at)
    return found

"""Consumer groups without members: their offsets, and reading on from them to the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from confluent_kafka import Consumer, KafkaError, TopicPartition

from integration_tests.harness import clients


def consume(bootstrap: str, group: str, topic: str, partitions: int, most: int | None = None) -> list[bytes]:
    """Go on where the group stands, to the end or for so many records, and commit; the keys that were read."""
    consumer = clients.consumer(bootstrap, group_id=group, auto_offset_reset="error", enable_partition_eof=True)
    ats = [TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(consumer.committed(ats, timeout=clients.TIMEOUT_S))
    keys = list(islice(_keys(consumer, partitions), most))
    consumer.commit(offsets=consumer.position(ats), asynchronous=False)
    consumer.close()
    return keys


def left(bootstrap: str, group: str, topic: str, partitions: int) -> Counter[bytes] | None:
    """Keys of the records that the group would read to the end; None where it has no offset somewhere."""
    at = offsets(bootstrap, group, topic, partitions)
    if min(at) < 0:
        return None
    reader = clients.consumer(bootstrap, auto_offset_reset="error")
    reader.assign([TopicPartition(topic, number, offset) for number, offset in enumerate(at)])
    keys = Counter(_keys(reader, partitions))
    reader.close()
    return keys


def _keys(consumer: Consumer, partitions: int) -> Iterator[bytes]:
    """Of all records up to where the assigned partitions end."""
    ended = set[int]()
    while len(ended) < partitions:
        message = consumer.poll(clients.TIMEOUT_S)
        assert message is not None
        error, number = message.error(), message.partition()
        assert number is not None
        if error is None:
            yield bytes(message.key() or b"")
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(number)


def begin(bootstrap: str, group: str, offsets: list[tuple[str, int, int]]) -> None:
    """Commit offsets of a group without members."""
    consumer = clients.consumer(bootstrap, group_id=group)
    consumer.commit(offsets=[TopicPartition(*each) for each in offsets], asynchronous=False)
    consumer.close()


def deleted(bootstrap: str, *groups: str) -> None:
    """Delete groups as an administrator does."""
    admin = clients.admin(bootstrap)
    for done in admin.delete_consumer_groups(list(groups)).values():
        done.result(clients.TIMEOUT_S)


def offsets(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    """The group's committed offsets; -1001 where it has none."""
    consumer = clients.consumer(bootstrap, group_id=group)
    try:
        ats = [TopicPartition(topic, number) for number in range(partitions)]
        return [found.offset for found in consumer.committed(ats, timeout=clients.TIMEOUT_S)]
    finally:
        consumer.close()

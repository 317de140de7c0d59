"""Writes values in a transaction and waits for the offsets at which they stand. Used by `flow.map_index_writer`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from confluent_kafka import KafkaError, Message

from replicator.kafka import failures
from replicator.kafka.producer import TransactionalProducer
from replicator.model.errors import Retriable, UnknownOutcome


def write_acknowledged(
    producer: TransactionalProducer, topic: str, values: Iterable[tuple[int, bytes]]
) -> list[tuple[int, int]]:
    """Write values to partitions of one of the flow's own topics; return partition and offset of each.

    Raises as `TransactionalProducer.flush`; Retriable where one was refused; UnknownOutcome where an acknowledgement
    names no offset, which is what librdkafka gives for a record that was sent twice.
    """
    stands: list[tuple[int, int]] = []
    refused: list[str] = []

    def report(number: int, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            refused.append(f"{error.name()}: {failures.reason(error)}")
        elif offset is not None:
            stands[number] = stands[number][0], offset

    for number, (partition, value) in enumerate(values):
        stands.append((partition, -1))
        producer.write(topic, value, None, partition, partial(report, number))
    producer.flush(lambda: bool(refused))
    if refused:
        raise Retriable(f"{topic} doesn't take what is written: {refused[0]}")
    if any(offset < 0 for _, offset in stands):
        raise UnknownOutcome(f"{topic} has taken a record and not said at which offset")
    return stands

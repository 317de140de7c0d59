"""Writes one record outside any transaction, for what only informs. Used by `flow.wiring`."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from replicator.config import Flow
from replicator.kafka import failures, properties
from replicator.model.errors import Unreachable


def write_note(flow: Flow, topic: str, record: tuple[bytes, bytes], timeout_s: float) -> None:
    """Write key and value to the first partition of a topic of the flow's target, which must exist.

    Raises Unreachable (not within `timeout_s`), NotAllowed, or whatever else the broker refuses it with.
    """
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    key, value = record
    doing, right = f"write a record to {topic!r}", f"Write on topic {topic!r}"
    with failures.making(flow.target.name):
        producer = Producer(properties.note_producer(flow, timeout_s))
    deadline_s = time.monotonic() + timeout_s
    try:
        producer.produce(topic, value, key, partition=0, on_delivery=delivered)
        left = producer.flush(max(0.0, deadline_s - time.monotonic()))
    except KafkaException as error:
        raise failures.classify(error, flow.target.name, doing, right) from error
    if refused:
        raise failures.classify(refused[0], flow.target.name, doing, right)
    if left:
        producer.purge()
        raise Unreachable(f"cluster {flow.target.name!r}: cannot {doing}: no answer in {timeout_s:.0f} s")

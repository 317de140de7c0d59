"""Hands blocks of the offset map to the lane's producer. Used by `plane`."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

from replicator.kafka import failures
from replicator.kafka.producer import TransactionalProducer
from replicator.model.errors import Abortable
from replicator.planes.contract import MapBlocks


def write_blocks(transactions: TransactionalProducer, topic: str, blocks: MapBlocks) -> None:
    """Add blocks to the open transaction; their delivery reports are noted in `blocks`. Raises as
    `TransactionalProducer.write`."""

    def report(error: KafkaError | None, message: Message) -> None:
        blocks.left -= 1
        offset = message.offset()
        if error is not None:
            blocks.refused = blocks.refused or f"{error.name()}: {failures.reason(error)}"
        elif offset is not None:
            blocks.last = max(blocks.last, offset)

    blocks.left = len(blocks.values)
    for value in blocks.values:
        transactions.write(topic, value, None, blocks.partition, report)


def wait_for_blocks(transactions: TransactionalProducer, blocks: MapBlocks) -> None:
    """Wait until blocks are acknowledged. Raises as `TransactionalProducer.flush`, and Abortable when one was
    refused."""
    transactions.flush(lambda: bool(blocks.refused))
    if blocks.refused:
        raise Abortable(f"a block of the offset map was refused: {blocks.refused}")

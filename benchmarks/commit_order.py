"""`python -m benchmarks.commit_order`: in which order a transaction's records, map block and positions go out best.

By librdkafka alone, on real Kafka behind a pipe that delays each direction, five orders in turn: so round trips are
counted, and the machine's load falls on all alike. Printed is the median time of a transaction, from its first record.

    none        records, acknowledgements, positions, EndTxn: without a block
    behind      the block behind the acknowledgements, beside the positions: what a lane does
    before      the block before the acknowledgements are waited for: needs target offsets that are predicted
    all         block and positions before that: the positions' evidence has to be predicted, too
    all-none    the same without a block
"""

from __future__ import annotations

import sys
import time
import uuid
from collections import defaultdict
from statistics import median

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.clusters import Kafka
from benchmarks.delay import delayed
from integration_tests.harness.broker import free_port

ORDERS = ("none", "behind", "before", "all", "all-none")
RECORDS, PARTITIONS, OPEN_S, PAUSE_S, DROPPED = 20, 4, 0.003, 0.01, 10
WAIT_S = 30.0


class RecordsAndBlocks:
    """One transactional producer, with a topic for records and one for blocks."""

    def __init__(self, bootstrap: str) -> None:
        name = f"order-{uuid.uuid4().hex[:8]}"
        self._records, self._blocks = f"{name}.records", f"{name}.blocks"
        topics = [NewTopic(self._records, PARTITIONS, 1), NewTopic(self._blocks, 1, 1)]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for created in admin.create_topics(topics).values():
            created.result(WAIT_S)
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
        settings = {"transactional.id": name, "linger.ms": 0.5, "retry.backoff.ms": 10, "retry.backoff.max.ms": 500}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._producer.init_transactions(WAIT_S)

    def one(self, order: str, number: int) -> float:
        """Make one transaction; return its milliseconds."""
        producer, block = self._producer, order in ("behind", "before", "all")
        producer.begin_transaction()
        began_s = time.monotonic()
        for record in range(RECORDS):
            producer.produce(self._records, b"x" * 200, None, record % PARTITIONS)
        producer.poll(0)
        time.sleep(OPEN_S)
        if block and order != "behind":
            producer.produce(self._blocks, b"b" * 200, None, 0)
        if not order.startswith("all"):
            producer.flush(WAIT_S)
        if order == "behind":
            producer.produce(self._blocks, b"b" * 200, None, 0)
        positions = [TopicPartition(self._records, at, number + 1, "m" * 400) for at in range(PARTITIONS)]
        producer.send_offsets_to_transaction(positions, self._consumer.consumer_group_metadata(), WAIT_S)
        producer.flush(WAIT_S)
        producer.commit_transaction(WAIT_S)
        return (time.monotonic() - began_s) * 1000


@click.command()
@click.option("--delay-ms", default=20.0, show_default=True, help="Of one direction.")
@click.option("--transactions", default=60, show_default=True, help="Of each order.")
def main(delay_ms: float, transactions: int) -> None:
    """Measure all orders in turn."""
    inner, outer = free_port(), free_port()
    took = defaultdict[str, list[float]](list)
    with delayed(inner, delay_ms / 1000, outer), Kafka.running("target", far=(inner, outer)):
        made = RecordsAndBlocks(f"127.0.0.1:{outer}")
        for number in range(transactions + DROPPED):
            for order in ORDERS:
                took[order].append(made.one(order, number))
                time.sleep(PAUSE_S)
    for order in ORDERS:
        sys.stdout.write(f"{order:9} {median(took[order][DROPPED:]):8.1f} ms\n")


if __name__ == "__main__":
    main()

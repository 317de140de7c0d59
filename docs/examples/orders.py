"""Writes orders into a topic, for docs/getting-started.md: `python orders.py ADDRESS TOPIC FIRST LAST`."""

from __future__ import annotations

import json
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS, CUSTOMERS, BATCH = 3, 100, 20_000


def main(address: str, topic: str, first: int, last: int) -> None:
    """Write the orders `first` to `last`, keyed by customer. The topic is created if it isn't there."""
    admin = AdminClient({"bootstrap.servers": address})
    if topic not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])[topic].result(10)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in range(first, last + 1):
        order = {"order": number, "amount": number % 997}
        producer.produce(topic, json.dumps(order).encode(), f"customer-{number % CUSTOMERS}".encode())
        if number % BATCH == 0:
            producer.flush(30)  # the queue of a producer holds 100,000 records
    if producer.flush(30):
        sys.exit("some orders were not acknowledged within 30 s")
    print(f"orders {first} to {last} are in {topic}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

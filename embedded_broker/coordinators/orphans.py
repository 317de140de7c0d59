"""Transactions that are open in a partition and unknown to the coordinator: nobody will end them.

With `--fsync always` there are none, but for a partition that was stopped when its transaction ended. Otherwise a power
cut may take markers away and leave the record that they were written, or take the record of the beginning.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from embedded_broker.coordinators.ports import Topics
from embedded_broker.state.transactions import TopicPartition, Transaction

log = logging.getLogger("embedded_broker")


@dataclass(frozen=True, slots=True)
class Orphan:
    """One of them."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    first_offset: int


def find(topics: Topics, known: Iterable[Transaction]) -> Iterator[Orphan]:
    """All of them, given what the coordinator knows."""
    owned: dict[int, frozenset[TopicPartition]] = defaultdict(frozenset)
    for transaction in known:
        owned[transaction.producer_id] |= transaction.partitions
    for name in sorted(topics.names()):
        topic = topics.get(name)
        for index, partition in enumerate(topic.partitions if topic is not None else ()):
            for entry in partition.producers.entries():
                first = entry.first_offset_open
                if first is not None and (name, index) not in owned[entry.producer_id]:
                    yield Orphan((name, index), entry.producer_id, entry.epoch, first)


def report(orphan: Orphan, *, aborted: bool) -> None:
    """Say in the log what was found, and what becomes of it."""
    (name, index), what = orphan.partition, "it is aborted" if aborted else "end it with kafka-transactions.sh abort"
    log.error(
        "partition %s-%d: a transaction of producer %d, open since offset %d, is unknown to the coordinator: %s",
        name, index, orphan.producer_id, orphan.first_offset, what,
    )  # fmt: skip

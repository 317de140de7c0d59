"""Hanging transactions: open in a partition and unknown to the coordinator, so that nothing would ever end them.

`TransactionCoordinator.start` looks for them. A transaction that a stopped partition holds up is none of them, since
the coordinator knows it (`Completion`); earlier versions have left some there. Others come from a power cut without
`--fsync always`: it may lose markers and keep the record that says they were written, or lose the record of the
transaction's beginning.
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
class HangingTransaction:
    """One hanging transaction in one partition."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    first_offset: int


def find(topics: Topics, known: Iterable[Transaction]) -> Iterator[HangingTransaction]:
    """Yield all hanging transactions, given the transactions that the coordinator knows."""
    owned: dict[int, frozenset[TopicPartition]] = defaultdict(frozenset)
    for transaction in known:
        owned[transaction.producer_id] |= transaction.partitions
    for name in sorted(topics.names()):
        topic = topics.get(name)
        for index, partition in enumerate(topic.partitions if topic is not None else ()):
            for entry in partition.producers.entries():
                first = entry.first_offset_open
                if first is not None and (name, index) not in owned[entry.producer_id]:
                    yield HangingTransaction((name, index), entry.producer_id, entry.epoch, first)


def report(hanging: HangingTransaction, *, aborted: bool) -> None:
    """Log a hanging transaction, and whether it is aborted."""
    (name, index), what = hanging.partition, "it is aborted" if aborted else "end it with kafka-transactions.sh abort"
    log.error(
        "partition %s-%d: a transaction of producer %d, open since offset %d, is unknown to the coordinator: %s",
        name, index, hanging.producer_id, hanging.first_offset, what,
    )  # fmt: skip

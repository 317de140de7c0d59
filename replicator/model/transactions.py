"""Transactions as a cluster's brokers tell of them. Pure values, of `lane.ports.OpenTransactions`."""

from __future__ import annotations

from dataclasses import dataclass

from replicator.model.partition import Partition

IDLE = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})
"""States of a transactional id in which its coordinator has nothing left to do (TransactionState in Kafka)."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """One that is open in a partition, as its leader says (DescribeProducers, KIP-664).

    `start` is the offset of its first record there. `coordinator_epoch` is that of the last marker of its producer in
    this partition; -1: there was none.
    """

    producer_id: int
    epoch: int
    start: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What the coordinator knows of a transactional id (DescribeTransactions, KIP-664)."""

    state: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of one transaction in one partition, and how it ends."""

    at: Partition
    transaction: OpenTransaction
    commit: bool

"""Epochs of a producer id: which a client may hold, and how they are bumped. Used by `state.transactions` only.

The last epoch is nobody's: it is kept for the coordinator, so that it can fence the holder of any other with one more.
Source: org.apache.kafka.coordinator.transaction.TransactionMetadata (isEpochExhausted, prepareFenceProducerEpoch).
"""

from __future__ import annotations

EPOCH_MAX = 2**15 - 1
"""The greatest int16."""


def is_exhausted(epoch: int) -> bool:
    """Return whether an epoch is the last that a client may hold, so that the next client needs another producer id."""
    return epoch >= EPOCH_MAX - 1


def is_nobodys(epoch: int) -> bool:
    """Return whether no client was ever given an epoch: a request that names it is not from the owner."""
    return epoch >= EPOCH_MAX


def bumped(epoch: int) -> int:
    """Return the next epoch; the last one stays, since nobody holds it who would have to be fenced."""
    return min(epoch + 1, EPOCH_MAX)

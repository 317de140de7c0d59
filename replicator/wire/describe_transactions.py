"""DescribeTransactions: reads its response. Pure. Used by `open_transactions` and `producer_questions`.

Written by hand, because kio refuses the start time -1 of an id without a transaction. Version 0, as
org.apache.kafka.common.message has it, behind the header:

    throttle i32 | states [error i16, id, state, timeout i32, start i64, producer id i64, epoch i16,
    topics [topic, partitions [i32]]]

Strings and arrays are preceded by an unsigned varint of their length + 1; behind each structure stand tagged fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from replicator.model.transactions import ProducerState
from replicator.wire.compact import count, skip_tagged, string
from replicator.wire.response_limits import BadResponse

_INT16, _NUMBERS = Struct(">h"), Struct(">iqqh")  # timeout, start, producer id, epoch


_NEVER_MS = 2**31 - 1
"""TransactionMetadata.isDistributedTwoPhaseCommitTxn in Kafka."""


class DescribedTransaction(NamedTuple):
    """What the answer says of one id. `partitions`: of its transaction, by topic; those that the user may describe.
    `timeout_ms`: how long it may stay open."""

    error: int
    transactional_id: str
    start_ms: int
    producer: ProducerState
    partitions: Mapping[str, tuple[int, ...]]
    timeout_ms: int

    @property
    def never_times_out(self) -> bool:
        """Whether it is of a two-phase commit (KIP-939): its coordinator says so by this timeout alone."""
        return self.timeout_ms == _NEVER_MS


def read(data: bytes, at: int) -> tuple[int, ProducerState]:
    """Read the error of the only id, and what is known of it; `at`: behind the throttle time. Raises BadResponse."""
    found = read_all(data, at)
    if len(found) != 1:
        raise BadResponse(f"a DescribeTransactionsResponse of {len(found)} ids")
    return found[0].error, found[0].producer


def read_all(data: bytes, at: int) -> list[DescribedTransaction]:
    """Read what is known of each id. Raises as `read`."""
    try:
        described, at = count(data, at)
        found = list[DescribedTransaction]()
        for _ in range(described):
            one, at = _read(data, at)
            found.append(one)
    except (IndexError, StructError, UnicodeDecodeError) as wrong:
        raise BadResponse(f"no DescribeTransactionsResponse: {type(wrong).__name__}: {wrong}") from wrong
    return found


def _read(data: bytes, at: int) -> tuple[DescribedTransaction, int]:
    (error,) = _INT16.unpack_from(data, at)
    transactional_id, at = string(data, at + _INT16.size)
    state, at = string(data, at)
    timeout_ms, start_ms, producer_id, epoch = _NUMBERS.unpack_from(data, at)
    partitions, at = partitions_by_topic(data, at + _NUMBERS.size)
    producer = ProducerState(state, producer_id, epoch)
    described = DescribedTransaction(error, transactional_id, start_ms, producer, partitions, timeout_ms)
    return described, skip_tagged(data, at)


def partitions_by_topic(data: bytes, at: int) -> tuple[dict[str, tuple[int, ...]], int]:
    """Read an array of topics, each with its partitions; return it and where it ends. Raises BadResponse, IndexError,
    struct.error.
    """
    topics, at = count(data, at)
    found: dict[str, tuple[int, ...]] = {}
    for _ in range(topics):
        topic, at = string(data, at)
        partitions, at = count(data, at)
        numbers = Struct(f">{partitions}i")
        found[topic] = numbers.unpack_from(data, at)
        at = skip_tagged(data, at + numbers.size)
    return found, at

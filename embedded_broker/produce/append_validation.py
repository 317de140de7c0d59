"""Appends a client's batch if its producer may do so now; called by the handler of Produce for each partition.

Follows org.apache.kafka.storage.internals.log.UnifiedLog.append. `batch_checks` has looked at the batch before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from embedded_broker.produce.batch_checks import BatchRejected
from embedded_broker.state.owners import SOMEBODY, Owner
from embedded_broker.state.producers import Duplicate, RefuseBatch
from embedded_broker.storage.partition import Partition
from embedded_broker.wire.checked_batch import CheckedBatch
from kafka_records.batch import BatchHeader

Verify = Callable[[Partition, BatchHeader], ErrorCode]
"""Whether a batch that would open a transaction in a partition belongs to one that the coordinator knows."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch stands. `append_time_ms` is -1 unless the topic has LogAppendTime."""

    base_offset: int
    append_time_ms: int


def append(
    partition: Partition, batch: CheckedBatch, now_ms: int, verify: Verify | None, owner: Callable[[], Owner]
) -> Appended:
    """Append a client's batch, if its producer may, not durably yet. A duplicate is answered with its first offset.

    Args:
        partition: where to.
        batch: what `BatchChecks` has checked for the partition's topic.
        now_ms: wall time.
        verify: of the request; None if it has no transactional id.
        owner: whom the batch's producer counts for, if the partition doesn't know it.

    Raises BatchRejected with nothing appended, or OSError.
    """
    config = partition.config
    header = batch.header
    if header.is_transactional:
        _check_transaction(partition, header, verify)
    verdict = partition.producers.check(header, now_ms)
    if isinstance(verdict, RefuseBatch):
        raise BatchRejected(verdict.error_code, f"producer {header.producer_id}, sequence {header.base_sequence}")
    if isinstance(verdict, Duplicate):
        return Appended(verdict.base_offset, verdict.timestamp_ms)  # with CreateTime, too, as UnifiedLog.append has it
    append_time_ms = now_ms if config.log_append_time else None
    if header.is_log_append_time:
        batch = batch.with_create_time()
    brought_by = SOMEBODY
    if header.producer_id >= 0 and not partition.producers.knows(header.producer_id):
        brought_by = owner()
        if not partition.producers.has_room(brought_by):
            detail = f"producer {header.producer_id}: partitions know as many as they may from this client, or in all"
            raise BatchRejected(ErrorCode.throttling_quota_exceeded, detail)
    base_offset = partition.append_checked(batch, append_time_ms=append_time_ms, now_ms=now_ms, owner=brought_by)
    return Appended(base_offset, now_ms if config.log_append_time else -1)


def _check_transaction(partition: Partition, header: BatchHeader, verify: Verify | None) -> None:
    if verify is None:
        raise BatchRejected(
            ErrorCode.transactional_id_authorization_failed,
            "a transactional batch in a request without a transactional id",
        )
    if partition.producers.has_open(header.producer_id, header.producer_epoch):
        return
    error_code = verify(partition, header)  # otherwise a delayed batch would open a hanging transaction (KIP-890)
    if error_code is not ErrorCode.none:
        detail = f"producer {header.producer_id} of epoch {header.producer_epoch} has no transaction open here"
        raise BatchRejected(error_code, detail)

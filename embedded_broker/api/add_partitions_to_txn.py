"""AddPartitionsToTxn (24).

Behaviour: all partitions or none: if one doesn't exist, the others are answered OPERATION_NOT_ATTEMPTED.
Version notes: v2 answers PRODUCER_FENCED where earlier versions know INVALID_PRODUCER_EPOCH only; v4 is for brokers
among each other (several transactions, verification), and there are none here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import Answer, api

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection


@api(24, "add_partitions_to_txn", range(4))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    named = {topic.name: topic.partitions for topic in request.v3_and_below_topics}
    wanted = [(name, index) for name, indexes in named.items() for index in indexes]
    missing = {partition for partition in wanted if broker.topics.partition(*partition) is None}
    if missing:
        errors = {
            partition: ErrorCode.unknown_topic_or_partition
            if partition in missing
            else ErrorCode.operation_not_attempted
            for partition in wanted
        }
    else:
        error_code = await broker.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            wanted,
        )
        if version < 2 and error_code is ErrorCode.producer_fenced:
            error_code = ErrorCode.invalid_producer_epoch
        errors = dict.fromkeys(wanted, error_code)
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": name,
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": errors[name, index]} for index in indexes
                ],
            }
            for name, indexes in named.items()
        ]
    }

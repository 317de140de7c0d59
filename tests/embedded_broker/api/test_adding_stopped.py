"""A partition that is stopped can't take a marker, so no transaction begins in it: its transactional id goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.state.transactions import PREPARED
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from kafka_records.batch import TRANSACTIONAL
from tests.embedded_broker.served import Client, Served, batch, produce, serving

INIT = {"transactional_id": "id", "transaction_timeout": 60_000}
Ids = dict[str, int]


async def _add(client: Client, version: int, ids: Ids, *partitions: int) -> dict[int, ErrorCode]:
    topics = [{"name": "t", "partitions": partitions}]
    if version < 4:
        fields = {"transactional_id": "id", **ids, "topics": topics}
        named = {f"v3_and_below_{name}": value for name, value in fields.items()}
        topic = (await client.call("add_partitions_to_txn", version, **named)).results_by_topic_v3_and_below[0]
    else:
        transaction = {"transactional_id": "id", **ids, "verify_only": False, "topics": topics}
        answer = await client.call("add_partitions_to_txn", version, transactions=[transaction])
        topic = answer.results_by_transaction[0].topic_results[0]
    return {each.partition_index: each.partition_error_code for each in topic.results_by_partition}


async def _produce(client: Client, version: int, ids: Ids) -> dict[int, ErrorCode]:
    records = batch(b"v", attributes=TRANSACTIONAL, base_sequence=0, **ids)
    answer = await client.call("produce", version, **produce("t", records, records, transactional_id="id"))
    return {each.index: each.error_code for each in answer.responses[0].partition_responses}


async def _goes_on(served: Served, client: Client, ids: Ids) -> None:
    """The id can be used again after an abort."""
    answer = await client.call("end_txn", 3, transactional_id="id", committed=False, **ids)
    assert answer.error_code is ErrorCode.none
    async with asyncio.timeout(20):
        while served.broker.transactions.all()[0].state in PREPARED:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert (await client.call("init_producer_id", 4, **INIT)).error_code is ErrorCode.none


@pytest.mark.parametrize("api", ["AddPartitionsToTxn 3", "AddPartitionsToTxn 5", "Produce 12"])
def test_a_stopped_partition_is_not_added(api: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, MemoryFileSystem()) as served:
            await served.topic("t", 2)
            stopped = served.broker.topics.partition("t", 0)
            assert stopped is not None
            client = await served.client()
            identity = await client.call("init_producer_id", 4, **INIT)
            ids = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
            stopped.stop(ValueError("bug"))
            if api == "Produce 12":
                codes = await _produce(client, 12, ids)
                assert codes == {0: ErrorCode.kafka_storage_error, 1: ErrorCode.none}
            else:
                codes = await _add(client, int(api[-1]), ids, 0, 1)
                assert codes == {0: ErrorCode.kafka_storage_error, 1: ErrorCode.operation_not_attempted}
                assert await _add(client, int(api[-1]), ids, 1) == {1: ErrorCode.none}
            transaction = served.broker.transactions.get("id")
            assert transaction is not None
            assert transaction.partitions == {("t", 1)}
            await _goes_on(served, client, ids)

    asyncio.run(main())

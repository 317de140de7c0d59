"""Produce 12 in transaction version 2: what a request writes is what its transaction gets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.state.transactions import TopicPartition, TxnState
from kafka_records.batch import TRANSACTIONAL
from tests.embedded_broker.served import Client, Served, batch, produce, serving

NAME = "id"
Producer = tuple[int, int]


async def _init(client: Client) -> Producer:
    answer = await client.call("init_producer_id", 4, transactional_id=NAME, transaction_timeout=60_000)
    assert answer.error_code is ErrorCode.none
    return answer.producer_id, answer.producer_epoch


def _batch(producer: Producer, sequence: int = 0) -> bytes:
    header = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": sequence}
    return batch(b"v", attributes=TRANSACTIONAL, **header)


def _partitions(served: Served) -> frozenset[TopicPartition]:
    found = served.broker.transactions.get(NAME)
    assert found is not None
    return found.partitions


async def _codes(client: Client, version: int, request: dict[str, Any]) -> list[ErrorCode]:
    answer = await client.call("produce", version, **request)
    return [each.error_code for topic in answer.responses for each in topic.partition_responses]


def test_all_partitions_of_a_request_are_added_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 3)
            client = await served.client()
            producer = await _init(client)
            log = served.broker.internal_log("__transaction_state")
            before = log.log_end
            request = produce("t", _batch(producer), _batch(producer), transactional_id=NAME)
            assert await _codes(client, 12, request) == [ErrorCode.none, ErrorCode.none]
            assert _partitions(served) == {("t", 0), ("t", 1)}
            assert log.log_end == before + 1
            more = produce("t", _batch(producer, 1), _batch(producer, 1), transactional_id=NAME)
            assert await _codes(client, 12, more) == [ErrorCode.none, ErrorCode.none]
            assert log.log_end == before + 1, "known partitions cost nothing"

    asyncio.run(main())


def test_what_can_not_be_written_is_not_added(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 3)
            client = await served.client()
            producer = await _init(client)
            short = _batch(producer)[:50]
            request = produce("t", short, _batch(producer), short, _batch(producer), transactional_id=NAME)
            assert await _codes(client, 12, request) == [
                ErrorCode.invalid_record,
                ErrorCode.none,
                ErrorCode.invalid_record,
                ErrorCode.unknown_topic_or_partition,
            ]
            internal = produce("__consumer_offsets", _batch(producer), transactional_id=NAME)
            assert await _codes(client, 12, internal) == [ErrorCode.invalid_topic_exception]
            assert _partitions(served) == {("t", 1)}

    asyncio.run(main())


def test_before_version_twelve_nothing_is_added(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            producer = await _init(client)
            request = produce("t", _batch(producer), transactional_id=NAME)
            assert await _codes(client, 11, request) == [ErrorCode.transaction_abortable]
            assert _partitions(served) == frozenset()

    asyncio.run(main())


@pytest.mark.parametrize("bump", [True, False], ids=["EndTxn 5", "EndTxn 4"])
@pytest.mark.parametrize("api", ["produce", "txn_offset_commit"])
def test_what_was_added_may_have_ended_meanwhile(
    api: str, bump: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it must not be written: nobody would end it, and readers would wait behind it for ever."""

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            producer = await _init(client)
            coordinator = served.broker.transactions
            add = coordinator.add_partitions

            async def slow(*args: Any, **options: Any) -> ErrorCode:
                error_code = await add(*args, **options)
                assert (await coordinator.end(NAME, *producer, commit=False, bump=bump)).error_code is ErrorCode.none
                while coordinator.all()[0].state is not TxnState.COMPLETE_ABORT:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                return error_code

            monkeypatch.setattr(coordinator, "add_partitions", slow)
            if api == "produce":
                codes = await _codes(client, 12, produce("t", _batch(producer), transactional_id=NAME))
            else:
                offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
                answer = await client.call(
                    api, 5, transactional_id=NAME, group_id="g", producer_id=producer[0], producer_epoch=producer[1],
                    generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
                    topics=[{"name": "t", "partitions": [offset]}],
                )  # fmt: skip
                codes = [answer.topics[0].partitions[0].error_code]
            assert codes == [ErrorCode.invalid_producer_epoch if bump else ErrorCode.transaction_abortable]
            for log in (served.broker.internal_log("__consumer_offsets"), served.broker.topics.partition("t", 0)):
                assert log is not None
                assert not log.producers.open_transactions()

    asyncio.run(main())

"""Faults of the broker, request by request, on raw connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.testing.faults import Faults, FaultSpec
from tests.embedded_broker.served import TIMEOUT_S, Served, batch, produce, serving


class Hits:
    """Counts them, and lets a test wait."""

    def __init__(self) -> None:
        self.count, self.event = 0, asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self.event.set()


class Faulty(Served):
    """A running broker whose faults are numbered as they come."""

    faults: Faults

    def add(self, api: str, action: str, **fields: Any) -> Hits:
        hits = Hits()
        self.faults.add(self.next, FaultSpec(api, action, **fields), hits)
        self.next += 1
        return hits

    next = 0

    def end(self) -> int:
        topic = self.broker.topics.get("t")
        assert topic is not None
        return topic.partitions[0].log_end


@asynccontextmanager
async def faulty(directory: Path) -> AsyncIterator[Faulty]:
    async with serving(directory) as served:
        made = Faulty(served.broker, served.server)
        made.broker.faults = made.faults = Faults()
        await made.topic("t")
        yield made
        made.close()


async def append(client: Any, **fields: Any) -> ErrorCode:
    answer = await client.call("produce", 9, **produce("t", batch(b"v"), **fields))
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_the_nth_request_fails_and_has_no_effect(tmp_path: Path) -> None:
    async def run() -> None:
        async with faulty(tmp_path) as broker:
            hits = broker.add("Produce", "fail", error="NOT_LEADER_OR_FOLLOWER", nth=2, times=2)
            client = await broker.client()
            told = [await append(client) for _ in range(4)]
            wrong = ErrorCode.not_leader_or_follower
            assert told == [ErrorCode.none, wrong, wrong, ErrorCode.none]
            assert (broker.end(), hits.count) == (2, 2)

    asyncio.run(run())


def test_a_failed_reply_hides_what_was_done(tmp_path: Path) -> None:
    async def run() -> None:
        async with faulty(tmp_path) as broker:
            broker.add("produce", "fail", side="reply", error=7, times=None)
            client = await broker.client()
            assert [await append(client) for _ in range(2)] == [ErrorCode.request_timed_out] * 2
            assert broker.end() == 2

    asyncio.run(run())


@pytest.mark.parametrize(("side", "done"), [("request", 0), ("reply", 1)])
@pytest.mark.parametrize("acks", [-1, 0])
def test_a_drop_ends_the_connection_before_or_after_it_is_done(tmp_path: Path, side: str, done: int, acks: int) -> None:
    async def run() -> None:
        async with faulty(tmp_path) as broker:
            broker.add("Produce", "drop", side=side)
            client = await broker.client()
            client.send("produce", 9, **produce("t", batch(b"v"), acks=acks))
            assert await client.closed()
            assert broker.end() == done
            assert await append(await broker.client()) is ErrorCode.none

    asyncio.run(run())


def test_a_failure_that_nobody_waits_for_ends_the_connection(tmp_path: Path) -> None:
    async def run() -> None:
        async with faulty(tmp_path) as broker:
            broker.add("Produce", "fail", error="KAFKA_STORAGE_ERROR")
            client = await broker.client()
            client.send("produce", 9, **produce("t", batch(b"v"), acks=0))
            assert await client.closed()
            assert broker.end() == 0

    asyncio.run(run())


def test_what_is_held_waits_on_its_own_connection_until_it_is_released(tmp_path: Path) -> None:
    async def run() -> None:
        async with faulty(tmp_path) as broker:
            hits = broker.add("Produce", "hold")
            client, other = await broker.client(), await broker.client()
            client.send("produce", 9, **produce("t", batch(b"v")))
            client.send("api_versions", 0)
            await asyncio.wait_for(hits.event.wait(), TIMEOUT_S)
            assert await append(other) is ErrorCode.none
            assert broker.end() == 1, "the held one has an effect"
            broker.faults.release(0)
            assert (await client.receive()).responses[0].partition_responses[0].base_offset == 1
            assert (await client.receive()).api_keys

    asyncio.run(run())


def test_a_held_reply_is_on_disk_and_goes_on_when_the_fault_is_removed(tmp_path: Path) -> None:
    async def run() -> None:
        async with faulty(tmp_path) as broker:
            hits = broker.add("Produce", "hold", side="reply")
            client = await broker.client()
            client.send("produce", 9, **produce("t", batch(b"v")))
            await asyncio.wait_for(hits.event.wait(), TIMEOUT_S)
            topic = broker.broker.topics.get("t")
            assert topic is not None
            assert topic.partitions[0].high_watermark == 1
            broker.faults.remove()
            assert (await client.receive()).responses[0].partition_responses[0].base_offset == 0

    asyncio.run(run())


def test_faults_add_up_in_their_order_and_count_all_requests(tmp_path: Path) -> None:
    async def run() -> None:
        async with faulty(tmp_path) as broker:
            delayed = broker.add("Produce", "delay", delay_ms=50, times=None)
            failed = broker.add("Produce", "fail", error="NOT_ENOUGH_REPLICAS", nth=2)
            client, before = await broker.client(), time.monotonic()
            told = [await append(client) for _ in range(3)]
            assert told == [ErrorCode.none, ErrorCode.not_enough_replicas, ErrorCode.none]
            assert (delayed.count, failed.count) == (3, 1)
            assert time.monotonic() - before >= 0.15

    asyncio.run(run())


def test_only_the_named_client_is_meant(tmp_path: Path) -> None:
    async def run() -> None:
        async with faulty(tmp_path) as broker:
            other = broker.add("Produce", "fail", error="KAFKA_STORAGE_ERROR", client="another")
            client = await broker.client()
            assert await append(client) is ErrorCode.none
            mine = broker.add("Produce", "fail", error="KAFKA_STORAGE_ERROR", client="ra")
            assert await append(client) is ErrorCode.kafka_storage_error
            assert (other.count, mine.count) == (0, 1)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"api": "Nothing", "action": "drop"}, "no API 'Nothing'"),
        ({"api": "Fetch", "action": "explode"}, "explode"),
        ({"api": "Fetch", "action": "drop", "side": "top"}, "top"),
        ({"api": "Fetch", "action": "drop", "nth": 0}, "count from 1"),
        ({"api": "Fetch", "action": "drop", "times": 0}, "count from 1"),
        ({"api": "Fetch", "action": "delay", "delay_ms": -1}, "negative"),
        ({"api": "Fetch", "action": "fail", "error": "NO_SUCH"}, "no error 'NO_SUCH'"),
        ({"api": "Fetch", "action": "fail"}, "fail with error none"),
        ({"api": "Fetch", "action": "drop", "error": 7}, "drop with error"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Faults().add(0, FaultSpec(**fields), lambda: None)

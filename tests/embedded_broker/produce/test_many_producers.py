"""Clients that make producers without end: their batches are refused, and those of others are not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.storage.retention import FORGOTTEN_MIN
from tests.embedded_broker.served import Client, Served, batch, produce, serving

LIMITS: dict[str, Any] = {"producers_max": 800, "retention_check_interval_ms": 86_400_000}
ANONYMOUS = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}


async def _new_producer(client: Client) -> int:
    return int((await client.call("init_producer_id", 4, **ANONYMOUS)).producer_id)


async def _send(client: Client, producer_id: int, sequence: int = 0) -> Any:
    data = batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return (await client.call("produce", 9, **produce("t", data))).responses[0].partition_responses[0]


async def _fill(client: Client) -> list[int]:
    """As many producers as this connection may make."""
    made = []
    while (answer := await _send(client, producer_id := await _new_producer(client))).error_code is ErrorCode.none:
        made.append(producer_id)
    assert answer.error_code is ErrorCode.throttling_quota_exceeded
    return made


async def _elsewhere(served: Served) -> Client:
    port = served.broker.port
    return Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0), limit=1 << 26))


@pytest.mark.tier("default")
def test_new_ones_are_refused_and_known_ones_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, **LIMITS) as served:
            await served.topic("t")
            honest, greedy = await _elsewhere(served), await served.client()
            known = await _new_producer(honest)
            assert (await _send(honest, known)).base_offset == 0
            made = await _fill(greedy)
            assert len(made) == 200
            assert (await _send(greedy, made[0])).base_offset == 1, "a duplicate, as before"
            assert (await _send(greedy, made[0], 1)).error_code is ErrorCode.none
            assert (await _send(honest, known)).base_offset == 0
            assert (await _send(honest, await _new_producer(honest))).error_code is ErrorCode.none
        async with serving(tmp_path, **LIMITS) as served:
            honest = await _elsewhere(served)
            assert (await _send(honest, known)).base_offset == 0, "known over a restart, too"
            assert len(await _fill(await served.client())) == 200

    asyncio.run(main())


def test_what_was_idle_goes_and_stays_forgotten_after_a_kill(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, **LIMITS) as served:
            await served.topic("t")
            greedy = await served.client()
            await _fill(greedy)
            partition = served.broker.topics.partition("t", 0)
            assert partition is not None
            for entry in partition.producers.entries()[:FORGOTTEN_MIN]:
                entry.last_timestamp_ms -= 600_000
            await served.broker._retention.enforce()
            assert len(partition.producers.entries()) == 200 - FORGOTTEN_MIN
            assert partition.log.checkpoint_end == partition.log_end
            assert (await _send(greedy, await _new_producer(greedy))).error_code is ErrorCode.none

    asyncio.run(main())

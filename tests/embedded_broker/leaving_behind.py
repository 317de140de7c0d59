"""What clients can leave behind on a broker at their worst: each case once, by clients on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tests.embedded_broker.served import Client, batch, produce

SESSION_MS = 1_800_000
AT_ONCE = 50


async def connect(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))


async def send_all(client: Client, name: str, version: int, requests: list[dict[str, Any]]) -> None:
    """Pipelined; what is answered doesn't matter, nor whether the connection is closed."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        for first in range(0, len(requests), AT_ONCE):
            for fields in requests[first : first + AT_ONCE]:
                client.send(name, version, **fields)
            for _ in requests[first : first + AT_ONCE]:
                await client.receive()


def join(group: str, metadata: bytes = b"m" * 100) -> dict[str, Any]:
    said = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": metadata}]}
    times = {"session_timeout": SESSION_MS, "rebalance_timeout": SESSION_MS}
    return {"group_id": group, "member_id": "", "group_instance_id": None, **times, **said}


async def join_groups(port: int) -> None:
    await send_all(await connect(port), "join_group", 3, [join(f"g{n}") for n in range(30_000)])


async def consumer_members(port: int) -> None:
    names = [f"{n:0249}" for n in range(3_500)]
    for connection in range(20):
        beats = [
            {"group_id": f"g{connection}", "member_id": f"{n}", "member_epoch": 0, "rebalance_timeout": SESSION_MS,
             "topic_partitions": [], "subscribed_topic_names": names}
            for n in range(20)
        ]  # fmt: skip
        await send_all(await connect(port), "consumer_group_heartbeat", 1, beats)


async def transactional_ids(port: int) -> None:
    timeout = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    for connection in range(10):
        ids = [f"{connection} {n} ".ljust(30_000, "x") for n in range(1_000)]
        requests = [{"transactional_id": each, **timeout} for each in ids]
        await send_all(await connect(port), "init_producer_id", 4, requests)
    await (await connect(port)).call("list_transactions", 1, state_filters=[], producer_id_filters=[])


async def commit_offsets(port: int) -> None:
    for connection in range(10):
        client = await connect(port)
        commits = []
        for group in range(8):
            offsets = [{"partition_index": n, "committed_offset": 1, "committed_metadata": "m" * 4_096}
                       for n in range(500)]  # fmt: skip
            commits.append({"group_id": f"{connection} {group}", "generation_id_or_member_epoch": -1,
                            "topics": [{"name": "t", "partitions": offsets}]})  # fmt: skip
        await send_all(client, "offset_commit", 8, commits)


async def producer_ids(port: int) -> None:
    """Every producer is known to each of 500 partitions that it has written to."""
    anonymous = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    for _ in range(4):
        client = await connect(port)
        made = [(await client.call("init_producer_id", 4, **anonymous)).producer_id for _ in range(200)]
        batches = [batch(b"", producer_id=each, producer_epoch=0, base_sequence=0) for each in made]
        await send_all(client, "produce", 9, [produce("t", *(each,) * 500) for each in batches])


CASES: tuple[Callable[[int], Awaitable[None]], ...] = (
    join_groups,
    consumer_members,
    transactional_ids,
    commit_offsets,
    producer_ids,
)

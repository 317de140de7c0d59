"""What clients can leave behind on a broker at their worst: each case once, by clients on this machine.

Each returns how much it has done: how much the broker has taken. They need the topic `TOPIC` with `PARTITIONS`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from kio.schema.errors import ErrorCode

from tests.embedded_broker.served import Client, batch, produce

SESSION_MS = 1_800_000
AT_ONCE = 50
TOPIC, PARTITIONS = "t", 500
NAMES = 2_500
"""That a member subscribes to: with 3,500 of them it would be refused by itself."""
ERROR_CODES = frozenset({"error_code", "partition_error_code"})


async def connect(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))


async def send_all(client: Client, name: str, version: int, requests: list[dict[str, Any]]) -> int:
    """Pipelined; whether the connection is closed doesn't matter. How much of it was done: `done`."""
    count = 0
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        for first in range(0, len(requests), AT_ONCE):
            for fields in requests[first : first + AT_ONCE]:
                client.send(name, version, **fields)
            for _ in requests[first : first + AT_ONCE]:
                count += done(await client.receive())
    return count


def done(answer: Any) -> int:
    """How many things in an answer have an error code that says there is none."""
    if dataclasses.is_dataclass(answer):
        values = [(field.name, getattr(answer, field.name)) for field in dataclasses.fields(answer)]
        return sum(value == ErrorCode.none if name in ERROR_CODES else done(value) for name, value in values)
    return sum(map(done, answer)) if isinstance(answer, tuple) else 0


def join(group: str, metadata: bytes = b"m" * 100) -> dict[str, Any]:
    said = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": metadata}]}
    times = {"session_timeout": SESSION_MS, "rebalance_timeout": SESSION_MS}
    return {"group_id": group, "member_id": "", "group_instance_id": None, **times, **said}


async def join_groups(port: int) -> int:
    return await send_all(await connect(port), "join_group", 3, [join(f"g{n}") for n in range(30_000)])


async def consumer_members(port: int) -> int:
    count = 0
    names = [f"{n:0249}" for n in range(NAMES)]
    for connection in range(20):
        beats = [
            {"group_id": f"c{connection}", "member_id": f"{n}", "member_epoch": 0, "rebalance_timeout": SESSION_MS,
             "topic_partitions": [], "subscribed_topic_names": names}
            for n in range(20)
        ]  # fmt: skip
        count += await send_all(await connect(port), "consumer_group_heartbeat", 1, beats)
    return count


async def transactional_ids(port: int) -> int:
    count = 0
    timeout = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    for connection in range(10):
        ids = [f"{connection} {n} ".ljust(30_000, "x") for n in range(1_000)]
        requests = [{"transactional_id": each, **timeout} for each in ids]
        count += await send_all(await connect(port), "init_producer_id", 4, requests)
    await (await connect(port)).call("list_transactions", 1, state_filters=[], producer_id_filters=[])
    return count


async def commit_offsets(port: int) -> int:
    count = 0
    for connection in range(10):
        client = await connect(port)
        commits = []
        for group in range(8):
            offsets = [{"partition_index": n, "committed_offset": 1, "committed_metadata": "m" * 4_096}
                       for n in range(PARTITIONS)]  # fmt: skip
            commits.append({"group_id": f"{connection} {group}", "generation_id_or_member_epoch": -1,
                            "topics": [{"name": TOPIC, "partitions": offsets}]})  # fmt: skip
        count += await send_all(client, "offset_commit", 8, commits)
    return count


async def producer_ids(port: int) -> int:
    """Every producer is known to each of 500 partitions that it has written to."""
    count = 0
    anonymous = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    for _ in range(4):
        client = await connect(port)
        made = [(await client.call("init_producer_id", 4, **anonymous)).producer_id for _ in range(200)]
        batches = [batch(b"", producer_id=each, producer_epoch=0, base_sequence=0) for each in made]
        count += await send_all(client, "produce", 9, [produce(TOPIC, *(each,) * PARTITIONS) for each in batches])
    return count


CASES: tuple[Callable[[int], Awaitable[int]], ...] = (
    join_groups,
    consumer_members,
    transactional_ids,
    commit_offsets,
    producer_ids,
)

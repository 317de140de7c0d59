"""Clients that try to stop, starve or bloat a broker: what each does once, over connections of its own.

All speak the protocol well enough to be heard. Used by the soak; `python -m tests.embedded_broker.hostile HOST:PORT
TLS_HOST:PORT SEED` goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import ssl
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache

import cramjam

from kafka_records.batch import seal
from kafka_records.records import encode
from tests.embedded_broker.largest import COUNT
from tests.embedded_broker.leaving_behind import CASES
from tests.embedded_broker.served import Client, fetch, produce

TOPIC, COMPACTED = "hostile", "hostile-compacted"
ZSTD, FAR_MS = 4, 1 << 61
CONNECTIONS, UNREAD, HANDSHAKES = 400, 100, 3_000
HANDSHAKE_S_MAX = 60
BURST_S = 2.0
PAUSE_S = 0.2
Attack = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    """One connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 26)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def last_epoch(address: str) -> None:
    """Row 1: a transactional id whose epochs run out."""
    async with connected(address) as client:
        owner = {"producer_id": -1, "producer_epoch": -1}
        for _ in range(20):
            found = await client.call(
                "init_producer_id", 4, transactional_id="worn out", transaction_timeout=60_000, **owner
            )
            owner = {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
        for epoch in (32_766, 32_767, -1):
            topics = [{"name": TOPIC, "partitions": [0]}]
            await client.call(
                "add_partitions_to_txn",
                3,
                v3_and_below_transactional_id="worn out",
                v3_and_below_producer_id=owner["producer_id"],
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )


async def long_names(address: str) -> None:
    """Row 2: ids that no record can hold."""
    for name, version, fields in (
        ("init_producer_id", 4, {"transactional_id": "x" * 40_000, "transaction_timeout": 60_000}),
        ("heartbeat", 4, {"group_id": "x" * 40_000, "member_id": "m"}),
        ("find_coordinator", 4, {"coordinator_keys": ["x" * 40_000]}),
    ):
        async with connected(address) as client:
            client.send(name, version, **fields)
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
                await client.frame()


async def patterns(address: str) -> None:
    """Row 3: patterns that take a backtracking engine for ever."""
    async with connected(address) as client:
        for text in ("(a|a)*b", "(x+x+)+y", "(.*)*z" * 50, "[a-z]{1000}{1000}"):
            await client.call(
                "list_transactions", 2, state_filters=[], producer_id_filters=[], transactional_id_pattern=text
            )


async def bombs(address: str) -> None:
    """Row 4: a few kilobytes that claim to be millions of records, or become many megabytes."""
    for data in _bombs():
        async with connected(address) as client:
            await client.call("produce", 9, **produce(TOPIC, data))


@cache
def _bombs() -> list[bytes]:
    """Made once: what they cost to make must not be the honest clients' to bear."""
    return [
        bytes(
            seal(bytes(cramjam.zstd.compress(body, 3)), count=count, base_timestamp=0, max_timestamp=0, attributes=ZSTD)
        )
        for body, count in ((b"\2\0" * 20_000_000, 40_000_000), (b"\2\0" * 1_000_000, 20_000), (bytes(64 << 20), 1))
    ]


async def many_partitions(address: str) -> None:
    """Row 5: the same partition again and again, and a fetch that waits for much."""
    async with connected(address) as client:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            await client.call("fetch", 12, **fetch(TOPIC, *[0] * 21_000, partition_max_bytes=1))
    async with connected(address) as client:
        client.send("fetch", 12, **fetch(TOPIC, 0, max_wait=1_000, min_bytes=10 << 20, partition_max_bytes=10 << 20))
        await client.frame()


async def small_frames(address: str) -> None:
    """Row 6: fifty thousand requests of 22 bytes in one piece; nobody reads the answers."""
    frame = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    async with connected(address) as client:
        client.send_bytes(frame * 50_000)
        await asyncio.sleep(BURST_S)


async def odd_times(address: str) -> None:
    """Rows 8 and 11: records without a timestamp, and of a time that rolls segments."""
    async with connected(address) as client:
        for timestamp_ms in (-1, FAR_MS, 0):
            data = bytes(encode([(b"k", b"v" * 100)], timestamp_ms))
            await client.call("produce", 9, **produce(TOPIC, data))


async def garbage(address: str) -> None:
    """Row 17: bodies that aren't records, where a cleaner will come; and bytes that aren't Kafka's."""
    async with connected(address) as client:
        data = bytes(seal(os.urandom(200), count=3, base_timestamp=0, max_timestamp=0))
        await client.call("produce", 9, **produce(COMPACTED, data))
    async with connected(address) as client:
        client.send_bytes(os.urandom(4_000))
        with contextlib.suppress(TimeoutError):  # it may be the beginning of a long frame
            async with asyncio.timeout(BURST_S):
                await client.reader.read(100)


async def churn(address: str) -> None:
    """Row 10: connections that come and go, each with a line of the log."""
    for _ in range(200):
        async with connected(address):
            pass


async def crowd(address: str) -> None:
    """Row 14: as many connections as one address gets, which say nothing."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            with contextlib.suppress(OSError):
                await stack.enter_async_context(connected(address))
        await asyncio.sleep(BURST_S)


async def fat_members(address: str) -> None:
    """Row 13: members of groups with a megabyte each to say."""
    for number in range(20):
        async with connected(address) as client:
            member = {
                "group_id": f"fat {number}",
                "session_timeout": 10_000,
                "rebalance_timeout": 10_000,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": bytes(900_000)}],
            }
            asked = await client.call("join_group", 5, **member, member_id="")
            client.send("join_group", 5, **member, member_id=asked.member_id)
            await asyncio.sleep(0.05)


async def costly_answers(address: str) -> None:
    """Requests that name one thing as often as a request can, or as many things: small ones for large answers."""
    offsets = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}] * COUNT
    by_time = [{"partition_index": 0, "timestamp": 1}] * COUNT
    new = [{"name": f"wide {number}", "num_partitions": 1, "replication_factor": 1} for number in range(COUNT)]
    for name, version, fields in (
        ("describe_producers", 0, {"topics": [{"name": TOPIC, "partition_indexes": [0] * COUNT}]}),
        (
            "list_offsets",
            5,
            {"topics": [{"name": TOPIC, "partitions": by_time}]},
        ),
        ("create_topics", 7, {"topics": new, "timeout": 1_000, "validate_only": True}),
        ("describe_transactions", 0, {"transactional_ids": ["worn out"] * COUNT}),
        (
            "offset_commit",
            8,
            {
                "group_id": "repeated",
                "generation_id_or_member_epoch": -1,
                "topics": [{"name": TOPIC, "partitions": offsets}],
            },
        ),
    ):
        async with connected(address) as client:
            client.send(name, version, **fields)
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
                await client.frame()


async def unread_answers(address: str) -> None:
    """A hundred connections with one Fetch each, of which nobody reads an answer."""
    async with contextlib.AsyncExitStack() as stack:
        data = bytes(encode([(b"k", os.urandom(500_000))], int(time.time() * 1000)))
        writer = await stack.enter_async_context(connected(address))
        for _ in range(10):
            await writer.call("produce", 9, **produce(TOPIC, data))
        for _ in range(UNREAD):
            client = await stack.enter_async_context(connected(address))
            client.send("fetch", 12, **fetch(TOPIC, 0, max_bytes=50 << 20, partition_max_bytes=50 << 20))
        await asyncio.sleep(BURST_S)


def _leaving(leave: Callable[[int], Awaitable[None]]) -> Attack:
    async def attack(address: str) -> None:
        await leave(int(address.rpartition(":")[2]))

    attack.__name__ = leave.__name__
    return attack


ATTACKS: tuple[Attack, ...] = (
    costly_answers,
    unread_answers,
    *map(_leaving, CASES),
    last_epoch,
    long_names,
    patterns,
    bombs,
    many_partitions,
    small_frames,
    odd_times,
    garbage,
    churn,
    crowd,
    fat_members,
)


async def unfinished_handshakes(address: str) -> None:
    """As many TLS handshakes that were begun and don't go on, again and again: each until the broker closes it.

    Half of them have sent all that a client sends first, half a few bytes.
    """
    host, _, port = address.rpartition(":")
    greetings = (b"\x16\x03\x01", client_hello())
    while True:
        began_s = time.monotonic()
        waiting = [
            _begin_handshake(host, int(port), f"127.0.0.{2 + each % 4}", greetings[each // 4 % 2])
            for each in range(HANDSHAKES)
        ]
        begun = sum(await asyncio.gather(*waiting))
        print(unfinished_handshakes.__name__, began_s, time.monotonic(), begun, flush=True)


def client_hello() -> bytes:
    """The first record of a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context = ssl.create_default_context()
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


async def _begin_handshake(host: str, port: int, source: str, greeting: bytes) -> bool:
    """Whether it was begun; then the broker has ended it."""
    await asyncio.sleep(random.uniform(0, BURST_S))
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0))
        try:
            writer.write(greeting)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(HANDSHAKE_S_MAX):
                    while await reader.read(1 << 16):
                        pass
        finally:
            writer.close()
        return True
    return False


async def attack(address: str, seed: int) -> None:
    """One attack after the other, until cancelled; a broker that closes a connection has answered.

    Prints the name of each, and when it began and ended, by the monotonic clock.
    """
    chance = random.Random(seed)
    while True:
        one, began_s = chance.choice(ATTACKS), time.monotonic()
        try:
            async with asyncio.timeout(60):
                await one(address)
        except socket.gaierror:
            raise  # nothing was attacked
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        print(one.__name__, began_s, time.monotonic(), flush=True)
        await asyncio.sleep(PAUSE_S)


async def main(address: str, tls_address: str, seed: int) -> None:
    """Attacks, one after the other, beside handshakes."""
    await asyncio.gather(attack(address, seed), unfinished_handshakes(tls_address))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))

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
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import cast

import cramjam

from embedded_broker.produce.batch_checks import DECODED_BYTES_MAX
from kafka_records.batch import HEADER_BYTES
from kafka_records.records import encode
from tests.embedded_broker.largest import COUNT, GROUP, TXN_ID
from tests.embedded_broker.largest import TOPIC as WIDE
from tests.embedded_broker.leaving_behind import CASES, PARTITIONS, connect, done, send_all
from tests.embedded_broker.leaving_behind import TOPIC as LEFT_BEHIND
from tests.embedded_broker.populated import KEPT, LATE_MS, ZSTD, Population, populate, squeezed
from tests.embedded_broker.served import Client, fetch, produce, request
from tests.embedded_broker.unfinished import unfinished_handshakes
from tests.kafka_records.sealed import seal

TOPIC, COMPACTED = "hostile", "hostile-compacted"
FAR_MS = 1 << 61
CONNECTIONS, UNREAD = 400, 100
BURST_S = 2.0
PAUSE_S = 0.2
EPOCHS, FETCHES, SMALL, CHURNED, FAT = 2_000, 5, 50_000, 200, 20
CREATED = 4_900  # with a partition each nearly the 10,000 changes of one request
MUCH = Population(topics=20, partitions=1_000, squeezed=10, producers=1_000, transactional_ids=100, fat_batches=0)
LARGE, LARGE_BYTES = "hostile-large", 5 << 20
Attack = Callable[[str], Awaitable[int]]
"""How much of what it is about the broker has done, or refused where it has to."""


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    """One connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 26)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def last_epoch(address: str) -> int:
    """Row 1: a transactional id whose epochs run out, after some rounds."""
    async with connected(address) as client:
        owner = {"producer_id": -1, "producer_epoch": -1}
        fields = {"transactional_id": "worn out", "transaction_timeout": 60_000, **owner}
        count = await send_all(client, "init_producer_id", 4, [fields] * EPOCHS)
        found = await client.call("init_producer_id", 4, **fields)
        for epoch in (32_766, 32_767, -1):
            await client.call(
                "add_partitions_to_txn",
                3,
                v3_and_below_transactional_id="worn out",
                v3_and_below_producer_id=found.producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[{"name": TOPIC, "partitions": [0]}],
            )
    return count


async def long_names(address: str) -> int:
    """Row 2: ids that no record can hold. Counts connections that are closed."""
    count = 0
    for name, version, fields in (
        ("init_producer_id", 4, {"transactional_id": "x" * 40_000, "transaction_timeout": 60_000}),
        ("heartbeat", 4, {"group_id": "x" * 40_000, "member_id": "m"}),
        ("find_coordinator", 4, {"coordinator_keys": ["x" * 40_000]}),
    ):
        async with connected(address) as client:
            client.send(name, version, **fields)
            count += await client.closed()
    return count


async def patterns(address: str) -> int:
    """Row 3: patterns that take a backtracking engine for ever, on texts that begin as they do."""
    count = 0
    async with connected(address) as client:
        timeout = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        for text in ("a" * 1_000, "x" * 1_000):
            await client.call("init_producer_id", 4, transactional_id=text, **timeout)
        for text in ("(a|a)*b", "(x+x+)+y", "(.*)*z" * 50, "[a-z]{1000}{1000}"):
            count += done(
                await client.call(
                    "list_transactions", 2, state_filters=[], producer_id_filters=[], transactional_id_pattern=text
                )
            )
    return count


async def bombs(address: str) -> int:
    """Row 4: a few kilobytes that become many megabytes, or many records, or only claim to."""
    count = 0
    for data in _bombs():
        async with connected(address) as client:
            count += done(await client.call("produce", 9, **produce(TOPIC, data)))
    return count


@cache
def _bombs() -> list[bytes]:
    """Made once: what they cost to make must not be the honest clients' to bear. Two are as they should be."""
    large = bytes(encode([(b"k", bytes(DECODED_BYTES_MAX - 1_000))], 0))[HEADER_BYTES:]
    bodies = ((large, 1), (b"\2\0" * 20_000_000, 40_000_000), (b"\2\0" * 1_000_000, 20_000), (bytes(64 << 20), 1))
    return [squeezed(200_000)] + [
        bytes(
            seal(bytes(cramjam.zstd.compress(body, 3)), count=count, base_timestamp=0, max_timestamp=0, attributes=ZSTD)
        )
        for body, count in bodies
    ]


async def many_partitions(address: str) -> int:
    """Row 5: a thousand partitions, again and again; then twenty thousand, and a fetch that waits for much."""
    count = 0
    async with connected(address) as client:
        for _ in range(FETCHES):
            count += done(await client.call("fetch", 12, **fetch(WIDE, *[0] * MUCH.partitions)))
        await client.call("fetch", 12, **fetch(WIDE, *[0] * 21_000, partition_max_bytes=1))
        client.send("fetch", 12, **fetch(TOPIC, 0, max_wait=1_000, min_bytes=10 << 20, partition_max_bytes=10 << 20))
        await client.frame()
    return count


async def small_frames(address: str) -> int:
    """Row 6: fifty thousand requests of 22 bytes in one piece. Half of the answers are read, then nobody does."""
    frame = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    async with connected(address) as client:
        client.send_bytes(frame * SMALL)
        for _ in range(SMALL // 2):
            await client.frame()
        cast(asyncio.Transport, client.writer.transport).pause_reading()
        await asyncio.sleep(BURST_S)
    return SMALL // 2


async def odd_times(address: str) -> int:
    """Rows 8 and 11: records without a timestamp, and of a time that rolls segments."""
    count = 0
    async with connected(address) as client:
        for timestamp_ms in (-1, FAR_MS, 0):
            data = bytes(encode([(b"k", b"v" * 100)], timestamp_ms))
            count += done(await client.call("produce", 9, **produce(TOPIC, data)))
    return count


async def garbage(address: str) -> int:
    """Row 17: bodies that aren't records, where a cleaner will come; and bytes that aren't Kafka's. Counts refusals."""
    async with connected(address) as client:
        data = bytes(seal(os.urandom(200), count=3, base_timestamp=0, max_timestamp=0))
        answer = await client.call("produce", 9, **produce(COMPACTED, data))
        assert len(answer.responses[0].partition_responses) == 1
    count = 1 - done(answer)
    async with connected(address) as client:
        client.send_bytes(os.urandom(4_000))
        with contextlib.suppress(TimeoutError):  # it may be the beginning of a long frame
            async with asyncio.timeout(BURST_S):
                await client.reader.read(100)
    return count


async def churn(address: str) -> int:
    """Row 10: connections that come and go, each with a line of the log."""
    for _ in range(CHURNED):
        async with connected(address):
            pass
    return CHURNED


async def crowd(address: str) -> int:
    """Row 14: hundreds of connections, which say nothing."""
    count = 0
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            with contextlib.suppress(OSError):
                await stack.enter_async_context(connected(address))
                count += 1
        await asyncio.sleep(BURST_S)
    return count


async def fat_members(address: str) -> int:
    """Row 13: members of groups with a megabyte each to say."""
    count = 0
    for number in range(FAT):
        async with connected(address) as client:
            member = {
                "group_id": f"fat {number}",
                "session_timeout": 10_000,
                "rebalance_timeout": 10_000,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": bytes(900_000)}],
            }
            asked = await client.call("join_group", 5, **member, member_id="")
            count += done(await client.call("join_group", 5, **member, member_id=asked.member_id))
    return count


async def repeated_names(address: str) -> int:
    """Requests that name one thing as often as a request can. Counts answers."""
    offsets = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}] * COUNT
    by_time = [{"partition_index": 1, "timestamp": LATE_MS}] * COUNT
    group = {"group_id": "repeated", "generation_id_or_member_epoch": -1}
    count = 0
    for name, version, fields in (
        ("describe_producers", 0, {"topics": [{"name": WIDE, "partition_indexes": [0] * COUNT}]}),
        ("list_offsets", 5, {"topics": [{"name": WIDE, "partitions": by_time}]}),
        ("describe_transactions", 0, {"transactional_ids": [TXN_ID] * COUNT}),
        ("offset_commit", 8, {**group, "topics": [{"name": WIDE, "partitions": offsets}]}),
    ):
        async with connected(address) as client:
            await client.call(name, version, **fields)
            count += 1
    return count


async def many_names(address: str) -> int:
    """Requests about as many things as there are, all of which are answered: small ones for large answers."""
    partitions = range(MUCH.partitions)
    new = [{"name": f"new-{number}", "num_partitions": 1, "replication_factor": 1} for number in range(CREATED)]
    offsets = [{"partition_index": n, "committed_offset": 1, "committed_metadata": "m" * 4_000} for n in partitions]
    count = 0
    for name, version, fields in (
        ("describe_producers", 0, {"topics": [{"name": WIDE, "partition_indexes": [*partitions]}]}),
        ("create_topics", 7, {"topics": new, "timeout": 1_000, "validate_only": True}),
        ("describe_transactions", 0, {"transactional_ids": [TXN_ID]}),
        (
            "offset_commit",
            8,
            {
                "group_id": GROUP,
                "generation_id_or_member_epoch": -1,
                "topics": [{"name": WIDE, "partitions": offsets}],
            },
        ),
        ("offset_fetch", 8, {"groups": [{"group_id": GROUP, "topics": None}], "require_stable": False}),
        ("metadata", 12, {"topics": None}),
    ):
        async with connected(address) as client:
            count += done(await client.call(name, version, **fields))
    return count


async def late_times(address: str) -> int:
    """ListOffsets by a time that only the last of 100,000 records has, in each of several partitions."""
    wanted = [{"partition_index": 1 + n, "timestamp": LATE_MS} for n in range(MUCH.squeezed)]
    async with connected(address) as client:
        answer = await client.call("list_offsets", 5, topics=[{"name": WIDE, "partitions": wanted}])
    return sum(each.offset >= 0 for each in answer.topics[0].partitions)


async def unread_answers(address: str) -> int:
    """A hundred connections with one Fetch each, of which nobody reads an answer. Counts those that have begun."""
    host, _, port = address.rpartition(":")
    loop, wanted = asyncio.get_running_loop(), fetch(LARGE, 0, max_bytes=50 << 20, partition_max_bytes=50 << 20)
    async with contextlib.AsyncExitStack() as stack:
        deaf = [stack.enter_context(socket.socket()) for _ in range(UNREAD)]
        for each in deaf:
            each.setblocking(False)
            await loop.sock_connect(each, (host, int(port)))
            await loop.sock_sendall(each, request("fetch", 12, **wanted))
        await asyncio.sleep(BURST_S)
        return sum(_has_begun(each) for each in deaf)


def _has_begun(connection: socket.socket) -> bool:
    """Whether there is something to read."""
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except OSError:
        return False


def _leaving(leave: Callable[[int], Awaitable[int]]) -> Attack:
    async def attack(address: str) -> int:
        return await leave(int(address.rpartition(":")[2]))

    attack.__name__ = leave.__name__
    return attack


ATTACKS: Mapping[Attack, int] = {
    repeated_names: 4,
    many_names: MUCH.partitions * 3 + CREATED,
    late_times: MUCH.squeezed,
    unread_answers: UNREAD // 10,
    **{_leaving(leave): 20 for leave in CASES},
    last_epoch: EPOCHS,
    long_names: 3,
    patterns: 3,
    bombs: 2,
    many_partitions: FETCHES * MUCH.partitions,
    small_frames: SMALL // 2,
    odd_times: 2,
    garbage: 1,
    churn: CHURNED,
    crowd: CONNECTIONS,
    fat_members: FAT // 2,
}
"""With how much each does at least, on a broker that is prepared for it and that nobody else has filled."""


async def prepare(port: int) -> None:
    """Give a broker what is attacked."""
    await populate(port, MUCH)
    client = await connect(port)
    for name, partitions, configs in (
        (TOPIC, 1, [KEPT]),
        (COMPACTED, 1, [{"name": "cleanup.policy", "value": "compact"}]),
        (LARGE, 1, [KEPT]),
        (LEFT_BEHIND, PARTITIONS, []),
    ):
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": configs}
        assert done(await client.call("create_topics", 7, topics=[topic], timeout=60_000)) == 1
    data = bytes(encode([(b"k", os.urandom(LARGE_BYTES // 10))], 1_000))
    for _ in range(10):
        assert done(await client.call("produce", 9, **produce(LARGE, data))) == 1
    client.writer.close()


async def attack(address: str, seed: int) -> None:
    """One attack after the other, until cancelled; a broker that closes a connection has answered.

    Prints the name of each, when it began and ended, by the monotonic clock, and how much it has done.
    """
    chance, attacks = random.Random(seed), tuple(ATTACKS)
    while True:
        one, began_s = chance.choice(attacks), time.monotonic()
        did = 0
        try:
            async with asyncio.timeout(60):
                did = await one(address)
        except socket.gaierror:
            raise  # nothing was attacked
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        print(one.__name__, began_s, time.monotonic(), did, flush=True)
        await asyncio.sleep(PAUSE_S)


async def main(address: str, tls_address: str, seed: int) -> None:
    """Attacks, one after the other, beside handshakes."""
    await asyncio.gather(attack(address, seed), unfinished_handshakes(tls_address))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))

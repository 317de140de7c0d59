"""What clients of the transaction coordinator do, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.offsets import Committer
from embedded_broker.coordinators.transactions import Identity
from embedded_broker.metadata.topic_names import OFFSETS_PARTITION
from embedded_broker.state.transactions import PREPARED
from tests.embedded_broker.coordinators.members import commit_of
from tests.embedded_broker.coordinators.memory_host import MemoryHost

P0, P1 = ("t", 0), ("t", 1)
TIMEOUT_MS = 60_000


async def init(host: MemoryHost, expected: tuple[int, int] | None = None, timeout_ms: int = TIMEOUT_MS) -> Identity:
    """InitProducerId, as a client does it: again while a transaction ends."""
    while True:
        identity = await host.transactions.init_producer_id("id", timeout_ms, expected)
        if identity.error_code is not ErrorCode.concurrent_transactions:
            return identity
        await asyncio.sleep(0)


async def begin(host: MemoryHost, value: bytes, sequence: int = 0, timeout_ms: int = TIMEOUT_MS) -> tuple[int, int]:
    """A transaction with a record in each partition and an offset; not ended."""
    identity = await init(host, timeout_ms=timeout_ms)
    producer = identity.producer_id, identity.epoch
    await add_and_write(host, producer, value, sequence)
    return producer


async def add_and_write(host: MemoryHost, producer: tuple[int, int], value: bytes, sequence: int) -> None:
    await completed(host)
    for name, index in (P0, P1):
        assert await host.transactions.add_partitions("id", *producer, [(name, index)]) is ErrorCode.none
        await host.produce(name, index, value, producer, sequence)
    assert await host.transactions.add_partitions("id", *producer, [OFFSETS_PARTITION]) is ErrorCode.none
    commits = [commit_of(host, sequence + 1)]
    offsets = host.groups.offsets
    results = await offsets.commit_in_transaction(Committer("g"), host.groups.get("g"), *producer, commits)
    assert results == {P0: ErrorCode.none}


async def until(holds: Callable[[], bool]) -> None:
    """Let the other tasks run until something holds; the host in memory never makes anybody wait for long."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def completed(host: MemoryHost) -> None:
    """The transaction's markers are written, too."""
    await until(lambda: all(transaction.state not in PREPARED for transaction in host.transactions.all()))

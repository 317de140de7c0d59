"""A line to the source over which large answers don't come: less is asked for at once, until they do."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.compare import assert_exact
from integration_tests.harness.copying import Copying
from integration_tests.harness.proxy import Proxy, Side

PARTITIONS, RECORDS, SIZE = 6, 6, 150_000


def too_slow(proxy: Proxy) -> None:
    """An answer of 1 MiB from each partition takes 16 s, and is waited for 3 s."""
    proxy.slow_down(400_000, Side.REPLY)


def breaks(proxy: Proxy) -> None:
    """A connection breaks when an answer of more than two records comes."""
    proxy.break_at(2 * SIZE + SIZE // 2)


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("line", [too_slow, breaks], ids=lambda line: line.__name__)
@pytest.mark.parametrize("engine", ["records", "batches"])
def test_large_answers_don_t_come(
    make_copying: MakeCopying, source: BrokerHandle, engine: str, line: Callable[[Proxy], None]
) -> None:
    with Proxy(source.bootstrap) as proxy:
        via = {"bootstrap.servers": proxy.bootstrap, "socket.timeout.ms": "3000"}
        limits = {"request_timeout_ms": 3_000} if engine == "batches" else {}
        copied(make_copying(partitions=PARTITIONS, source_via=via, engine=engine, limits=limits), proxy, line)


def copied(copying: Copying, proxy: Proxy, line: Callable[[Proxy], None]) -> None:
    writer = clients.producer(copying.source)
    for _ in range(RECORDS):
        for partition in range(PARTITIONS):
            writer.produce(copying.topic, os.urandom(SIZE), partition=partition)
        writer.flush()
    line(proxy)
    worker = copying.running()
    copying.wait_copied()
    assert {event["kind"] for event in worker.seen("restarted")} == {"Retriable"}
    assert all("less is asked for at once" in event["reason"] for event in worker.seen("restarted"))
    assert worker.stop() == 0, worker.tail()
    assert_exact(copying.source, copying.topic, copying.target, copying.copy, PARTITIONS)

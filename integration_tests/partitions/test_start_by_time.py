"""`start: <time>` without a record at or after it: a record that is written during the look-up is copied."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.processes import wait_until
from integration_tests.harness.proxy import Action, Proxy, Side

BEFORE_MS, START_MS = 1_700_000_000_000, 1_750_000_000_000
REQUESTS = range(1, 9)  # more than the look-up sends for one partition
LATER = pytest.mark.tier(embedded="full")


@pytest.fixture
def source_proxy(source: BrokerHandle) -> Iterator[Proxy]:
    """In front of the source."""
    with Proxy(source.bootstrap) as running:
        yield running


@pytest.mark.parametrize("nth", [*REQUESTS[:2], *(pytest.param(nth, marks=LATER) for nth in REQUESTS[2:])])
def test_a_record_that_is_written_during_the_look_up_is_copied(
    make_copying: MakeCopying, source_proxy: Proxy, nth: int
) -> None:
    """Whichever request for offsets it is written before: its time is later than the start, so it is asked for."""
    start = {"kind": "timestamp", "timestamp_ms": START_MS}
    copying = make_copying(partitions=1, source_via=source_proxy.bootstrap, start=start)
    writer = clients.producer(copying.source)
    clients.put(writer, copying.topic, b"too early", timestamp=BEFORE_MS)
    held = source_proxy.rule("ListOffsets", Side.REQUEST, Action.HOLD, nth=nth)
    worker = copying.run()
    wait_until(lambda: held.hit or worker.seen("lane_started"), "a request for offsets, or the start", worker.tail)
    now_ms = time.time_ns() // 1_000_000
    clients.put(writer, copying.topic, b"in between", timestamp=now_ms)
    source_proxy.clear()
    worker.wait_event("lane_started")
    clients.put(writer, copying.topic, b"last", timestamp=now_ms)
    clients.wait_value(copying.target, copying.copy, 0, b"last")
    assert worker.stop() == 0
    copied = clients.values(clients.read(copying.target, copying.copy))
    assert copied == [b"in between", b"last"], f"request {nth} of {source_proxy.count('ListOffsets')} was held"

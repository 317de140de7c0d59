"""A line to the target that is slower than a transaction within its timeout: transactions shrink until they fit."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact, wait_key
from integration_tests.harness.proxy import Proxy

pytestmark = pytest.mark.tier("long")

RECORD_BYTES, RECORDS = 150_000, 40
LINE_BYTES_PER_S = 60_000
TIMEOUT_MS = 6_000  # two records take five seconds


@pytest.mark.timeout(400)
def test_large_records_over_a_slow_line(make_copying: MakeCopying, proxy: Proxy) -> None:
    """None of them went through as long as transactions only grew; and nobody was told."""
    copying = make_copying(via=proxy.bootstrap, partitions=1, limits={"transaction_timeout_ms": TIMEOUT_MS})
    writer = clients.producer(copying.source)
    clients.put(writer, copying.topic, *(b"%d" % number * (RECORD_BYTES // 2) for number in range(10, 10 + RECORDS)))
    proxy.slow_down(LINE_BYTES_PER_S)
    worker = copying.running()
    told = worker.wait_event("waiting", reason="target_slow")
    worker.wait_event("copying")
    assert any(event["records"] for event in worker.seen("committed"))
    proxy.slow_down(None)
    writer.produce(copying.topic, b"", b"last")
    writer.flush()
    wait_key(copying.target, copying.copy, 1, b"last")
    assert worker.stop() == 0, worker.tail()
    assert not worker.seen("incident")
    assert_exact(copying.source, copying.topic, copying.target, copying.copy, 1)
    assert "bytes a second" in told["detail"]

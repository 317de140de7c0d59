"""What transactions cost: how many there are at a steady rate by `commit.linger_ms`, and what each of them leaves
on the target."""

from __future__ import annotations

import time

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying

pytestmark = pytest.mark.tier("long", kafka="long")

RECORDS, EACH_S = 100, 0.1
"""One record after the other, ten a second."""


def transactions(copying: Copying) -> int:
    """How many transactions a flow has made of `RECORDS` records that came at a steady rate. Each has left one marker,
    which is an offset of its partition."""
    worker = copying.running()
    producer = clients.producer(copying.source)
    began_s, mark = time.monotonic(), worker.mark()
    for number in range(RECORDS):
        clients.put(producer, copying.topic, b"%d" % number, partition=0)
        time.sleep(max(0.0, began_s + (number + 1) * EACH_S - time.monotonic()))
    copying.wait_positions()
    assert worker.stop() == 0, worker.tail()
    commits = sum(1 for event in worker.seen("committed", after=mark) if event.get("records"))
    assert copying.target_ends() == [RECORDS + commits]
    return commits


def test_a_longer_linger_makes_fewer_transactions_of_the_same_records(make_copying: MakeCopying) -> None:
    short, long = (
        transactions(make_copying(partitions=1, commit={"linger_ms": linger_ms, "interval_ms": 1_000}))
        for linger_ms in (5, 200)
    )
    print(f"{RECORDS} records: {short} transactions with 5 ms, {long} with 200 ms")
    assert long <= RECORDS * EACH_S / 0.2 + 2
    assert short > 1.3 * long

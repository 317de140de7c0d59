"""Transactions grow as long as the target takes them, and shrink to what it takes."""

from __future__ import annotations

import random

from replicator.lane.size import FIRST_RECORDS, GROWS_BELOW, TransactionSize, slowness
from replicator.planes.contract import Written

TIMEOUT_S = 10.0
RECORDS_MAX, BYTES_MAX = 10_000, 32 * 2**20


def quick(records: int = 10, size: int = 1_000) -> Written:
    return Written(records, size, size, 0.01, TIMEOUT_S)


def late(records: int, size: int) -> Written:
    return Written(records, size, 0, TIMEOUT_S, TIMEOUT_S)


def test_the_first_transactions_of_a_session_are_small() -> None:
    made, sizes = TransactionSize(RECORDS_MAX, BYTES_MAX), list[int]()
    for _ in range(2):
        made.session_began()
        for _ in range(6):
            sizes.append(made.left(0, 0))
            made.on_committed(quick())
    assert sizes[0] == sizes[6] == FIRST_RECORDS < 200
    assert sizes[:6] == sorted(sizes[:6])
    assert sizes[5] == RECORDS_MAX
    bulk = TransactionSize(RECORDS_MAX, BYTES_MAX, small=False)
    bulk.session_began()
    assert bulk.left(0, 0) == RECORDS_MAX


def test_either_limit_ends_a_transaction() -> None:
    made = TransactionSize(100, 1_000, small=False)
    assert (made.left(99, 999), made.left(100, 0), made.left(1, 1_000)) == (1, 0, 0)


def test_records_and_bytes_halve_with_each_timeout_down_to_one_record() -> None:
    made = TransactionSize(RECORDS_MAX, BYTES_MAX, small=False)
    made.timed_out(late(64, 64_000))
    assert (made.records, made.bytes) == (32, 32_000), "of what it held, not of what it might have held"
    for _ in range(20):
        made.session_began()
        made.timed_out(late(made.left(0, 0), 1_000 * made.left(0, 0)))
    assert (made.left(0, 0), made.left(1, 1_000)) == (1, 0)
    assert made.timeouts == 21


def test_after_a_timeout_it_grows_slowly_and_only_where_there_is_time() -> None:
    made = TransactionSize(RECORDS_MAX, BYTES_MAX, small=False)
    made.timed_out(late(64, 64_000))
    made.on_committed(Written(32, 32_000, 32_000, TIMEOUT_S * GROWS_BELOW, TIMEOUT_S))
    assert (made.records, made.bytes, made.timeouts) == (32, 32_000, 0)
    made.on_committed(quick(32, 32_000))
    assert (made.records, made.bytes) == (40, 40_001)
    for _ in range(60):
        made.on_committed(quick(made.records, 1_000 * made.records))
    assert (made.records, made.bytes) == (RECORDS_MAX, BYTES_MAX), "the slow time is over"


def test_one_poll_takes_no_more_than_the_bytes_allow() -> None:
    """What it returns can't be given back, and records may be of any size."""
    made = TransactionSize(RECORDS_MAX, BYTES_MAX, small=False)
    made.timed_out(Written(100, 1_000_000, 0, TIMEOUT_S, TIMEOUT_S))
    assert made.left(0, 0) == 50
    assert made.left(10, 400_000) == 10
    assert made.left(1, 499_999) == 0


def test_whatever_the_line_takes_a_size_is_found_that_goes_through() -> None:
    """Lines and records of any size; where a single record fits into the timeout, records arrive, and almost always."""
    for seed in range(200):
        chance = random.Random(seed)
        rate, record = chance.uniform(1_000, 1_000_000), chance.uniform(1, 1_000_000)
        made, through, late_ones = TransactionSize(RECORDS_MAX, BYTES_MAX), 0, 0
        made.session_began()
        for _ in range(400):
            records = made.left(0, 0)
            size, took_s = int(records * record), records * record / rate
            if took_s >= TIMEOUT_S:
                made.timed_out(Written(records, size, 0, TIMEOUT_S, TIMEOUT_S))
                late_ones += 1
            else:
                made.on_committed(Written(records, size, size, took_s, TIMEOUT_S))
                through += 1
        assert (through > 0) == (record / rate < TIMEOUT_S), seed
        assert late_ones <= 20 or not through, f"seed {seed}: {late_ones} timeouts"


def test_an_operator_is_told_the_rate_seen_and_the_rate_needed() -> None:
    text = slowness(3, Written(4, 600_000, 300_000, 20.0, 10.0))
    assert "Transactions become smaller, down to one record" in text
    assert "15,000 bytes a second was acknowledged" in text
    assert "needs 15,000 bytes a second" in text

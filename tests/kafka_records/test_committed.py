"""Which batches of a read_committed response are committed: what the list of aborted transactions says of them."""

from __future__ import annotations

import pytest

from integration_tests.harness import batches
from kafka_records.committed import committed_batches
from kafka_records.control import marker
from kafka_records.fetched import FetchedBatch, read_batches

pytestmark = pytest.mark.tier("default")

TRANSACTIONAL = 0x10


def data(offset: int, producer_id: int, attributes: int = TRANSACTIONAL) -> bytes:
    made = batches.batch([batches.record()], base_offset=offset, attributes=attributes, producer=(producer_id, 0))
    return bytes(made)


def control(offset: int, producer_id: int, kind: int) -> bytes:
    made = bytearray(marker(producer_id, 0, commit=kind == 1, timestamp_ms=0))
    if kind > 1:  # a control record that ends no transaction (KIP-1279)
        record = batches.record(b"", b"\x00\x00\x00" + bytes([kind]))
        made = bytearray(batches.batch([record], attributes=0x30, producer=(producer_id, 0)))
    made[:8] = offset.to_bytes(8, "big")
    return bytes(made)


def kept(log: bytes, aborted: list[tuple[int, int]]) -> list[int]:
    found = list(committed_batches(read_batches(log), aborted))
    return [one.first_offset for one in found if isinstance(one, FetchedBatch)]


def test_an_aborted_transaction_goes_from_its_first_offset_to_its_marker() -> None:
    log = b"".join([data(0, 7), data(1, 8), data(2, 7), control(3, 7, 0), control(4, 8, 1), data(5, 7)])
    assert kept(log, [(7, 0)]) == [1, 5]
    assert kept(log, []) == [0, 1, 2, 5]
    assert kept(log, [(7, 2)]) == [0, 1, 5]


def test_several_transactions_of_one_producer_are_told_apart() -> None:
    log = b"".join(
        [data(0, 7), control(1, 7, 1), data(2, 7), control(3, 7, 0), data(4, 7), control(5, 7, 1), data(6, 7)]
    )
    assert kept(log, [(7, 2), (7, 6)]) == [0, 4]


def test_a_response_may_begin_in_the_middle_of_an_aborted_transaction() -> None:
    assert kept(data(10, 7) + control(11, 7, 0) + data(12, 7), [(7, 3)]) == [12]


def test_records_without_a_transaction_are_never_left_out() -> None:
    assert kept(data(0, 7, attributes=0) + data(1, 7), [(7, 0)]) == [0]


def test_a_control_record_of_another_kind_ends_no_transaction() -> None:
    assert kept(data(0, 7) + control(1, 7, 5) + data(2, 7) + control(3, 7, 0) + data(4, 7), [(7, 0)]) == [4]

"""Records of coordinators' logs are read in Kafka's formats, and refused where they aren't whole."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded_broker.state import transaction_log
from embedded_broker.state.transactions import Transaction, TxnState
from replicator.coupling.evidence import SeenTransaction
from replicator.wire.coordinator_logs import offset_of, transaction_of
from replicator.wire.response_limits import BadResponse

KEY = transaction_log.encode_key("billing")


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def flexible() -> bytes:
    made = Transaction(
        transactional_id="billing", producer_id=7, epoch=1, timeout_ms=9, state=TxnState.ONGOING,
        partitions=frozenset({("a", 0), ("a", 2), ("__consumer_offsets", 5)}), start_ms=3, update_ms=4,
    )  # fmt: skip
    return transaction_log.encode_transaction(made)


def rigid(topics: int = 2, partitions: int = 2) -> bytes:
    """Version 0, of brokers before 4.0."""
    listed = struct.pack(">i", topics) + text("a") + struct.pack(">iii", partitions, 0, 2)
    listed += text("__consumer_offsets") + struct.pack(">ii", 1, 5)
    return struct.pack(">hqhib", 0, 7, 1, 9, 1) + listed + struct.pack(">qq", 4, 3)


@pytest.mark.parametrize("value", [flexible(), rigid()], ids=["v1", "v0"])
def test_a_transaction_has_its_partitions(value: bytes) -> None:
    expected = SeenTransaction("billing", 7, {"a": (0, 2), "__consumer_offsets": (5,)}, 4)
    assert transaction_of(KEY, value) == expected
    for size in range(len(value) - (9 if value == rigid() else 60)):
        with pytest.raises(BadResponse):
            transaction_of(KEY, value[:size])


def test_an_empty_transaction_has_none() -> None:
    value = struct.pack(">hqhib", 0, 7, 1, 9, 0) + struct.pack(">i", -1) + struct.pack(">qq", 4, -1)
    assert transaction_of(KEY, value) == SeenTransaction("billing", 7, {}, 4)


def test_what_is_no_transaction_is_passed_over() -> None:
    assert transaction_of(KEY, None) is None
    assert transaction_of(None, b"x") is None
    assert transaction_of(*transaction_log.encode_producer_ids(5)) is None


@pytest.mark.parametrize("value", [struct.pack(">hqhib", 2, 7, 1, 9, 1), rigid(partitions=10**6), rigid(topics=9)])
def test_other_versions_and_claims_are_refused(value: bytes) -> None:
    with pytest.raises(BadResponse):
        transaction_of(KEY, value)


@pytest.mark.parametrize("version", [0, 1])
def test_the_key_of_an_offset_has_group_and_topic(version: int) -> None:
    key = struct.pack(">h", version) + text("group") + text("topic") + struct.pack(">i", 3)
    assert offset_of(key) == ("group", "topic")
    for size in range(len(key) - 4):
        with pytest.raises(BadResponse):
            offset_of(key[:size])
    assert offset_of(struct.pack(">h", 2) + text("group")) is None
    assert offset_of(None) is None


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(key: bytes, value: bytes) -> None:
    with suppress(BadResponse):
        transaction_of(b"\0\0" + key, value)
    with suppress(BadResponse):
        offset_of(key)

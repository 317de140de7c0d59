"""Records of the transaction log: what goes in comes out, and nonsense is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded_broker.state import transaction_log
from embedded_broker.state.codec import Truncated
from embedded_broker.state.transaction_log import ProducerIdsRecord, TransactionRecord
from embedded_broker.state.transactions import Transaction, TxnState

int16 = st.integers(-1, 2**15 - 1)
int64 = st.integers(-1, 2**63 - 1)
transactions = st.builds(
    Transaction,
    transactional_id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=30),
    producer_id=int64,
    epoch=int16,
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(TxnState),
    last_epoch=int16,
    previous_producer_id=int64,
    next_producer_id=int64,
    partitions=st.frozensets(st.tuples(st.sampled_from(["a", "b.c", "__consumer_offsets"]), st.integers(0, 9))),
    start_ms=int64,
    update_ms=int64,
    client_version=st.sampled_from([0, 2]),
    begun_at=int64,
)


@given(transactions)
def test_a_transaction_comes_back_as_it_was(transaction: Transaction) -> None:
    key = transaction_log.encode_key(transaction.transactional_id)
    value = transaction_log.encode_transaction(transaction)
    expected = TransactionRecord(transaction.transactional_id, transaction)
    assert transaction_log.decode(key, value) == expected


def test_a_tombstone_forgets_the_id() -> None:
    assert transaction_log.decode(transaction_log.encode_key("x"), None) == TransactionRecord("x", None)


def test_producer_ids_come_back() -> None:
    assert transaction_log.decode(*transaction_log.encode_producer_ids(5_000)) == ProducerIdsRecord(5_000)


def test_kinds_of_later_versions_are_passed_over() -> None:
    assert transaction_log.decode(b"\x00\x63rest", b"?") is None


def test_the_format_is_kafkas() -> None:
    """TransactionLogKey 0 and TransactionLogValue 1, byte by byte."""
    transaction = Transaction(
        "ab", 1, 2, 3, TxnState.ONGOING, partitions=frozenset({("t", 5)}), start_ms=7, update_ms=6
    )
    assert transaction_log.encode_key("ab") == bytes.fromhex("0000 0002 6162")
    value = transaction_log.encode_transaction(transaction)
    head = "0001 0000000000000001 0002 00000003 01" + "02 0274 02 00000005 00" + "0000000000000006 0000000000000007"
    assert value.startswith(bytes.fromhex(head))


@given(transactions, st.data())
def test_a_cut_record_is_refused(transaction: Transaction, data: st.DataObject) -> None:
    value = transaction_log.encode_transaction(transaction)
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(Truncated):
        transaction_log.decode(transaction_log.encode_key("x"), value[:cut])

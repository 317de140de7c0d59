"""The coordinators' log is read on from where it was read to: all of it once, and what is gone is said."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import UUID

import pytest
from crc32c import crc32c

from embedded_broker.state import transaction_log
from embedded_broker.state.transactions import Transaction, TxnState
from kafka_records.batch import stamp
from kafka_records.records import encode
from replicator.config import Cluster, Properties
from replicator.model.errors import NotAllowed
from replicator.wire import transaction_log_tail
from replicator.wire.producer_questions import LedTopic, ProducerQuestions
from replicator.wire.transaction_log_tail import LogCut, TransactionLogTail
from tests.replicator.wire.fake_broker import TOPIC, TOPIC_ID, Answer, FakeBroker, Leader

pytestmark = pytest.mark.tier("default")

OUT_OF_RANGE, DENIED = 1, 29


class Log(Leader):
    """A log of one-record batches; `gone`: offsets that compaction has removed, `start`: where it begins; `made`:
    the last batch, by its first offset."""

    def __init__(self, records: int) -> None:
        super().__init__()
        self.records_there = records
        self.gone, self.start, self.code = set[int](), 0, 0
        self.made = dict[int, bytes]()

    def answer_list_offsets(self, request: Any) -> Answer:
        return self.listed(offset=self.records_there)

    def answer_fetch(self, request: Any) -> Answer:
        offset = request.topics[0].partitions[0].fetch_offset
        if offset < self.start:
            return self.fetched(error_code=OUT_OF_RANGE)
        there = [it for it in range(offset, self.records_there) if it not in self.gone]
        batches = [batch(it) for it in there[:2]]
        for first, made in self.made.items():
            batches = [batch(it) for it in range(offset, first)] + [made]
        return self.fetched(records=b"".join(batches), error_code=self.code, high_watermark=self.records_there)


def batch(*offsets: int, last: int | None = None) -> bytes:
    """`last`: an offset behind these of which compaction has removed the record."""
    data = encode([record(it) for it in offsets], 3)
    if last is not None:
        struct.pack_into(">i", data, 23, last - offsets[0])
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
    stamp(data, offsets[0], 5)
    return bytes(data)


def record(offset: int) -> tuple[bytes, bytes]:
    made = Transaction(
        transactional_id=f"id-{offset}", producer_id=offset, epoch=1, timeout_ms=9, state=TxnState.ONGOING,
        partitions=frozenset({("a", 0)}), start_ms=3, update_ms=3,
    )  # fmt: skip
    return transaction_log.encode_key(made.transactional_id), transaction_log.encode_transaction(made)


@contextmanager
def reading(log: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[TransactionLogTail]:
    monkeypatch.setattr(transaction_log_tail, "TRANSACTIONS_TOPIC", TOPIC)
    with FakeBroker(log) as broker:
        cluster = Cluster(name="east", properties=Properties({"bootstrap.servers": f"127.0.0.1:{broker.port}"}))
        with closing(ProducerQuestions(cluster, "test")) as questions:
            tail = TransactionLogTail(questions)
            tail._topic = LedTopic(UUID(bytes=TOPIC_ID), {0: broker.address})
            yield tail


def ids(tail: TransactionLogTail) -> list[int]:
    found = tail.read()
    assert found.to_end
    return [it.producer_id for it in found.records]


def test_it_begins_at_the_end_and_reads_each_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(3)
    with reading(log, monkeypatch) as tail:
        assert ids(tail) == []
        log.records_there = 10
        assert ids(tail) == [3, 4, 5, 6, 7, 8, 9]
        assert ids(tail) == []
        tail.offsets = {}
        assert ids(tail) == list(range(10)), "of a partition that wasn't there all is read"


@pytest.mark.parametrize("gone", [{0}, {1}, {4, 5}, {5}], ids=str)
def test_a_gap_that_compaction_has_left_cuts_the_log_though_its_start_is_as_it_was(
    gone: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(6)
    log.gone = gone
    with reading(log, monkeypatch) as tail:
        tail.offsets = {0: 0}
        with pytest.raises(LogCut):
            tail.read()
        assert tail.offsets == {0: 0}


def test_a_batch_without_some_of_its_records_cuts_the_log_and_a_whole_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(6)
    with reading(log, monkeypatch) as tail:
        log.made = {3: batch(3, last=5)}
        tail.offsets = {0: 0}
        with pytest.raises(LogCut, match="1 records at offsets 3 to 5"):
            tail.read()
        log.made = {3: batch(3, 4, 5)}
        assert ids(tail) == [0, 1, 2, 3, 4, 5]
        tail.offsets = {0: 4}
        assert ids(tail) == [3, 4, 5], "from the middle of a batch"


def test_what_is_left_when_time_is_over_is_read_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log_tail, "READ_S_MAX", -1.0)
    with reading(Log(6), monkeypatch) as tail:
        tail.offsets = {0: 0}
        assert tail.read() == ([], False)
        assert tail.offsets == {0: 0}


def test_a_log_that_begins_later_is_cut_and_one_that_may_not_be_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(6)
    log.start = 2
    with reading(log, monkeypatch) as tail:
        tail.offsets = {0: 0}
        with pytest.raises(LogCut):
            tail.read()
        tail.offsets, log.code = {0: 3}, DENIED
        topic = tail._topic
        with pytest.raises(NotAllowed, match="Read on topic"):
            tail.read()
        assert tail.offsets == {0: 3}
        tail._topic, log.code = topic, 0
        assert ids(tail) == [3, 4, 5]
